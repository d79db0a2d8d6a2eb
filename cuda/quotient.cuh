// Quotients by what many numbers are divided by, for both ways of preprocessing.
#pragma once
#include "cuda/common.cuh"

// v / by, rounded as the quotient is: Markstein, "Computation of elementary functions on the IBM RISC System/6000
// processor", 1990. The inverse is rounded to nearest; the first remainder makes the quotient faithful, the second
// correct. For finite numbers far from the ends of float's range, such as bytes, means and deviations are: a division
// would spend most of its instructions on the others.
struct Divisor {
  float by, inverse;
};
static __device__ __forceinline__ Divisor divisor(float by) { return {by, 1 / by}; }
static __device__ __forceinline__ float quotient(float v, const Divisor &d) {
  float q = v * d.inverse;
  q = fmaf(fmaf(-q, d.by, v), d.inverse, q);
  return fmaf(fmaf(-q, d.by, v), d.inverse, q);
}
