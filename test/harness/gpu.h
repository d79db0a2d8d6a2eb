// Kernels against the CPU reference: the same numbers on both devices, as twins. They are for ops whose results may
// differ by rounding; where bits are equal, test/harness/op_fixture.h does with one tensor for both.
#pragma once
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/test.h"

// The first GPU, opened once, with a workspace of 1 GB; NULL where there is none or the build has no CUDA, and the
// running test is marked as skipped: `Device *gpu = gpu_device(); if (!gpu) return;`.
Device *gpu_device(void);
// The CPU reference, opened once, with workspace.
Device *cpu_device(void);

// One tensor on both devices: F32 on the CPU, `dtype` on the GPU, equal there as far as dtype holds: the CPU's values
// are rounded to dtype. Padding lanes are zero. Both end in guards.
enum { TWIN_GUARD = 256 }; // bytes behind the GPU's tensor
typedef struct Twin {
  Tensor cpu, gpu;
  uint64_t before; // hash of the GPU's bytes when it was made
} Twin;
Twin twin_random(DType dtype, int n, int h, int w, int c, double scale, uint64_t seed); // normal · scale
Twin twin_poisoned(DType dtype, int n, int h, int w, int c);                            // NaN: what an op has to write
Twin twin_poisoned_like(const Twin *t); // the same of t's shape, dtype and count
Twin twin_values(DType dtype, int n, int h, int w, int c, const float *values); // [n, h, w, c] without padding
Twin twin_packed(int rows, int c, const float *values);                         // F32, ldc = c; values NULL: poisoned
void twin_rows(Twin *t, int rows);                                              // gives both a count of valid rows
void twin_free(Twin *t);

// Guards are whole; for an input, also that the bytes are as before.
void twin_check_guards(const Twin *t, bool unchanged);
// |gpu - cpu| ≤ bound for each element of the valid rows, padding lanes zero. bound: as t->cpu, NULL: factor alone.
// The tolerance of an element is factor · (eps(dtype of t) · max(bound, |cpu|) + tiny), tiny being half the step of
// subnormal numbers. True when all held.
bool twin_check(const Twin *t, const float *bound, double factor);

static inline const Tensor *twin_side(const Twin *t, bool gpu) { return gpu ? &t->gpu : &t->cpu; }
static inline void *twin_data(const Twin *t, bool gpu) { return twin_side(t, gpu)->data; }
// An op as either device runs it: everything but the destination is in `context`, of whose twins it takes that side.
typedef void TwinOp(Device *dev, bool gpu, void *context, const Dest *d);
// Runs the op into destinations of that shape, dtype and count through every combination of accumulate, relu, mask and
// addend, otherwise poisoned; compares as twin_check does, `bound` being the op's own (what the Dest adds is added);
// and runs it twice, for the same bits.
void twin_check_dests(TwinOp *op, void *context, const Twin *shape, const float *bound, double factor, uint64_t seed);

// The same for plain arrays (indices, counts, targets): n elements of `size` bytes on both devices.
typedef struct TwinArray {
  void *cpu, *gpu;
  size_t n, size;
} TwinArray;
static inline void *twin_array_data(const TwinArray *a, bool gpu) { return gpu ? a->gpu : a->cpu; }
TwinArray twin_array(size_t n, size_t size, const void *values); // values NULL: filled with 0xFF
void twin_array_free(TwinArray *a);
void twin_array_check_equal(const TwinArray *a, size_t n); // the first n elements, bit for bit
// Element i of a tensor in memory of the host, of any type but F64.
float float_at(const Tensor *t, size_t i);
void float_set(const Tensor *t, size_t i, float value); // rounded to the type
uint64_t hash_bytes(const void *p, size_t n);           // whether bytes are as they were
// Downloads; caller frees.
void *gpu_fetch(const void *gpu, size_t bytes);
float *gpu_fetch_floats(const Tensor *gpu); // all elements, padding lanes included
