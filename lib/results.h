// Results as callers get them.
#pragma once
#include "engine/detect.h"
#include "include/maskrcnn.h"

// Bytes from the first row of an image or a bitmap to the end of its last: a pitch that exceeds them is a mistake.
#define MAX_SPAN_BYTES ((int64_t)1 << 40)

// Of n images, whose pointers are NULL until they are set. NULL when memory is out.
maskrcnn_results *results_new(int n, uint64_t tag);
// Of an image; unless it has one already, which stays.
void results_set(maskrcnn_results *r, int image, const maskrcnn_result *result);
// Says why an image of h × w pixels (0: not known) has no result.
void results_fail(maskrcnn_results *r, int image, maskrcnn_status status, int h, int w, const char *message);
// Counts an image that has its result.
void results_count(maskrcnn_results *r, int image);

// The detections of an image of h × w pixels, in one piece of memory.
const maskrcnn_result *results_of_detections(const Detection *found, int n, int h, int w, const Category *category);
// The n likeliest classes of an image of h × w pixels, of probabilities prob [classes], in one piece of memory. Where
// one is NaN it comes first, so that it is seen.
const maskrcnn_result *results_of_classes(const float *prob, int classes, int n, int h, int w,
                                          const Category *category);
