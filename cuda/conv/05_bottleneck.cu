// A frozen bottleneck of ResNet's first stage in one pass: 1 × 1, 3 × 3 and 1 × 1 with the shortcut, by wgmma. Between
// them 64 channels never leave the SM: of eight tensors that separate convolutions write and read again, x and y are
// left. The sums have their order and values are rounded where they round: the same bits.
//
// A block keeps all filters in shared memory for the whole launch, and goes down strips of 62 output pixels. Two
// consumer warpgroups have a row each, of two at a time:
//
//   x row 2j + 1, + 2   ─ 1 × 1 ─►  rows 2j + 1, 2j + 2 of 64 pixels ─┐ kept: the last four rows,
//                                                                     ▼ in core matrices without a swizzle, so that a
//   y rows 2j, 2j + 1  ◄─ 1 × 1 ─  registers  ◄──────── 3 × 3 ────────  tap further is sixteen bytes further
//
// What TMA brings goes through a ring of chunks, a warpgroup's own: 64 pixels × 64 channels. A chunk of the shortcut is
// overwritten where it lies by the chunk of y that it is added to, from where TMA stores it. The rows of x that come
// next are fetched to L2 ahead of time. A strip goes along the side of the image that wastes fewer pixels of it.
// Limit: shared memory, which nothing is left of, and which products of 64 channels read as fast as it can be read; a
// half of the time that the bytes of x and y need is left.
#include "cuda/conv/ladder.h"
#include "cuda/conv/wgmma.cuh"

enum {
  MID = 64,  // channels between the convolutions
  OUT = 256, // of y
  OUT_CHUNKS = OUT / MID,
  TAPS = 9,
  TILE_BYTES = WGMMA_M * SWIZZLE_ROW, // of 64 pixels or filters, 64 channels
  STRIP = WGMMA_M - 2,                // output pixels, which see two more
  CONSUMER_GROUPS = 2,
  KEPT_ROWS = 4,
  PLANE_BYTES = WGMMA_M * 16, // of a kept row, eight channels
  RING = 3,
  BLOCK_THREADS = CONSUMER_GROUPS * (WARPGROUP + 32), // with a producer warp each
  CONSUMER_THREADS = CONSUMER_GROUPS * WARPGROUP,
  ROWS_FREE = 1, // named barriers: the kept rows to be overwritten have been read, …
  ROWS_WRITTEN,  // … and those written are there
};

struct BottleneckParams {
  CUtensorMap x, filter[BOTTLENECK_CONVS];
  CUtensorMap y, y_end; // of a warp's sixteen pixels; of the last warp's, without what is the next strip's
  const float *bias[BOTTLENECK_CONVS];
  int w, h;          // pixels across strips and along them
  int strips, pairs; // of an image; of rows, of a strip
  int tiles;         // pairs of all images
  bool turned;       // strips go along the rows of the image
};

template <int CHUNKS, bool PROJECTED> struct BottleneckShared {
  enum {
    MIDDLE = 0,
    REDUCE = MIDDLE + TAPS * TILE_BYTES,
    EXPAND = REDUCE + CHUNKS * TILE_BYTES,
    PROJECT = EXPAND + OUT_CHUNKS * TILE_BYTES,
    KEPT = PROJECT + PROJECTED * OUT_CHUNKS * TILE_BYTES,
    RINGS = KEPT + KEPT_ROWS * TILE_BYTES,
    BIASES = RINGS + CONSUMER_GROUPS * RING * TILE_BYTES,
    BIAS_REDUCE = PROJECTED * OUT, // after the projection's
    BIAS_MIDDLE = BIAS_REDUCE + MID,
    BIAS_EXPAND = BIAS_MIDDLE + MID,
    BIAS_END = BIAS_EXPAND + OUT,
    BARRIERS = BIASES + BIAS_END * (int)sizeof(float),
    BYTES = BARRIERS + CONSUMER_GROUPS * (int)sizeof(PipelineBarriers<RING>) + 2 * (int)sizeof(uint64_t),
  };
  static_assert((int)BYTES <= (int)MAX_SHARED);
};
struct BottleneckBarriers {
  PipelineBarriers<RING> ring[CONSUMER_GROUPS];
  uint64_t reduce, others; // these filters are there
};

// Pairs of rows of one strip, which a block takes one after the other.
struct StripRange {
  int n, x, first, end;
};
__device__ __forceinline__ StripRange strip_range(const BottleneckParams &p, int tile, int end) {
  const int strip = tile / p.pairs, first = tile - strip * p.pairs;
  return {strip / p.strips, strip % p.strips * STRIP, first, min(p.pairs, first + end - tile)};
}

// ---- producers ------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void tma_prefetch(const CUtensorMap *map, int x, int y, int z, int n) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(x), "r"(y),
               "r"(z), "r"(n)
               : "memory");
}

template <int CHUNKS, bool PROJECTED>
__device__ void load_filters(const BottleneckParams &p, BottleneckBarriers &b, uint32_t shared) {
  using Shared = BottleneckShared<CHUNKS, PROJECTED>;
  const uint32_t reduce = pinned_address(&b.reduce), others = pinned_address(&b.others);
  barrier_expect(reduce, CHUNKS * TILE_BYTES);
  for (int i = 0; i < CHUNKS; i++)
    tma_load(shared + Shared::REDUCE + i * TILE_BYTES, &p.filter[BOTTLENECK_REDUCE], reduce, i * MID, 0, 0, 0);
  barrier_expect(others, (TAPS + (PROJECTED + 1) * OUT_CHUNKS) * TILE_BYTES);
  for (int i = 0; i < TAPS; i++)
    tma_load(shared + Shared::MIDDLE + i * TILE_BYTES, &p.filter[BOTTLENECK_MIDDLE], others, 0, i, 0, 0);
  for (int i = 0; i < OUT_CHUNKS; i++) {
    tma_load(shared + Shared::EXPAND + i * TILE_BYTES, &p.filter[BOTTLENECK_EXPAND], others, 0, 0, i * MID, 0);
    if (PROJECTED)
      tma_load(shared + Shared::PROJECT + i * TILE_BYTES, &p.filter[BOTTLENECK_PROJECT], others, 0, 0, i * MID, 0);
  }
}

// The chunks of a warpgroup's rows, in the order in which it takes them. Chunks without data are room for y.
template <int CHUNKS, bool PROJECTED>
__device__ void produce_chunks(const BottleneckParams &p, PipelineBarriers<RING> &barriers, uint32_t ring, int group,
                               int tile, int end) {
  PipelineState<RING> pipe(barriers);
  auto load = [&](int c, int x, int y, int n) {
    pipe.wait_empty();
    barrier_expect(pipe.full, TILE_BYTES);
    tma_load(ring + pipe.stage * TILE_BYTES, &p.x, pipe.full, c, x, y, n);
    pipe.advance();
  };
  while (tile < end) {
    const StripRange s = strip_range(p, tile, end);
    for (int j = s.first - 1; j < s.end; j++) {
      const int y = 2 * j + 1 + group;
      if (j + 1 < s.end)
        for (int i = 0; i < CHUNKS; i++) tma_prefetch(&p.x, i * MID, s.x - 1, y + 2, s.n);
      for (int i = 0; i < CHUNKS; i++) load(i * MID, s.x - 1, y, s.n);
      if (j < s.first) continue;
      for (int i = 0; i < CHUNKS; i++) load(i * MID, s.x, y - 1, s.n);
      for (int i = 0; PROJECTED && i < OUT_CHUNKS; i++) {
        pipe.wait_empty();
        barrier_expect(pipe.full, 0);
        pipe.advance();
      }
    }
    tile += s.end - s.first;
  }
}

// ---- consumers ------------------------------------------------------------------------------------------------------

// A warpgroup's products with a tile of 64 pixels and 64 filters, both K-major in the 128-byte swizzle.
template <class T>
__device__ __forceinline__ void multiply_tiles(float (&acc)[MID / 2], uint32_t a, uint32_t b, bool accumulate) {
  const uint64_t pixels = matrix_descriptor(a), filters = matrix_descriptor(b);
#pragma unroll
  for (int k = 0; k < MID / WGMMA_K; k++) wgmma<T, MID, false>(acc, pixels + 2 * k, filters + 2 * k, accumulate || k);
}

// The same with the pixels in registers.
template <class T>
__device__ __forceinline__ void multiply_registers(float (&acc)[MID / 2], const uint32_t (&a)[MID / WGMMA_K][4],
                                                   uint32_t b) {
  const uint64_t filters = matrix_descriptor(b);
#pragma unroll
  for (int k = 0; k < MID / WGMMA_K; k++) wgmma_registers<T>(acc, a[k], filters + 2 * k, k);
}

// Chunks of y that TMA is still reading: a warp's last one, and the barrier that it is to arrive at then.
struct PendingStore {
  uint32_t empty = 0;
  template <int OTHERS> __device__ __forceinline__ void release() {
    if (!empty) return;
    bulk_wait_read<OTHERS>();
    barrier_arrive_at(empty);
    empty = 0;
  }
};

template <class T, int CHUNKS, bool PROJECTED>
__device__ void consume_rows(const BottleneckParams &p, BottleneckBarriers &barriers, const float *biases,
                             uint32_t shared, int group, int tile, int end) {
  using Shared = BottleneckShared<CHUNKS, PROJECTED>;
  const int lane = threadIdx.x % 32, warp = uniform(threadIdx.x / 32) % 4, pair = 2 * (lane % 4);
  const uint32_t ring = shared + Shared::RINGS + group * RING * TILE_BYTES, kept = shared + Shared::KEPT;
  const uint64_t kept_tile = unswizzled_descriptor(kept, PLANE_BYTES, 128);
  const uint64_t middle = matrix_descriptor(shared + Shared::MIDDLE);
  PipelineState<RING> pipe(barriers.ring[group]);
  PendingStore pending; // of lane 0
  bool first = true;
  barrier_wait(pinned_address(&barriers.reduce), 0);
  auto release = [&](uint32_t empty) { // a chunk that the warp is done with
    if (lane == 0) barrier_arrive_at(empty);
  };
  while (tile < end) {
    const StripRange s = strip_range(p, tile, end);
    for (int j = s.first - 1; j < s.end; j++) {
      // 1 × 1, of a row that is new
      float acc[MID / 2];
      uint32_t before = 0;
#pragma unroll
      for (int i = 0; i < CHUNKS; i++) {
        pipe.wait_full();
        wgmma_fence();
        multiply_tiles<T>(acc, ring + pipe.stage * TILE_BYTES, shared + Shared::REDUCE + i * TILE_BYTES, i > 0);
        wgmma_commit();
        if (i == 0 && lane == 0) pending.release<0>();
        if (i > 0) {
          wgmma_wait<1>();
          release(before);
        }
        before = pipe.empty;
        pipe.advance();
      }
      wgmma_wait<0>();
      release(before);
      const int y = 2 * j + 1 + group, x = s.x - 1 + warp * WGMMA_WARP_M + lane / 4;
      const bool inside = (unsigned)y < (unsigned)p.h; // else it is the 3 × 3 convolution's padding
      const bool inside0 = inside && (unsigned)x < (unsigned)p.w, inside8 = inside && (unsigned)(x + 8) < (unsigned)p.w;
      named_sync(ROWS_FREE, CONSUMER_THREADS);
      const uint32_t row = kept + (y & KEPT_ROWS - 1) * TILE_BYTES + (warp * WGMMA_WARP_M + lane % 16) * 16;
#pragma unroll
      for (int q = 0; q < MID / 16; q++) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float2 b = *(const float2 *)(biases + Shared::BIAS_REDUCE + 16 * q + i / 2 * 8 + pair);
          const float v0 = positive_part(acc[8 * q + 2 * i] + b.x), v1 = positive_part(acc[8 * q + 2 * i + 1] + b.y);
          m[i] = (i % 2 ? inside8 : inside0) ? pack<T>(v0, v1) : 0;
        }
        stmatrix_pairs(row + (2 * q + lane / 16) * PLANE_BYTES, m);
      }
      shared_write_fence();
      named_sync(ROWS_WRITTEN, CONSUMER_THREADS);
      if (j < s.first) continue;
      if (first) barrier_wait(pinned_address(&barriers.others), 0);
      first = false;
      // 3 × 3, of the row above
      wgmma_fence();
#pragma unroll
      for (int tap = 0; tap < TAPS; tap++) {
        const int below = p.turned ? tap % 3 : tap / 3, across = p.turned ? tap / 3 : tap % 3;
        const uint64_t a = kept_tile + ((y - 2 + below & KEPT_ROWS - 1) * TILE_BYTES + across * 16 >> 4);
#pragma unroll
        for (int k = 0; k < MID / WGMMA_K; k++)
          wgmma<T, MID, false>(acc, a + (2 * k * PLANE_BYTES >> 4), middle + (tap * TILE_BYTES >> 4) + 2 * k, tap + k);
      }
      wgmma_commit();
      wgmma_wait<0>();
      uint32_t hidden[MID / 16][4]; // operand A of what follows
#pragma unroll
      for (int q = 0; q < MID / 16; q++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float2 b = *(const float2 *)(biases + Shared::BIAS_MIDDLE + 16 * q + i / 2 * 8 + pair);
          hidden[q][i] = pack<T>(positive_part(acc[8 * q + 2 * i] + b.x), positive_part(acc[8 * q + 2 * i + 1] + b.y));
        }
      // 1 × 1, 64 channels of y at a time, and the shortcut
      constexpr int BUFFERS = PROJECTED ? 1 : 2; // of accumulators, as registers suffice
      float sum[BUFFERS][MID / 2], projected[MID / 2];
      uint32_t source[MID / 16][4];
      if constexpr (PROJECTED) {
        pipe.wait_full();
        const EpilogueTile<T, MID> rows{ring + pipe.stage * TILE_BYTES + warp * WGMMA_WARP_M * SWIZZLE_ROW};
#pragma unroll
        for (int q = 0; q < MID / 16; q++) ldmatrix_pairs(source[q], rows.matrix_row(q));
        __syncwarp();
        release(pipe.empty);
        pipe.advance();
      }
      auto multiply = [&](int q) {
        wgmma_fence();
        multiply_registers<T>(sum[q % BUFFERS], hidden, shared + Shared::EXPAND + q * TILE_BYTES);
        if constexpr (PROJECTED) multiply_registers<T>(projected, source, shared + Shared::PROJECT + q * TILE_BYTES);
        wgmma_commit();
      };
      multiply(0);
#pragma unroll
      for (int q = 0; q < OUT_CHUNKS; q++) {
        if (q && BUFFERS == 1) multiply(q);
        if (q + 1 < OUT_CHUNKS && BUFFERS == 2) {
          multiply(q + 1);
          wgmma_wait<1>();
        } else
          wgmma_wait<0>();
        pipe.wait_full();
        const EpilogueTile<T, MID> box{ring + pipe.stage * TILE_BYTES + warp * WGMMA_WARP_M * SWIZZLE_ROW};
        float(&v)[MID / 2] = sum[q % BUFFERS];
#pragma unroll
        for (int i = 0; i < MID / 8; i++) {
          const float2 b = *(const float2 *)(biases + Shared::BIAS_EXPAND + q * MID + 8 * i + pair);
#pragma unroll
          for (int k = 0; k < 4; k++) v[4 * i + k] += k % 2 ? b.y : b.x;
          if constexpr (PROJECTED) {
            const float2 c = *(const float2 *)(biases + q * MID + 8 * i + pair);
#pragma unroll
            for (int k = 0; k < 4; k += 2) { // rounded, as it is where it is a tensor
              const float *a = &projected[4 * i + k];
              const float2 shortcut = unpack<T>(pack<T>(a[0] + c.x, a[1] + c.y));
              v[4 * i + k] += shortcut.x;
              v[4 * i + k + 1] += shortcut.y;
            }
          }
        }
        if constexpr (!PROJECTED) box.combine(v, [](float &v, float shortcut) { v += shortcut; });
#pragma unroll
        for (int i = 0; i < MID / 2; i++) v[i] = positive_part(v[i]);
        box.store(v, MID, MID);
        if (lane == 0) {
          tma_store(warp == 3 ? &p.y_end : &p.y, box.memory, q * MID, s.x + warp * WGMMA_WARP_M, y - 1, s.n);
          bulk_commit();
          pending.release<1>();
          pending.empty = pipe.empty;
        }
        pipe.advance();
      }
    }
    tile += s.end - s.first;
  }
  if (lane == 0) bulk_wait_read<0>();
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// y [n, h, w, 256] of x [n, h, w, CHUNKS · 64]. Persistent blocks.
template <class T, int CHUNKS, bool PROJECTED>
__global__ __launch_bounds__(BLOCK_THREADS, 1) void bottleneck_kernel(const __grid_constant__ BottleneckParams p) {
  if constexpr (HAS_WGMMA) {
    using Shared = BottleneckShared<CHUNKS, PROJECTED>;
    const uint32_t shared = pinned_address(dynamic_shared());
    float *biases = (float *)(dynamic_shared() + Shared::BIASES);
    BottleneckBarriers &barriers = *(BottleneckBarriers *)(dynamic_shared() + Shared::BARRIERS);
    const int warp = uniform(threadIdx.x / 32);
    const int tile = (int64_t)p.tiles * blockIdx.x / gridDim.x, end = (int64_t)p.tiles * (blockIdx.x + 1) / gridDim.x;
    if (threadIdx.x == 0) {
      if (shared % SWIZZLE_ATOM) __trap(); // nothing stands before it
      for (int i = 0; i < CONSUMER_GROUPS; i++) pipeline_init(barriers.ring[i], 1, WARPGROUP / 32);
      barrier_init(pinned_address(&barriers.reduce), 1);
      barrier_init(pinned_address(&barriers.others), 1);
      barrier_init_fence();
    }
    constexpr int FIRST[] = {0, Shared::BIAS_REDUCE, Shared::BIAS_MIDDLE, Shared::BIAS_EXPAND, Shared::BIAS_END};
#pragma unroll
    for (int i = 0; i < BOTTLENECK_CONVS; i++)
      for (int k = threadIdx.x; k < FIRST[i + 1] - FIRST[i]; k += BLOCK_THREADS)
        biases[FIRST[i] + k] = p.bias[i] ? p.bias[i][k] : 0.f;
    __syncthreads();
    if (warp >= CONSUMER_THREADS / 32) {
      const int group = warp - CONSUMER_THREADS / 32;
      if (threadIdx.x % 32) return;
      if (group == 0) load_filters<CHUNKS, PROJECTED>(p, barriers, shared);
      produce_chunks<CHUNKS, PROJECTED>(p, barriers.ring[group], shared + Shared::RINGS + group * RING * TILE_BYTES,
                                        group, tile, end);
    } else
      consume_rows<T, CHUNKS, PROJECTED>(p, barriers, biases, shared, warp / 4, tile, end);
  }
}

// ---- launcher -------------------------------------------------------------------------------------------------------

// Pixels [n, h, w, channels] with the axes of an image in the order of strips: across them, along them.
static CUtensorMap map_strips(const Tensor *t, bool turned, int pixels, MapUse use) {
  const size_t pixel = t->ldc * dtype_size(t->dtype), row = t->w * pixel;
  return map_strided(t->data, t->dtype,
                     {(size_t)t->ldc, (size_t)(turned ? t->h : t->w), (size_t)(turned ? t->w : t->h), (size_t)t->n},
                     {turned ? row : pixel, turned ? pixel : row, t->h * row}, {MID, pixels, 1, 1}, use);
}

static int strips_of(int across) { return blocks_for(across, STRIP); }

template <class T, int CHUNKS, bool PROJECTED> static void launch(Device *dev, const BottleneckParams &p) {
  auto kernel = bottleneck_kernel<T, CHUNKS, PROJECTED>;
  constexpr int BYTES = BottleneckShared<CHUNKS, PROJECTED>::BYTES;
  allow_shared(kernel, BYTES);
  kernel<<<MIN(p.tiles, granted_to_products(dev)), BLOCK_THREADS, BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}
template <class T> static void launch_type(Device *dev, const BottleneckParams &p, bool projected) {
  if (projected)
    launch<T, 1, true>(dev, p);
  else
    launch<T, OUT_CHUNKS, false>(dev, p);
}

static bool filter_is(const Tensor *w, DType dtype, int k, int taps, int c) {
  return w->dtype == dtype && w->n == k && w->h == taps && w->w == taps && w->c == c;
}

bool bottleneck_fits(Device *, const Bottleneck *b, const Tensor *x) {
  const Tensor *w = b->w;
  const bool projected = w[BOTTLENECK_PROJECT].n;
  const int c = projected ? MID : OUT;
  if (x->count || x->c != c || x->ldc != c || (x->dtype != BF16 && x->dtype != F16)) return false;
  if (projected && !filter_is(&w[BOTTLENECK_PROJECT], x->dtype, OUT, 1, c)) return false;
  return filter_is(&w[BOTTLENECK_REDUCE], x->dtype, MID, 1, c) &&
         filter_is(&w[BOTTLENECK_MIDDLE], x->dtype, MID, 3, MID) &&
         filter_is(&w[BOTTLENECK_EXPAND], x->dtype, OUT, 1, MID) && tensor_pixels(x) >> 30 == 0;
}

void bottleneck_forward(Device *dev, const Bottleneck *b, const Tensor *x, const Tensor *y) {
  if (dev->measuring || !x->n) return;
  const bool projected = b->w[BOTTLENECK_PROJECT].n;
  CHECK(y->n == x->n && y->h == x->h && y->w == x->w && y->c == OUT && y->ldc == OUT && y->dtype == x->dtype);
  BottleneckParams p = {};
  p.turned = (int64_t)strips_of(x->h) * x->w < (int64_t)strips_of(x->w) * x->h;
  p.w = p.turned ? x->h : x->w;
  p.h = p.turned ? x->w : x->h;
  p.strips = strips_of(p.w);
  p.pairs = blocks_for(p.h, CONSUMER_GROUPS);
  p.tiles = x->n * p.strips * p.pairs;
  p.x = map_strips(x, p.turned, WGMMA_M, MAP_OPERAND);
  p.y = map_strips(y, p.turned, WGMMA_WARP_M, MAP_RESULT);
  p.y_end = map_strips(y, p.turned, WGMMA_WARP_M - (WGMMA_M - STRIP), MAP_RESULT);
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    if (b->w[i].n) p.filter[i] = map_filters(&b->w[i], MID, MID);
    p.bias[i] = (const float *)b->bias[i];
  }
  if (x->dtype == BF16)
    launch_type<__nv_bfloat16>(dev, p, projected);
  else
    launch_type<__half>(dev, p, projected);
}
