// Convolutions of 3 × 3 taps and stride 1 by Winograd's minimal filtering F(2 × 2, 3 × 3): Lavin, Gray, "Fast
// algorithms for convolutional neural networks", 2016. 16 multiplications give four outputs, where the
// definition takes 36.
#pragma once
#include "cpu/reference.h"

// Whether it computes this convolution. Channels are whole vectors of the widest kind, so that the answer, and with it
// the bits, is the same on every processor.
bool OP(winograd_fits)(const Conv *conv, const Tensor *w);

// Elements of w [n, 3, 3, c] transformed, and the transformation.
size_t OP(winograd_elements)(const Tensor *w);
void OP(winograd_pack)(const Tensor *w, real *packed);

// As conv_forward of nn/ops.h, of w's shape, with the filter as winograd_pack wrote it at w->data. Before the Dest, an
// element differs from its value by (c + 8) · u · S at most, to first order: u = 2^-24 (2^-53 in double), and S is the
// same computation of absolute values, of data and of transforms, Σ |A|ᵀ((|G||w||G|ᵀ) ⊙ (|B|ᵀ|x||B|))|A|. An element of
// S passes one rounding of the filter's transform, two of the input's, c + 1 of the sum (one less where multiplication
// and addition are fused), and four of the output's.
void OP(winograd_forward)(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y);
