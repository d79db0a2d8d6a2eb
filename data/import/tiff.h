// TIFF, by libtiff where the build found it.
#pragma once
#include "base/error.h"
#include "data/images/samples.h"

extern const bool tiff_is_built;
bool tiff_is(const uint8_t *bytes, size_t size); // whether it begins as a TIFF does
// The first image of a file: 1, 8, 16 or 32 bits, unsigned, grey, palette or RGB, any layout and compression that
// libtiff reads. False with a message that begins with `name`; where this build has no libtiff, it names that.
bool tiff_decode(Samples *s, const uint8_t *bytes, size_t size, const char *name, Err *err);
bool tiff_measure(const uint8_t *bytes, size_t size, const char *name, int *h, int *w, Err *err);
