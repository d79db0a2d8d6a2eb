// Threads that decode loose images ahead of whoever takes them, in the order of their sources, within bounds.
#pragma once
#include "data/images/image.h"
#include "inference/sources.h"

typedef struct Decoded {
  int64_t number; // among the images of the sources, from 0 on
  char *path;
  Image image;  // upright; rgb NULL: it cannot be read, or its pixels were given back
  Err *wrong;   // why it cannot be read; NULL: it can
  size_t bytes; // that it counts for
} Decoded;

typedef struct DecodersOptions {
  int threads;  // ≥ 1
  int ahead;    // images that are read or decoded and not taken, at most; ≥ 1
  size_t bytes; // of pixels that are decoded and not given back, or an eighth more: an image that is larger comes alone
} DecodersOptions;

typedef struct Decoders Decoders;
// The sources must outlive the decoders, who alone may read them. NULL with a message when a thread cannot be started.
Decoders *decoders_open(Sources *s, const DecodersOptions *options, Err *err);

typedef enum DecodersState {
  DECODERS_IMAGE,
  DECODERS_BUSY, // the next image is being read
  DECODERS_FULL, // it has to wait until pixels are given back
  DECODERS_IDLE, // whoever writes the list has not named it yet
  DECODERS_END,
  DECODERS_FAIL, // the sources cannot be read, with a message
} DecodersState;
// The next image in the order of the sources, waiting for it up to `wait` seconds; the caller frees it.
DecodersState decoders_next(Decoders *d, double wait, Decoded **out, Err *err);
// Gives back the pixels of an image that was taken.
void decoders_drop_pixels(Decoders *d, Decoded *image);
void decoders_free(Decoders *d, Decoded *image);
// Images a second that the threads would yield if they never waited for room or names: by the time that those read so
// far have taken them. 0: none was read.
double decoders_yield(Decoders *d);
void decoders_close(Decoders *d); // stops the threads; images that were taken have been freed
