// Compares kernels with the CPU reference: pairs of tensors or arrays with the same numbers on both devices. For ops
// whose results may differ by rounding; for equal bits, test/harness/op_fixture.h needs only one tensor.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/test.h"

// The first GPU, opened once, with a workspace of 1 GB; NULL if there is none or the build has no CUDA. The running
// test is then marked as skipped: `Device *gpu = gpu_device(); if (!gpu) return;`.
Device *gpu_device(void);
// The CPU reference, opened once, with workspace.
Device *cpu_device(void);

// A tensor on both devices: F32 on the CPU, `dtype` on the GPU. Both have the same values, rounded to dtype. Padding
// lanes are zero. Guard bytes follow both.
enum { PAIR_GUARD = 256 }; // guard bytes after the GPU's tensor
typedef struct TensorPair {
  Tensor cpu, gpu;
  uint64_t before; // hash of the GPU's bytes when it was made
} TensorPair;
TensorPair pair_random(DType dtype, int n, int h, int w, int c, double scale, uint64_t seed); // normal · scale
TensorPair pair_poisoned(DType dtype, int n, int h, int w, int c); // filled with NaN, which an op has to overwrite
TensorPair pair_poisoned_like(const TensorPair *t);                // the same with t's shape, dtype and count
TensorPair pair_values(DType dtype, int n, int h, int w, int c, const float *values); // [n, h, w, c] without padding
TensorPair pair_packed(int rows, int c, const float *values); // F32, ldc = c; values NULL: poisoned
void pair_rows(TensorPair *t, int rows);                      // gives both tensors a count of valid rows
void pair_free(TensorPair *t);

// Checks that guards are intact and, if `unchanged`, as for an input, that the bytes are unchanged.
void pair_check_guards(const TensorPair *t, bool unchanged);
// Checks that padding lanes are zero and |gpu - cpu| ≤ factor · (eps(dtype of t) · max(bound, |cpu|) + tiny) for each
// element of the valid rows; tiny is half the step of subnormal numbers. bound: like t->cpu; NULL: 0. True if so.
bool pair_check(const TensorPair *t, const float *bound, double factor);

static inline const Tensor *pair_side(const TensorPair *t, bool gpu) { return gpu ? &t->gpu : &t->cpu; }
static inline void *pair_data(const TensorPair *t, bool gpu) { return pair_side(t, gpu)->data; }
// Runs an op on a device; everything except the destination is in `context`, of whose pairs it uses that device's side.
typedef void PairOp(Device *dev, bool gpu, void *context, const Dest *d);
// Runs the op into destinations of that shape, dtype and count through every combination of accumulate, relu, mask and
// addend, otherwise poisoned; compares as pair_check does, `bound` being the op's own (what the Dest adds is added);
// and runs it twice, for the same bits.
void pair_check_dests(PairOp *op, void *context, const TensorPair *shape, const float *bound, double factor,
                      uint64_t seed);

// The same for plain arrays (indices, counts, targets): n elements of `size` bytes on both devices.
typedef struct ArrayPair {
  void *cpu, *gpu;
  size_t n, size;
} ArrayPair;
static inline void *array_pair_data(const ArrayPair *a, bool gpu) { return gpu ? a->gpu : a->cpu; }
ArrayPair array_pair(size_t n, size_t size, const void *values); // values NULL: filled with 0xFF
void array_pair_free(ArrayPair *a);
void array_pair_check_equal(const ArrayPair *a, size_t n); // compares the first n elements bit for bit
// Element i of a tensor in memory of the host, of any type but F64.
float float_at(const Tensor *t, size_t i);
void float_set(const Tensor *t, size_t i, float value); // rounded to the type
uint64_t hash_bytes(const void *p, size_t n);           // whether bytes are as they were
// Downloads; caller frees.
void *gpu_fetch(const void *gpu, size_t bytes);
float *gpu_fetch_floats(const Tensor *gpu); // all elements, padding lanes included
