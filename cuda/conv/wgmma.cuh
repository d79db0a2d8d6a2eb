// What the files of rung 05 share: the roles of a block's warps (warp specialisation: one producer warpgroup, two
// consumer warpgroups), and the epilogue that takes wgmma's accumulators through a Dest to boxes in shared memory for
// TMA to store.
#pragma once
#include "cuda/conv/hopper_wgmma.cuh"
#include "cuda/conv/implicit_gemm.cuh"

enum {
  CONSUMERS = 2, // consumer warpgroups; one more has the producer warps and those that store
  WGMMA_THREADS = (1 + CONSUMERS) * WARPGROUP,
  PRODUCER_REGISTERS = 40, // of a thread; three warpgroups share 168 each
  CONSUMER_REGISTERS = 232,
};

// How a producer thread lets the other warps go on: when it has issued its first stage, or has found that there is
// none. The kernel's parameters come from memory line by line, and what the others read would delay what the producer
// reads.
struct ProducerSignal {
  int barrier, threads; // a named barrier, and how many meet there
  bool sent = false;
  __device__ __forceinline__ void send() {
    if (!sent) named_arrive_for_warp(barrier, threads);
    sent = true;
  }
};

// ---- where rows of the accumulators go ------------------------------------------------------------------------------

// Where a row of the accumulators goes. A lane knows row lane % 16 of its warp's sixteen, counted in pixels from the
// tensor's first.
struct EpilogueRow {
  int pixel;      // of t; -1: past the end of M
  int addend;     // of the addend; of the first of 2 × 2 where it is twice as large
  int neighbours; // of these: bit 0 if the addend has one to the right, bit 1 if below
};
__device__ __forceinline__ int epilogue_lane_row() { return threadIdx.x % WGMMA_WARP_M; }

enum AddendSize { ADDEND_SAME, ADDEND_HALF, ADDEND_DOUBLE };
__device__ __forceinline__ AddendSize addend_size(const DestArgs &d) {
  const Tensor &a = d.addend, &t = d.t;
  return a.h == t.h && a.w == t.w ? ADDEND_SAME : a.h < t.h || a.w < t.w ? ADDEND_HALF : ADDEND_DOUBLE;
}

// Of the row that is pixel (n, y, x), if there is one.
__device__ __forceinline__ EpilogueRow epilogue_row(const DestArgs &d, bool any, int n, int y, int x) {
  if (!any) return {-1, -1, 0};
  EpilogueRow r = {(n * d.t.h + y) * d.t.w + x};
  if (!d.addend.data) return r;
  AddendSize size = addend_size(d);
  if (size == ADDEND_HALF) {
    y /= 2;
    x /= 2;
  }
  if (size == ADDEND_DOUBLE) {
    y *= 2;
    x *= 2;
  }
  r.addend = (n * d.addend.h + y) * d.addend.w + x;
  r.neighbours = (x + 1 < d.addend.w) | (y + 1 < d.addend.h) << 1;
  return r;
}

template <class T> __device__ __forceinline__ T *element(const Tensor &t, int pixel, int c) {
  return (T *)t.data + (size_t)pixel * t.ldc + c;
}

// Prefetches to L2 what the epilogue will read of a tile's rows (addend, mask, old value) during the mainloop.
template <class T, int COLUMNS>
__device__ __forceinline__ void epilogue_prefetch(const DestArgs &d, const EpilogueRow &r, int c0) {
  constexpr int LINE = 128 / sizeof(T);
  if (r.pixel < 0) return;
  for (int c = threadIdx.x % 32 / WGMMA_WARP_M * LINE; c < min(COLUMNS, d.t.ldc - c0); c += 2 * LINE) {
    if (d.addend.data) prefetch_l2(element<T>(d.addend, r.addend, c0 + c));
    if (d.mask.data) prefetch_l2(element<T>(d.mask, r.pixel, c0 + c));
    if (d.accumulate) prefetch_l2(element<T>(d.t, r.pixel, c0 + c));
  }
}

// The bias of a tile's columns, zeros where there is none, by a warpgroup. All threads store, some what others do:
// behind a branch that only some take, ptxas would keep in registers of each lane what is uniform.
template <int COLUMNS> __device__ __forceinline__ void load_bias(const DestArgs &d, int column0, float *bias) {
#pragma unroll
  for (int first = 0; first < COLUMNS; first += WARPGROUP) {
    int i = first + threadIdx.x % MIN(WARPGROUP, COLUMNS - first);
    bias[i] = d.bias && column0 + i < d.t.c ? d.bias[column0 + i] : 0.f;
  }
}

// ---- the epilogue: from the accumulators' order to memory's and back ------------------------------------------------

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

// The epilogue's staging buffer of a warp in shared memory: sixteen rows of COLUMNS columns, in TMA boxes of swizzled
// rows of 128 bytes (or fewer), one after the other. A thread has v[4j …] = (row r, r, r + 8, r + 8) of columns 8j + 2
// · (lane % 4) and the next, r = lane / 4, as wgmma leaves the accumulators, until stmatrix stores them; ldmatrix loads
// what they are combined with. Both move 16 bits: pairs of floats go one by one. TMA stores the boxes asynchronously,
// and the consumer warps need not wait for it before the next mainloop.
template <class T, int COLUMNS> struct EpilogueTile {
  static constexpr int MAX_BOX_COLUMNS = SWIZZLE_ROW / sizeof(T);
  static constexpr int BOX_COLUMNS = COLUMNS < MAX_BOX_COLUMNS ? COLUMNS : MAX_BOX_COLUMNS,
                       BOX_ROW = BOX_COLUMNS * sizeof(T); // of a box
  static constexpr int BOX_BYTES = WGMMA_WARP_M * BOX_ROW, BOXES = COLUMNS / BOX_COLUMNS, BYTES = BOXES * BOX_BYTES;
  static constexpr int CHUNK = 16 / sizeof(T); // columns of 16 bytes, which the swizzle keeps together
  static_assert(COLUMNS % BOX_COLUMNS == 0 && (BOX_ROW == 32 || BOX_ROW == SWIZZLE_ROW));
  uint32_t memory;

  // The address of a chunk of a row.
  __device__ __forceinline__ uint32_t address(int row, int chunk) const {
    constexpr int CHUNKS = BOX_COLUMNS / CHUNK;
    int swizzle = BOX_ROW == 32 ? row / 4 % 2 : row % 8;
    return memory + chunk / CHUNKS * BOX_BYTES + row * BOX_ROW + (chunk % CHUNKS ^ swizzle) * 16;
  }
  // For columns 16q … + 15: the address that a lane gives ldmatrix or stmatrix.
  __device__ __forceinline__ uint32_t matrix_row(int q) const {
    int lane = threadIdx.x % 32;
    return (address(lane % 16, lane / 16) ^ q * 32 % BOX_ROW) + q * 32 / BOX_ROW * BOX_BYTES;
  }
  // For floats, v[4j] and the next; eight rows on, v[4j + 2] and the next.
  __device__ __forceinline__ uint32_t pair(int j) const {
    int lane = threadIdx.x % 32;
    return (address(lane / 4, lane % 4 / 2) + lane % 2 * 8 ^ j * 32 % BOX_ROW) + j * 32 / BOX_ROW * BOX_BYTES;
  }

  // Loads a tensor's elements at the pixel of each lane's row, zeros where there is none, into the staging buffer.
  __device__ __forceinline__ void load(const void *data, int pitch, int pixel, int c0) const {
    constexpr int CHUNKS = BOX_COLUMNS / CHUNK, STEP = 32 / CHUNKS; // rows at a time
    static_assert(32 % CHUNKS == 0 && WGMMA_WARP_M % STEP == 0);
    int lane = threadIdx.x % 32, chunk = lane % CHUNKS;
#pragma unroll
    for (int across = 0; across < COLUMNS; across += BOX_COLUMNS, chunk += CHUNKS) {
      int c = c0 + chunk * CHUNK;
      bool inside = c < pitch;
      const T *from = (const T *)data + (inside ? c : 0);
#pragma unroll
      for (int i = 0; i < WGMMA_WARP_M; i += STEP) {
        int row = i + lane / CHUNKS, at = __shfl_sync(~0u, pixel, row);
        cp_async16(address(row, chunk), from + (int64_t)max(at, 0) * pitch, inside && at >= 0);
      }
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
  }
  // f(v, element) for what load has brought.
  template <class F> __device__ __forceinline__ void combine(float *v, F f) const {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 4; i++) {
        float2 two = load_shared(pair(i / 2) + i % 2 * 8 * BOX_ROW);
        f(v[2 * i], two.x);
        f(v[2 * i + 1], two.y);
      }
    } else {
#pragma unroll
      for (int q = 0; q < COLUMNS / 16; q++) {
        uint32_t m[4];
        ldmatrix_pairs(m, matrix_row(q));
#pragma unroll
        for (int i = 0; i < 4; i++) { // rows r and r + 8 of eight columns, then of the next eight
          float2 two = unpack<T>(m[i]);
          f(v[8 * q + 2 * i], two.x);
          f(v[8 * q + 2 * i + 1], two.y);
        }
      }
    }
    __syncwarp();
  }

  // The elements of a chunk of a row.
  __device__ __forceinline__ void read(float *v, int row, int chunk) const {
    const float4 words = load_shared16(address(row, chunk));
    T element[CHUNK];
    memcpy(element, &words, sizeof element);
#pragma unroll
    for (int k = 0; k < CHUNK; k++) v[k] = to_float(element[k]);
  }

  // Zeros in columns first … end.
  __device__ __forceinline__ void clear(int first, int end) const {
    __syncwarp();
#pragma unroll 1
    for (int c = first + threadIdx.x % 32 / WGMMA_WARP_M; c < end; c += 32 / WGMMA_WARP_M)
      store_shared_zero<T>(address(epilogue_lane_row(), c / CHUNK) + c % CHUNK * sizeof(T));
  }

  // Accumulators to the staging buffer: the first `valid` of `columns`, zeros after them (padding channels), for TMA
  // to read.
  __device__ __forceinline__ void store(const float *v, int valid, int columns) const {
    if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < COLUMNS / 4; i++) store_shared(pair(i / 2) + i % 2 * 8 * BOX_ROW, v[2 * i], v[2 * i + 1]);
    } else {
#pragma unroll
      for (int q = 0; q < COLUMNS / 16; q++) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; i++) m[i] = pack<T>(v[8 * q + 2 * i], v[8 * q + 2 * i + 1]);
        stmatrix_pairs(matrix_row(q), m);
      }
    }
    if (valid < columns && valid < COLUMNS) clear(valid, columns);
    shared_write_fence();
    __syncwarp();
  }
  // By one thread: issue(c, from) issues the TMA store of columns c …, counted from the first of these.
  template <class F> __device__ __forceinline__ void issue_stores(int columns, F issue) const {
#pragma unroll
    for (int c = 0; c < COLUMNS; c += BOX_COLUMNS)
      if (c < columns) issue(c, memory + c / BOX_COLUMNS * BOX_BYTES);
    bulk_commit();
  }
};

// Until TMA has read a warp's boxes but the last `OTHERS`, which may then be overwritten.
template <int OTHERS> __device__ __forceinline__ void epilogue_wait_read() {
  bulk_wait_read<OTHERS>();
  __syncwarp();
}

// The epilogue: t = keep · f(v + bias + addend + (accumulate ? t : 0)) for a warp's sixteen rows of COLUMNS columns
// from c0 on, into its staging buffer. What dest_store8 of common.cuh does, for accumulators in wgmma's order.
template <class T, int COLUMNS>
__device__ __forceinline__ void epilogue_store_rows(const DestArgs &d, float *v, const EpilogueRow &r, int c0,
                                                    const float *bias, const EpilogueTile<T, COLUMNS> &box) {
  enum { OLD = 4, MASK, SOURCES }; // the first are the addends
  int pair = 2 * (threadIdx.x % 4);
  if (d.bias)
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) {
      float2 b = *(const float2 *)(bias + 8 * j + pair);
      v[4 * j] += b.x;
      v[4 * j + 1] += b.y;
      v[4 * j + 2] += b.x;
      v[4 * j + 3] += b.y;
    }
  // One copy of the code for all sources: where it runs for the first time, instructions come from memory.
  if (d.addend.data || d.accumulate || d.mask.data) {
    int addends = !d.addend.data ? 0 : addend_size(d) == ADDEND_DOUBLE ? 4 : 1;
#pragma unroll 1
    for (int i = 0; i < SOURCES; i++) {
      bool is_addend = i < OLD, is_mask = i == MASK;
      if (is_addend ? i >= addends : is_mask ? !d.mask.data : !d.accumulate) continue;
      int pixel = r.pixel;
      if (is_addend) pixel = r.addend < 0 || i & ~r.neighbours ? -1 : r.addend + i / 2 * d.addend.w + i % 2;
      box.load(is_addend ? d.addend.data : is_mask ? d.mask.data : d.t.data, d.t.ldc, pixel, c0);
      if (is_mask)
        box.combine(v, [](float &v, float mask) { v = mask > 0.f ? v : 0.f; });
      else
        box.combine(v, [](float &v, float other) { v += other; });
    }
  }
  if (d.relu) // after the mask, which comes to the same
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) v[i] = positive_part(v[i]);
  box.store(v, d.t.c - c0, d.t.ldc - c0);
}

// ---- moments --------------------------------------------------------------------------------------------------------

// What batch norm needs to know of the tensor, while its rows are in shared memory (Dest.moments): a warpgroup's 64
// rows from `row` on are a part, and its warps, which have filled their boxes, share the columns: a lane has 16 bytes
// of them in one warp's sixteen rows, sums their distances to the first, and meets the lanes of the other rows by
// butterflies. `stride`: bytes from a warp's boxes to the next one's; `rows`: of the GEMM.
template <class T, int COLUMNS>
__device__ __forceinline__ void epilogue_store_moments(const DestArgs &d, uint32_t boxes, int stride, int row, int rows,
                                                       int c0) {
  using Box = EpilogueTile<T, COLUMNS>;
  constexpr int CHUNK = Box::CHUNK, CHUNKS = COLUMNS / CHUNK, LANES = 8; // side by side
  const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32, group = lane / LANES;
  const Box box{boxes + group * stride};
  const int valid = min(max(rows - row - group * WGMMA_WARP_M, 0), (int)WGMMA_WARP_M);
  for (int base = warp * LANES; base < CHUNKS; base += WARPGROUP / 32 * LANES) {
    const int chunk = base + lane % LANES, c = c0 + chunk * CHUNK;
    float first[CHUNK] = {}, sum[CHUNK] = {}, squares[CHUNK] = {};
    auto take = [&](int i) {
      float v[CHUNK];
      box.read(v, i, chunk);
#pragma unroll
      for (int k = 0; k < CHUNK; k++) {
        if (i == 0) first[k] = v[k];
        const float distance = v[k] - first[k];
        sum[k] += distance;
        squares[k] += distance * distance;
      }
    };
    if (chunk < CHUNKS && valid == WGMMA_WARP_M) {
#pragma unroll
      for (int i = 0; i < WGMMA_WARP_M; i++) take(i);
    } else if (chunk < CHUNKS) {
      for (int i = 0; i < valid; i++) take(i);
    }
    // From here on sum is the mean, squares those about it.
    float n = valid;
    const float share = valid ? 1.f / n : 0.f;
#pragma unroll
    for (int k = 0; k < CHUNK; k++) {
      squares[k] -= sum[k] * sum[k] * share;
      sum[k] = valid ? first[k] + sum[k] * share : 0.f;
    }
#pragma unroll
    for (int offset = LANES; offset < 32; offset *= 2) {
      const float n2 = __shfl_xor_sync(~0u, n, offset), part = n2 > 0 ? n2 / (n + n2) : 0.f;
#pragma unroll
      for (int k = 0; k < CHUNK; k++) {
        const float delta = __shfl_xor_sync(~0u, sum[k], offset) - sum[k];
        squares[k] += __shfl_xor_sync(~0u, squares[k], offset) + delta * delta * n * part;
        sum[k] += delta * part;
      }
      n += n2;
    }
    if (group == 3 || chunk >= CHUNKS || c >= d.t.c || n == 0) continue; // each group of lanes stores one of the three
    float *to = d.moments + ((size_t)(row / WGMMA_M) * 3 + group) * d.t.c + c;
#pragma unroll
    for (int k = 0; k < CHUNK; k += 4) {
      auto value = [&](int i) { return group == 0 ? n : group == 1 ? sum[i] : squares[i]; };
      if (d.t.c % 4 == 0 && c + k < d.t.c)
        *(float4 *)(to + k) = make_float4(value(k), value(k + 1), value(k + 2), value(k + 3));
      else
        for (int i = k; i < k + 4; i++)
          if (c + i < d.t.c) to[i] = value(i);
    }
  }
}

// ---- rung 05's other files ------------------------------------------------------------------------------------------

// Filters [channels, taps, filters] whose outputs are the inputs of `w`, in workspace; no data while workspace is
// measured.
Tensor filters_transpose(Device *dev, const Tensor *w);
// Whether the stem's kernels compute a convolution of images, and the ops; pooling in 16 bits.
bool stem_fits(const Conv *conv, const Tensor *x, const Tensor *w);
void stem_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y);
bool stem_tf32_fits(const Conv *conv, const Tensor *x, const Tensor *w);
void stem_tf32_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y);
bool stem_pools(const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w);
void stem_pool_forward(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Dest *y);
bool bottleneck_fits(Device *dev, const Bottleneck *b, const Tensor *x);
void bottleneck_forward(Device *dev, const Bottleneck *b, const Tensor *x, const Tensor *y);
// 3 × 3 convolutions of 64 to 64 channels have kernels of their own: whether it is one, and the ops.
bool conv64_fits(const Conv *conv, const Tensor *in, const Tensor *w, const Dest *out);
void conv64(Device *dev, bool backward, const Tensor *in, const Tensor *w, const Dest *out);
bool conv64_wgrad_fits(const Conv *conv, const Tensor *x, const Tensor *dy, const Tensor *dw);
void conv64_wgrad(Device *dev, const Tensor *x, const Tensor *dy, const FilterGrad *out);
bool stem_wgrad_fits(const Conv *conv, const Tensor *x, const Tensor *dw);
void stem_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
bool stem_wgrad_tf32_fits(const Conv *conv, const Tensor *x, const Tensor *dw);
void stem_wgrad_tf32(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                     const FilterGrad *out);
// Whether rung 05 has the faster wgrad in TF32, if it computes it at all.
bool tf32_wgrad_fits(const Conv *conv, const Tensor *x, const Tensor *dw);
void wgmma_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy, const FilterGrad *out);
