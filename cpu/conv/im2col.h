// Blocks of the im2col matrix, written for the GEMM to multiply.
#pragma once
#include "cpu/reference.h"
#include "exact/im2col.h"

enum { IM2COL_SLACK = 8 }; // elements past the end of each row of dst that im2col may overwrite

// Rows row … row + rows - 1, columns k0 … k0 + k - 1 of the im2col matrix of x [n, h, w, c], k ≤ taps · c: padding
// channels are not columns. dst has pitch ≥ k + IM2COL_SLACK, or rows in ascending order overwrite each other's slack.
void OP(im2col)(const Tensor *x, const Im2col *im2col, size_t row, int rows, int k0, int k, real *dst, int pitch);
