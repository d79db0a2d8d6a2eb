// Threads that decode named images ahead of the consumer, in the order of their sources, within limits.
#pragma once
#include "data/images/image.h"
#include "inference/sources.h"

typedef struct Decoded {
  int64_t number; // index among the images of the sources
  char *path;
  Image image;       // rgb NULL: it cannot be read, or its pixels were released
  int orientation;   // of EXIF
  const char *color; // "black" or "white" if it has 16-bit samples that its range shows as nearly that; NULL otherwise
  Err *wrong;        // why it cannot be read; NULL: it can
  size_t bytes;      // bytes counted against the limit
} Decoded;

typedef struct DecodersOptions {
  int threads;  // ≥ 1
  int ahead;    // maximum number of images being decoded or decoded and not yet taken; ≥ 1
  bool upright; // rotate images by their EXIF orientation
  size_t
      bytes; // limit on decoded and unreleased pixels, exceeded by at most an eighth: a larger image is decoded alone
  SampleRange range; // of 16-bit samples
} DecodersOptions;

typedef struct Decoders Decoders;
// The sources must outlive the decoders, and only these may read them. NULL with a message if a thread cannot be
// started.
Decoders *decoders_open(Sources *s, const DecodersOptions *options, Err *err);

typedef enum DecodersState {
  DECODERS_IMAGE,
  DECODERS_BUSY, // the next image is being decoded
  DECODERS_FULL, // the next image must wait until pixels are released
  DECODERS_IDLE, // the writer of the list has not named it yet
  DECODERS_END,
  DECODERS_FAIL, // the sources cannot be read, with a message
} DecodersState;
// Takes the next image in the order of the sources, waiting up to `wait` seconds; the caller frees it.
DecodersState decoders_next(Decoders *d, double wait, Decoded **out, Err *err);
// Releases the pixels of an image that was taken.
void decoders_drop_pixels(Decoders *d, Decoded *image);
void decoders_free(Decoders *d, Decoded *image);
// Images per second that the threads would yield if they never had to wait for memory or names, estimated from those
// decoded so far. 0: none was decoded.
double decoders_yield(Decoders *d);
void decoders_close(Decoders *d); // stops the threads; all images that were taken must have been freed
