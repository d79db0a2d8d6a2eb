// The shapes that average pooling is tested on, for the reference against its definition and for the kernels against
// it.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"

typedef struct AvgPoolCase {
  int n, h, w, c, rows; // rows: valid
  AvgPool pool;         // size, stride, pad; padding counts
  int out_h, out_w; // by torch's nn.AvgPool2d with ceil_mode where its windows do not fit exactly, AdaptiveAvgPool2d
} AvgPoolCase;

static const AvgPoolCase avg_pool_cases[] = {
    {1, 1, 1, 1, 1, {{1, 1, 0}, true}, 1, 1},         // nothing to choose from
    {2, 7, 5, 5, 2, {{3, 2, 1}, true}, 4, 3},         // odd sizes, padding channels
    {2, 7, 5, 5, 2, {{3, 2, 1}, false}, 4, 3},        // divisors of their own at the edges
    {1, 8, 7, 9, 1, {{3, 2, 1}, true}, 5, 4},         // rounded up: the last window reaches past the padding
    {1, 8, 7, 9, 1, {{3, 2, 1}, false}, 5, 4},        // …
    {2, 6, 9, 16, 2, {{2, 2, 0}, true}, 3, 5},        // … without padding
    {2, 6, 8, 16, 2, {{2, 2, 0}, true}, 3, 4},        // the usual halving
    {1, 9, 4, 3, 1, {{2, 3, 0}, true}, 3, 1},         // pixels in no window
    {1, 3, 3, 2, 1, {{2, 2, 2}, false}, 3, 3},        // windows entirely in the padding
    {1, 3, 3, 2, 1, {{2, 2, 2}, true}, 3, 3},         // …
    {2, 4, 4, 9, 2, {{4, 1, 2}, false}, 5, 5},        // large overlap
    {3, 5, 5, 4, 1, {{3, 2, 1}, true}, 3, 3},         // rows past the count
    {2, 3, 3, 8, 0, {{3, 2, 1}, true}, 2, 2},         // nothing valid
    {2, 7, 7, 24, 2, {{7, 1, 0}, true}, 1, 1},        // global, as a window
    {3, 7, 5, 40, 2, {{0, 0, 0}, true}, 1, 1},        // global
    {1, 3, 19, 8, 1, {{0, 0, 0}, true}, 1, 1},        // … of long rows
    {1, 1, 65535, 1, 1, {{0, 0, 0}, true}, 1, 65534}, // as long as bins are told
    {2, 13, 13, 16, 2, {{0, 0, 0}, true}, 6, 6},      // AlexNet's at 256 pixels: bins overlap
    {1, 7, 7, 8, 1, {{0, 0, 0}, true}, 7, 7},         // VGG's: every pixel its own bin
    {1, 5, 3, 3, 1, {{0, 0, 0}, false}, 7, 6},        // more bins than pixels
    {2, 10, 4, 5, 1, {{0, 0, 0}, true}, 3, 9},        // both at once
    {2, 61, 47, 72, 2, {{3, 2, 1}, false}, 31, 24},   // many threadblocks, the last one partial
    {1, 2, 2, 1100, 1, {{3, 2, 1}, true}, 1, 1},      // a pixel wider than a run of the reference
    {1, 130, 2, 1, 1, {{3, 1, 1}, true}, 130, 2},     // many pixels a run
};
