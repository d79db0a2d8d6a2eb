// Masks of pixels from image files.
#pragma once
#include "data/coco/rle.h"
#include "data/images/samples.h"

// The pixels that are not zero, or with `alpha`, where the file has that, those that are not transparent, as a mask of
// h × w pixels in which the file's first pixel is at (x, y). What lies beyond is cut.
Rle mask_of_samples(const Samples *s, bool alpha, int x, int y, int h, int w);
// The same for bytes [rows, columns].
Rle mask_placed(const uint8_t *bytes, int rows, int columns, int x, int y, int h, int w);

// A value of each pixel, [h, w], malloc'ed: the sample or index of one channel, or of colours 0xRRGGBB; alpha is left
// out, and colours that are all grey are their grey. *colours: whether they are colours.
uint32_t *values_of_samples(const Samples *s, bool *colours);
// Replaces each value but 0 by the number, from 1 on, of the piece of pixels of this value that touch by sides or
// corners. class_of: malloc'ed, the value of each piece, [pieces + 1]. Returns how many pieces there are.
int values_split(uint32_t *v, int h, int w, uint32_t **class_of);

typedef struct ValueMask {
  uint32_t value;
  Rle mask;
} ValueMask;
// The pixels of each value but 0, ascending; malloc'ed, with their masks. Returns how many there are.
int masks_by_value(const uint32_t *v, int h, int w, ValueMask **masks);
