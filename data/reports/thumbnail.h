// Pictures made small for a page that holds everything itself: shrunk, and as data: addresses.
#pragma once
#include "data/formats/rle.h"
#include "data/images/image.h"

// Makes the longer side at most `side` pixels; each is the mean of what it covers.
void thumbnail_shrink(Image *im, int side);
// A mask at that image's size: of the pixels that are covered by half. Caller frees.
Rle thumbnail_mask(const Rle *mask, int h, int w);
// "data:image/jpeg;base64,…" of the image, of libjpeg's quality 75. Caller frees.
char *thumbnail_uri(const Image *im);
