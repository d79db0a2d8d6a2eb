// A small model for tests of the library (include/maskrcnn.h), and pictures for it.
#pragma once
#include "include/maskrcnn.h"
#include "models/config.h"

// Weights of a random model with that norm, of CLASSES classes (test/harness/small_engine.h), made once: a path, valid
// until the next call. Trained for sides of 64 to 96 pixels.
const char *library_weights(NormKind norm);
// On the CPU, one thread, images of at most 256 × 256 pixels; library_weights(NORM_FROZEN_BN).
maskrcnn_options library_options(void);
// Reports a failure as one of the test, and returns NULL.
maskrcnn *library_open(const maskrcnn_options *options);

// Noise with rectangles, a function of its size and the seed. Rows are `gap` bytes apart. Free with library_free.
maskrcnn_image library_image(int width, int height, int gap, uint64_t seed);
void library_free(maskrcnn_image *image);

// All detections of an image, masks included, bit for bit.
bool library_same(const maskrcnn_result *a, const maskrcnn_result *b);
