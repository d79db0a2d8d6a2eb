// Converts instance masks for the device: run lengths become bits, cropped to the mask's extent.
#pragma once
#include <stdint.h>
#include "data/coco/rle.h"
#include "nn/batch.h"

// Number of 32-bit words in a bitmap of h rows of w bits.
int64_t bitmap_words(int h, int w);
// The crop window of a mask, with offset 0; a mask without foreground has no rows and no words.
Bitmap bitmap_window(const Rle *r);
// Writes the mask's bits inside its window to bits[bitmap_words(b->h, b->w)]; b->offset is not applied.
void bitmap_pack(const Rle *r, const Bitmap *b, uint32_t *bits);
