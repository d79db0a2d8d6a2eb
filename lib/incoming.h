// Incoming: an image of a call, checked and measured before it takes part in a batch.
#pragma once
#include "data/images/sample_range.h"
#include "lib/opened.h"

typedef struct Incoming {
  maskrcnn_image image; // of the newest header; its pitch is set
  int h, w;             // as the caller sees it: of an encoded image, decoded and rotated
  int orientation;      // of an encoded image: by which it is rotated; 1: it is not
  SampleRange range;    // of samples of 16 bits
  int canvas, by;       // where it goes, and the factor by which it is scaled down as it is copied
  ImageInfo size;       // on the canvas
  bool refused;
} Incoming;

// Whether n images can be read at all: the array is there and its elements have a size that this library knows.
bool incoming_readable(const maskrcnn_image *images, int n, Err *err);
// Image i of them. False, with what is wrong with it, if it cannot be used; its size is then 0 where it is not known.
bool incoming_read(Incoming *in, const Opened *o, const maskrcnn_image *images, int i, Err *err);
// The same for an image of any size, which does not go onto a canvas.
bool incoming_measure(Incoming *in, const Opened *o, const maskrcnn_image *images, int i, Err *err);
// Bytes of a pixel of that format; 0 for encoded ones.
int format_bytes(maskrcnn_format format);
