// The shapes that concatenation and slice are tested on, the reference by itself and the kernels against it.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"

typedef struct ConcatCase {
  int n, h, w, rows, parts; // rows: valid
  int c[MAX_CONCAT];
} ConcatCase;

static const ConcatCase concat_cases[] = {
    {2, 3, 5, 2, 1, {5}},                 // one part is a copy
    {2, 3, 5, 1, 2, {8, 16}},             // whole vectors; a row past the count
    {1, 4, 3, 1, 3, {3, 7, 1}},           // parts that begin within a vector, two of them in one
    {3, 1, 1, 3, 2, {16, 5}},             // padding behind the last
    {1, 2, 2, 1, 3, {5, 8, 8}},           // padding between, which is no channel
    {1, 1, 2, 1, 2, {700, 900}},          // a pixel wider than a run of the reference
    {2, 28, 29, 2, 4, {64, 128, 32, 32}}, // inception 3a's
    {2, 2, 2, 2, 8, {1, 1, 1, 1, 1, 1, 1, 1}},
};
