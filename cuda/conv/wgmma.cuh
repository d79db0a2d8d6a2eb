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
};

static inline int multiprocessors(const Device *dev) {
  int count;
  CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, dev->index));
  return count;
}

// Of a warpgroup's 64 rows, the first of this thread; it has the one eight below, too.
__device__ __forceinline__ int wgmma_row() { return threadIdx.x % WARPGROUP / 32 * 16 + threadIdx.x % 32 / 4; }

// A thread has two columns of every eight of its rows; memory wants eight of one row. So four lanes that hold a pair of
// each of four groups exchange them: afterwards each lane holds the whole group of its own number, and the other way
// round. Rounds exchange with the neighbour at distance 1, then 2.
__device__ __forceinline__ void transpose_quad(uint32_t (&v)[4]) {
#pragma unroll
  for (int d = 1; d <= 2; d *= 2)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & d) continue;
      bool high = threadIdx.x & d;
      uint32_t other = __shfl_xor_sync(~0u, high ? v[i] : v[i + d], d);
      (high ? v[i] : v[i + d]) = other;
    }
}

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

// One row of a tile, all of whose columns a quad of lanes has: v[4j], v[4j + 1] are columns 8j + 2 · (lane % 4) and the
// next. `columns` of them are in the tensor; none of a row that is past the count.
template <class T, int COLUMNS> struct TileRow {
  static constexpr int GROUPS = COLUMNS / 8;
  float *v;
  int columns;

  // f(v, the element of the same column in memory from `from` on, or 0 if there is none).
  template <class F> __device__ __forceinline__ void combine(const T *from, bool any, F f) {
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < GROUPS; j += 4) {
      uint4 raw = {};
      if (any && 8 * (j + lane) < columns) raw = *(const uint4 *)(from + 8 * (j + lane));
      uint32_t group[4] = {raw.x, raw.y, raw.z, raw.w};
      transpose_quad(group);
#pragma unroll
      for (int i = 0; i < 4 && j + i < GROUPS; i++) {
        float2 pair = unpack<T>(group[i]);
        f(v[4 * (j + i)], pair.x), f(v[4 * (j + i) + 1], pair.y);
      }
    }
  }
  // f(v, column).
  template <class F> __device__ __forceinline__ void apply(F f) {
#pragma unroll
    for (int j = 0; j < GROUPS; j++)
#pragma unroll
      for (int e = 0; e < 2; e++) f(v[4 * j + e], 8 * j + 2 * (threadIdx.x % 4) + e);
  }
  __device__ __forceinline__ void store(T *to) {
    int lane = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < GROUPS; j += 4) {
      uint32_t group[4] = {};
#pragma unroll
      for (int i = 0; i < 4 && j + i < GROUPS; i++) group[i] = pack<T>(v[4 * (j + i)], v[4 * (j + i) + 1]);
      transpose_quad(group);
      if (8 * (j + lane) < columns)
        *(uint4 *)(to + 8 * (j + lane)) = make_uint4(group[0], group[1], group[2], group[3]);
    }
  }
};

// t = keep · f(v + bias + addend + (accumulate ? t : 0)) for a row of a tile that is pixel (n, y, x) from channel c on:
// dest_store8 of common.cuh for values that stand differently.
template <class T, int COLUMNS>
__device__ __forceinline__ void store_row(const DestArgs &d, int n, int y, int x, int c, const float *bias,
                                          TileRow<T, COLUMNS> row) {
  auto add = [](float &v, float other) { v += other; };
  T *to = pixel<T>(d.t, n, y, x) + c;
  row.apply([&](float &v, int column) { v += bias[column]; });
  if (d.addend.data) {
    const Tensor &a = d.addend;
    bool up = a.h < d.t.h || a.w < d.t.w, down = !up && (a.h > d.t.h || a.w > d.t.w); // half its size; twice
    int y0 = up ? y / 2 : down ? 2 * y : y, x0 = up ? x / 2 : down ? 2 * x : x;
#pragma unroll 1
    for (int i = 0; i < (down ? 4 : 1); i++) { // as often for every row, since lanes of all of them meet in shuffles
      int ay = y0 + i / 2, ax = x0 + i % 2;
      row.combine(pixel<T>(a, n, ay, ax) + c, ay < a.h && ax < a.w, add);
    }
  }
  if (d.accumulate) row.combine(to, true, add);
  if (d.relu) row.apply([](float &v, int) { v = v < 0.f ? 0.f : v; }); // NaN stays
  if (d.mask.data)
    row.combine(pixel<T>(d.mask, n, y, x) + c, true, [](float &v, float mask) { v = mask > 0.f ? v : 0.f; });
  if (c + COLUMNS > d.t.c) row.apply([&](float &v, int column) { v = c + column < d.t.c ? v : 0.f; });
  row.store(to);
}

// The bias of a tile's columns, zeros where there is none, by a warpgroup.
template <int COLUMNS> __device__ __forceinline__ void load_bias(const DestArgs &d, int column0, float *bias) {
#pragma unroll
  for (int i = threadIdx.x % WARPGROUP; i < COLUMNS; i += WARPGROUP)
    bias[i] = d.bias && column0 + i < d.t.c ? d.bias[column0 + i] : 0.f;
}

// ---- rung 05's other files ---------------------------------------------------------------------------------------------

bool stem_fits(const Conv *conv, int pairs, const Tensor *x, const Tensor *w);
void stem_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y);
void wgmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
