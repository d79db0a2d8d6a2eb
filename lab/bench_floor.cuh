// The least time that a chip can take for a convolution, by what its maker says of it.
#pragma once
#include <math.h>
#include "lab/bench_case.cuh"

static int attribute(const Device *dev, cudaDeviceAttr which) {
  int value;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, dev->index));
  return value;
}

// FLOP of one multiprocessor in a clock, dense, by NVIDIA's white papers of the A100 and the H100; NaN for other GPUs.
static double flop_per_clock(const Device *dev, Precision precision) {
  static const struct {
    int major, minor;
    double tensor16, tf32, fp32;
  } known[] = {{8, 0, 2048, 1024, 128}, {9, 0, 4096, 2048, 256}};
  int major = attribute(dev, cudaDevAttrComputeCapabilityMajor),
      minor = attribute(dev, cudaDevAttrComputeCapabilityMinor);
  for (const auto &gpu : known)
    if (gpu.major == major && gpu.minor == minor)
      return precision == BENCH_FP32 ? gpu.fp32 : precision == BENCH_TF32 ? gpu.tf32 : gpu.tensor16;
  return NAN;
}

static double flop_of(const BenchCase *c) {
  const ConvCase *l = c->layer;
  return 2.0 * tensor_pixels(&c->y) * l->cout * l->k * l->k * l->cin;
}

// Microseconds. No kernel can be faster: all arithmetic at the highest clock, or every operand over the memory's pins
// once. Of x, a stride past the filter leaves pixels unread.
static double floor_us(const Device *dev, Precision precision, const BenchCase *c, ConvOp op) {
  double flops = flop_per_clock(dev, precision) * attribute(dev, cudaDevAttrMultiProcessorCount) * 1e3 *
                 attribute(dev, cudaDevAttrClockRate);
  double bandwidth =
      2e3 * attribute(dev, cudaDevAttrMemoryClockRate) * attribute(dev, cudaDevAttrGlobalMemoryBusWidth) / 8;
  double met = op == CONV_DGRAD ? 1 : fmin(1, (double)c->layer->k / c->layer->stride);
  const Tensor *others[] = {&c->y, op == CONV_WGRAD ? &c->dw : &c->w, &c->addend};
  double bytes = met * met * (double)tensor_bytes(&c->x), compute = flop_of(c) / flops;
  for (const Tensor *t : others) bytes += t->data ? (double)tensor_bytes(t) : 0;
  return isnan(compute) ? NAN : 1e6 * fmax(compute, bytes / bandwidth);
}
