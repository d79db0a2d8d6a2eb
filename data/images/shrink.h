// Scales images down by an integer factor before they are copied to a device that would read few of their pixels.
#pragma once
#include <stdint.h>

// The largest factor that leaves neither side shorter than `least`; at least 1.
int shrink_factor(int h, int w, int least);
// Means of by × by pixels of rgb [h, w, 3], rounded half up, to `to` [h / by, w / by, 3]; remaining columns and rows at
// the right and bottom are dropped. `to` may be rgb.
void shrink(const uint8_t *rgb, int h, int w, int by, uint8_t *to);
// The same for rows that are `pitch` bytes apart; `to` may not be rgb.
void shrink_rows(const uint8_t *rgb, int64_t pitch, int h, int w, int by, uint8_t *to);
