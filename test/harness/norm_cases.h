// The shapes that norms are tested on.
#pragma once
typedef struct NormCase {
  int n, h, w, c, groups; // groups = 0: BatchNorm
  int rows;               // valid
  double mean;            // of x, about which it spreads by 1
} NormCase;

static const NormCase norm_cases[] = {
    {1, 1, 1, 1, 1, 1, 0},       // a single value
    {2, 5, 3, 6, 2, 2, 0},       // padding channels
    {2, 9, 11, 16, 8, 2, 0},     // several blocks of pixels, the last one partial
    {2, 9, 11, 64, 32, 2, 0},    // groups smaller than a vector
    {1, 50, 60, 8, 4, 1, 0},     // several chunks
    {3, 4, 4, 5, 5, 2, 0},       // instance norm; a row past the count
    {3, 2, 2, 8, 1, 0, 0},       // nothing valid
    {2, 7, 9, 24, 3, 2, 0},      // a vector is no power of two
    {2, 6, 5, 264, 33, 2, 0},    // two tiles of channels, the second nearly empty
    {1, 3, 2, 2048, 32, 1, 0},   // as res5
    {40, 2, 3, 16, 2, 37, 0},    // more sets than a warp has lanes
    {2, 8, 8, 4, 2, 2, 1000},    // a mean far above the spread
    {2, 16, 16, 32, 8, 2, 1000}, // the same over more threads
    {2, 5, 3, 6, 0, 2, 0},       {1, 1, 1, 3, 0, 1, 0},    {4, 7, 7, 5, 0, 3, 0},
    {3, 2, 2, 8, 0, 0, 0},       {2, 40, 40, 4, 0, 2, 0},  {2, 40, 40, 64, 0, 2, 0},
    {2, 6, 5, 264, 0, 2, 0},     {2, 8, 8, 3, 0, 2, 1000}, {5, 8, 8, 24, 0, 5, 1000},
};

static const float eps = 0x1p-6f, momentum = 0.25f; // exact, so that both sides see the same
