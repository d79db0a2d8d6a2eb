// A small model for tests of the library (include/maskrcnn.h), and pictures for it.
#pragma once
#include "include/maskrcnn.h"
#include "models/model.h"

// Weights of a random model with that norm, of CLASSES classes (test/harness/small_engine.h), made once: a path, valid
// until the next call. Trained for sides of 64 to 96 pixels.
const char *library_weights(NormType norm);
// Weights of a random classifier (ResNet-18, 8 channels at first) of images of LIBRARY_SIDE pixels a side, made once,
// as above. Its classes are "kind 0" … in the order of their labels, with category ids from 0 on.
enum { LIBRARY_SIDE = 40, LIBRARY_CLASSES = 7 };
const char *library_classifier(void);
// On the CPU, one thread, images of at most 256 × 256 pixels; library_weights(NORM_FROZEN_BN).
maskrcnn_options library_options(void);
// Why the last call of this thread has failed: for every call of a test.
extern _Thread_local maskrcnn_error why;
// Reports a failure as one of the test, and returns NULL.
maskrcnn *library_open(const maskrcnn_options *options);
// Whether there is a GPU for a handle of its own; where there is none, the running test is marked as skipped.
bool library_gpu(void);

// Noise with rectangles, a function of its size and the seed. Rows are `gap` bytes apart. Free with library_free.
maskrcnn_image library_image(int width, int height, int gap, uint64_t seed);
void library_free(maskrcnn_image *image);

// All that there is of an image, masks included, bit for bit.
bool library_same(const maskrcnn_result *a, const maskrcnn_result *b);
