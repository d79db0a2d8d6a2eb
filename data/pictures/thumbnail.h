// Thumbnails: images of a data set with their objects or detections, as small JPEG files.
#pragma once
#include "data/batches/dataset.h"

typedef struct Jpeg { // a JPEG file in memory
  uint8_t *bytes;     // NULL: there is none
  size_t size;
} Jpeg;

typedef struct Thumbnail {
  Image image;
  float sx, sy; // thumbnail pixels per pixel of the data set's image
} Thumbnail;

// Reads image i and scales its longer side down to at most `side` pixels; each pixel is the mean of what it covers.
// False as in dataset_image.
bool thumbnail_open(Thumbnail *t, const Dataset *d, int i, int side, Err *err);
void thumbnail_close(Thumbnail *t);
// A JPEG of the image as it is, or with image i's objects, or with detections, each with its category's name and score.
// Small images are enlarged. Caller frees the bytes.
Jpeg thumbnail_plain(const Thumbnail *t);
Jpeg thumbnail_truth(const Thumbnail *t, const Dataset *d, int i);
Jpeg thumbnail_detections(const Thumbnail *t, const Dataset *d, const CocoResult *const *found, int n);
