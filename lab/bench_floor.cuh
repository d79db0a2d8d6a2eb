// The least time that a chip can take for a convolution, by its manufacturer's data.
#pragma once
#include <math.h>
#include "lab/bench_case.cuh"

static int attribute(const Device *dev, cudaDeviceAttr which) {
  int value;
  CUDA_CHECK(cudaDeviceGetAttribute(&value, which, dev->index));
  return value;
}

// Dense FLOP of one multiprocessor per clock, from NVIDIA's white papers on the A100 and the H100; NaN for other GPUs.
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

// Microseconds. A lower bound: all arithmetic at the highest clock, or every operand read or written once at the
// memory's peak bandwidth. With a stride greater than the filter, some pixels of x are not read.
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
