// Photographs made smaller by a whole factor, before they cross to a device that would look at few of their pixels.
#pragma once
#include <stdint.h>

// By how much an image may be divided so that neither side becomes shorter than `least`; at least 1.
int shrink_factor(int h, int w, int least);
// Means of by × by pixels of rgb [h, w, 3], rounded half up, to `to` [h / by, w / by, 3]; what is left at the right and
// at the bottom is dropped. `to` may be rgb.
void shrink(const uint8_t *rgb, int h, int w, int by, uint8_t *to);
// The same of rows that are `pitch` bytes apart; `to` may not be rgb.
void shrink_rows(const uint8_t *rgb, int64_t pitch, int h, int w, int by, uint8_t *to);
