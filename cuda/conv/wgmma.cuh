// What the files of rung 05 share: who does what in a block, and the way of a wgmma's result through a Dest.
#pragma once
#include "cuda/conv/hopper.cuh"

enum {
  CONSUMERS = 2, // warpgroups that multiply; one more fetches
  WGMMA_THREADS = (1 + CONSUMERS) * WARPGROUP,
  FETCH_REGISTERS = 40, // of a thread; three warpgroups share 168 each
  MULTIPLY_REGISTERS = 232,
  WGMMA_ROWS = 64,  // of one wgmma
  WGMMA_TERMS = 16, // that it adds up
  BOX_ROWS = 16,    // a warp's share of them …
  BOX_COLUMNS = 64, // … goes out in pieces of so many columns: lines of memory
  BOX_BYTES = BOX_ROWS * SWIZZLE_ROW,
};

static inline int multiprocessors(const Device *dev) {
  int count;
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, dev->index));
  return count;
}

// ---- where rows go ----------------------------------------------------------------------------------------------------

// Memory is read and written by the line: eight lanes have 16 bytes each of a row, and a warp has four rows at once. So a
// lane has to do with rows lane / 8 + 4k of its warp's sixteen. Their pixels, counted from the tensor's first:
struct BoxRows {
  int pixel[4];  // of t; -1: there is no such row
  int addend[4]; // of the addend; of the first of 2 × 2 where it is twice as large
};
__device__ __forceinline__ int box_row(int k) { return threadIdx.x % 32 / 8 + 4 * k; }

enum AddendSize { ADDEND_SAME, ADDEND_HALF, ADDEND_DOUBLE };
__device__ __forceinline__ AddendSize addend_size(const DestArgs &d) {
  const Tensor &a = d.addend, &t = d.t;
  return a.h == t.h && a.w == t.w ? ADDEND_SAME : a.h < t.h || a.w < t.w ? ADDEND_HALF : ADDEND_DOUBLE;
}

// The k-th is pixel (n, y, x), if there is one.
__device__ __forceinline__ void place_row(BoxRows &r, int k, const DestArgs &d, bool any, int n, int y, int x) {
  r.pixel[k] = any ? (n * d.t.h + y) * d.t.w + x : -1;
  AddendSize size = addend_size(d);
  if (size == ADDEND_HALF) y /= 2, x /= 2;
  if (size == ADDEND_DOUBLE) y *= 2, x *= 2;
  r.addend[k] = any ? (n * d.addend.h + y) * d.addend.w + x : -1;
}

template <class T> __device__ __forceinline__ const T *element(const Tensor &t, int pixel, int c) {
  return (const T *)t.data + (size_t)pixel * t.ldc + c;
}

// Brings to L2 what a tile's rows are going to be combined with, while its products are still to be computed.
template <class T, int COLUMNS>
__device__ __forceinline__ void prefetch_rows(const DestArgs &d, const BoxRows &r, int c0) {
  int c = c0 + threadIdx.x % 8 * BOX_COLUMNS;
  if (threadIdx.x % 8 >= (COLUMNS + BOX_COLUMNS - 1) / BOX_COLUMNS || c >= d.t.ldc) return;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (r.pixel[k] < 0) continue;
    if (d.addend.data) prefetch_l2(element<T>(d.addend, r.addend[k], c));
    if (d.mask.data) prefetch_l2(element<T>(d.mask, r.pixel[k], c));
    if (d.accumulate) prefetch_l2(element<T>(d.t, r.pixel[k], c));
  }
}

// The bias of a tile's columns, zeros where there is none, by a warpgroup.
template <int COLUMNS> __device__ __forceinline__ void load_bias(const DestArgs &d, int column0, float *bias) {
#pragma unroll
  for (int i = threadIdx.x % WARPGROUP; i < COLUMNS; i += WARPGROUP)
    bias[i] = d.bias && column0 + i < d.t.c ? d.bias[column0 + i] : 0.f;
}

// ---- from the tensor cores' order to memory's and back ------------------------------------------------------------------

template <class T> __device__ __forceinline__ uint32_t pack(float a, float b) {
  T pair[2] = {from_float<T>(a), from_float<T>(b)};
  uint32_t bits;
  memcpy(&bits, pair, sizeof bits);
  return bits;
}
template <class T> __device__ __forceinline__ float2 unpack(uint32_t bits) {
  T pair[2];
  memcpy(pair, &bits, sizeof bits);
  return make_float2(to_float(pair[0]), to_float(pair[1]));
}

// A warp's sixteen rows of up to 64 columns in 16 bits, in shared memory of its own, swizzled: all pieces of a column, and
// all of a row, lie in different banks. A thread has v[4j …] = (row r, r, r + 8, r + 8) of columns 8j + 2 · (lane % 4) and
// the next, r = lane / 4, as wgmma leaves it, until stmatrix has put it there; ldmatrix is the way back.
template <class T, int COLUMNS> struct Box {
  uint32_t memory;

  // For the q-th sixteen columns: of which row of which 8 × 8 matrix a lane says where it is.
  __device__ __forceinline__ uint32_t matrix_row(int q) const {
    int lane = threadIdx.x % 32, row = lane % 16, piece = 2 * q + lane / 16;
    return memory + row * SWIZZLE_ROW + ((piece ^ row % 8) * 16);
  }
  __device__ __forceinline__ uint32_t piece(int k) const {
    int row = box_row(k);
    return memory + row * SWIZZLE_ROW + ((threadIdx.x % 8 ^ row % 8) * 16);
  }

  // v = f(v, element), elements being those of `from` at the pixels given, zeros where there is none.
  template <class F>
  __device__ __forceinline__ void combine(float *v, const Tensor &from, const int (&pixel)[4], int c0, F f) const {
    int c = c0 + threadIdx.x % 8 * 8;
    uint4 raw[4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (pixel[k] >= 0 && c < c0 + COLUMNS && c < from.ldc) raw[k] = *(const uint4 *)element<T>(from, pixel[k], c);
#pragma unroll
    for (int k = 0; k < 4; k++) store_shared16(piece(k), raw[k]);
    __syncwarp();
#pragma unroll
    for (int q = 0; q < COLUMNS / 16; q++) {
      uint32_t m[4];
      load_matrices(m, matrix_row(q));
#pragma unroll
      for (int i = 0; i < 4; i++) { // rows r and r + 8 of eight columns, then of the next eight
        float2 pair = unpack<T>(m[i]);
        f(v[8 * q + 2 * i], pair.x), f(v[8 * q + 2 * i + 1], pair.y);
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void store(const float *v, const Tensor &to, const int (&pixel)[4], int c0) const {
    int c = c0 + threadIdx.x % 8 * 8;
#pragma unroll
    for (int q = 0; q < COLUMNS / 16; q++) {
      uint32_t m[4];
#pragma unroll
      for (int i = 0; i < 4; i++) m[i] = pack<T>(v[8 * q + 2 * i], v[8 * q + 2 * i + 1]);
      store_matrices(matrix_row(q), m);
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++) {
      uint4 raw = load_shared16(piece(k));
      if (pixel[k] >= 0 && c < c0 + COLUMNS && c < to.ldc) *(uint4 *)element<T>(to, pixel[k], c) = raw;
    }
    __syncwarp();
  }
};

// t = keep · f(v + bias + addend + (accumulate ? t : 0)) for a warp's sixteen rows of COLUMNS columns from c0 on:
// dest_store8 of common.cuh for values that stand differently.
template <class T, int COLUMNS>
__device__ __forceinline__ void store_box(const DestArgs &d, float *v, const BoxRows &r, int c0, const float *bias,
                                          uint32_t memory) {
  Box<T, COLUMNS> box = {memory};
  auto add = [](float &v, float other) { v += other; };
  int pair = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; j++) {
    float2 b = *(const float2 *)(bias + 8 * j + pair);
    v[4 * j] += b.x, v[4 * j + 1] += b.y, v[4 * j + 2] += b.x, v[4 * j + 3] += b.y;
  }
  if (d.addend.data && addend_size(d) != ADDEND_DOUBLE) box.combine(v, d.addend, r.addend, c0, add);
  if (d.addend.data && addend_size(d) == ADDEND_DOUBLE) {
    const Tensor &a = d.addend;
#pragma unroll 1
    for (int i = 0; i < 4; i++) {
      int pixel[4];
#pragma unroll
      for (int k = 0; k < 4; k++) {
        int y = r.addend[k] / a.w % a.h, x = r.addend[k] % a.w;
        bool any = r.addend[k] >= 0 && y + i / 2 < a.h && x + i % 2 < a.w;
        pixel[k] = any ? r.addend[k] + i / 2 * a.w + i % 2 : -1;
      }
      box.combine(v, a, pixel, c0, add);
    }
  }
  if (d.accumulate) box.combine(v, d.t, r.pixel, c0, add);
  if (d.relu)
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) v[i] = v[i] < 0.f ? 0.f : v[i]; // NaN stays
  if (d.mask.data) box.combine(v, d.mask, r.pixel, c0, [](float &v, float mask) { v = mask > 0.f ? v : 0.f; });
  if (c0 + COLUMNS > d.t.c)
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) v[i] = c0 + i / 4 * 8 + pair + i % 2 < d.t.c ? v[i] : 0.f;
  box.store(v, d.t, r.pixel, c0);
}

// The same, box by box, for a warp's share of a wgmma's result.
template <class T, int COLUMNS>
__device__ __forceinline__ void store_rows(const DestArgs &d, float (&v)[COLUMNS / 2], const BoxRows &r, int c0,
                                           const float *bias, uint32_t memory) {
  constexpr int REST = COLUMNS % BOX_COLUMNS;
#pragma unroll
  for (int c = 0; c + BOX_COLUMNS <= COLUMNS; c += BOX_COLUMNS)
    if (c0 + c < d.t.ldc) store_box<T, BOX_COLUMNS>(d, v + c / 2, r, c0 + c, bias + c, memory);
  if constexpr (REST > 0)
    if (c0 + COLUMNS - REST < d.t.ldc)
      store_box<T, REST>(d, v + (COLUMNS - REST) / 2, r, c0 + COLUMNS - REST, bias + COLUMNS - REST, memory);
}

// ---- rung 05's other file ---------------------------------------------------------------------------------------------

bool stem_fits(const Conv *conv, int pairs, const Tensor *x, const Tensor *w);
void stem_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y);
