// Tensor: dense NHWC with a channel pitch and, for RoIs, the number of valid rows in device memory.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// PACKED: of a filter bank alone, reals in the order of filter_pack (nn/ops.h), whatever its shape says.
typedef enum DType { F32, F64, BF16, F16, DTYPES, PACKED = DTYPES } DType;

static inline size_t dtype_size(DType t) { return t == F64 ? 8 : t == F32 ? 4 : 2; }

// Lanes c..ldc-1 of every pixel are zero and stay zero. A fully connected activation has h = w = 1.
// A filter bank is a Tensor too: n = output channels, h × w = taps, c = input channels (KRSC).
typedef struct Tensor {
  void *data;
  DType dtype;
  int n, h, w, c;   // logical shape
  int ldc;          // channel pitch in elements
  const int *count; // device: rows n that hold data, at the front; NULL = all. Rows past it hold no promises.
} Tensor;

// The pitch is rounded to 8 elements whatever the dtype (16 bytes in 16-bit types), so that an fp32 master and its
// 16-bit shadow have the same offsets.
static inline int channel_pitch(int c) { return (c + 7) / 8 * 8; }

static inline Tensor tensor(DType t, int n, int h, int w, int c) {
  return (Tensor){.dtype = t, .n = n, .h = h, .w = w, .c = c, .ldc = channel_pitch(c)};
}
// Rows without padding: boxes [n, 4], scores [n, 1], losses.
static inline Tensor tensor_packed(DType t, int n, int c) {
  return (Tensor){.dtype = t, .n = n, .h = 1, .w = 1, .c = c, .ldc = c};
}
// Channels first … first + c - 1 of t, where they lie: `first` is a multiple of 8, and so is c unless they are the
// last. For ops that say they take one: tensor_bytes counts what lies between, and past the last pixel others' memory.
static inline Tensor tensor_slice(const Tensor *t, int first, int c) {
  Tensor s = *t;
  s.c = c;
  if (t->data) s.data = (char *)t->data + (size_t)first * dtype_size(t->dtype);
  return s;
}
// Whether a tensor of the same shape but for its channels lies in the channels of `whole`.
static inline bool tensor_has_channels(const Tensor *whole, const Tensor *t) {
  const uintptr_t begin = (uintptr_t)whole->data, at = (uintptr_t)t->data;
  return begin <= at && at < begin + (size_t)whole->ldc * dtype_size(whole->dtype);
}
static inline bool tensor_is_slice(const Tensor *t) { return t->ldc > channel_pitch(t->c); }
static inline size_t tensor_pixels(const Tensor *t) { return (size_t)t->n * t->h * t->w; }
static inline size_t tensor_elements(const Tensor *t) { return tensor_pixels(t) * t->ldc; }
static inline size_t tensor_bytes(const Tensor *t) { return tensor_elements(t) * dtype_size(t->dtype); }
