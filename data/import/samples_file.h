// Reads the samples of image files as they are stored.
#pragma once
#include "base/error.h"
#include "data/images/samples.h"

// Of a PNG in memory; `name` is for messages.
bool samples_decode(Samples *s, const uint8_t *bytes, size_t size, const char *name, Err *err);
// Of a PNG or TIFF file.
bool samples_load(Samples *s, const char *path, Err *err);
void samples_free(Samples *s);
