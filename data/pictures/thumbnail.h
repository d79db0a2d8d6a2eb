// Pictures made small for a page that holds everything itself: images of a data set with what is in them, as data:
// addresses.
#pragma once
#include "data/batches/dataset.h"

typedef struct Thumbnail {
  Image image;
  float sx, sy; // of its pixels per pixel of the data set's image
} Thumbnail;

// Reads image i and makes its longer side at most `side` pixels; each is the mean of what it covers. False as
// dataset_image.
bool thumbnail_open(Thumbnail *t, const Dataset *d, int i, int side, Err *err);
void thumbnail_close(Thumbnail *t);
// "data:image/jpeg;base64,…": of the image as it is, with the objects of image i, or with detections, each with its
// category's name and score. Small images are enlarged. Caller frees.
char *thumbnail_plain(const Thumbnail *t);
char *thumbnail_truth(const Thumbnail *t, const Dataset *d, int i);
char *thumbnail_found(const Thumbnail *t, const Dataset *d, const CocoResult *const *found, int n);
