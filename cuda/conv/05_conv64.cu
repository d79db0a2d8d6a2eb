// Rung 05 for 3 × 3 convolutions of 64 to 64 channels, forward and dgrad, in 16 bits. Idea: the transposed product,
// channels × pixels, whose operand A, all nine taps of the filter, stays in registers for the whole launch; and pixels
// that are read once for all taps.
// Removes: the filter from shared memory, which products of 64 columns read as fast as it can be read; eight of nine
// reads of L2.
// Adds to the rung before: images as one row of pixels (conv64.cuh), of which each threadblock takes a piece; a ring of
// it in shared memory, wherein a tap is a distance. The ring's first pixels stand behind its last ones, too, so that no
// tile is broken. Two consumer warpgroups take turns at the tensor cores, a tile of 128 pixels each, and one's epilogue
// runs beside the other's products:
//
//   ring   … [ 128 ][ 128 ][ 128 ][ 128 ][ 128 ] …      K = 9 taps · 64 channels, of each tap 128 pixels from
//             ▲ row above  ▲ own row    ▲ row below     tile + tap's distance on
//
// Accumulators have a channel in a row: stmatrix transposes them to rows of a pixel each.
// Limit: memory and the tensor cores, which need the same time.
#include "cuda/conv/conv64.cuh"
#include "cuda/conv/ladder.h"

enum {
  TILE = 128, // pixels
  TILE_BYTES = TILE * SWIZZLE_ROW,
  RING = 10, // tiles
  KERNEL_THREADS = (1 + CONSUMERS) * WARPGROUP,
  KERNEL_PRODUCER_REGISTERS = 24,
  KERNEL_CONSUMER_REGISTERS = 240,
  TURN = 1 + CONSUMERS,           // named barriers, behind those of the warpgroups: a warpgroup's turn, …
  FILTER_READ = TURN + CONSUMERS, // … and both have the filter
  FILTER_TILE_BYTES = CONV64_CHANNELS * SWIZZLE_ROW, // of a tap
  FILTER_SLOT = RING - 2, // where the filter stands at first, before the ring comes so far and rows are stored
  KERNEL_SHARED = (RING + 1 + CONSUMERS) * TILE_BYTES + SWIZZLE_ATOM,
};

struct Conv64Params {
  CUtensorMap filter, in;
  Tensor mask, out;  // mask: no data where there is none
  const float *bias; // NULL: none
  bool relu;
  int pitch;           // pixels to the one below
  int tiles;           // of all images
  Divider area, width; // as in Im2colView
};

// Tiles that one tile reads under all taps.
static constexpr int tiles_read(int pitch) { return 1 + (2 * pitch + 2 + TILE - 1) / TILE; }

struct Conv64Shared {
  PipelineBarriers<RING> ring;
  uint64_t filter_full, filter_empty;
};

__device__ __forceinline__ Position conv64_position(const Conv64Params &p, int tile) {
  const uint32_t pixel = tile * TILE, n = divide(pixel, p.area), rest = pixel - n * p.area.by,
                 i = divide(rest, p.width);
  return {(int)n, (int)i, (int)(rest - i * p.width.by)};
}

// By one thread: the ring, for tiles `first` … `first + count - 1`.
__device__ __forceinline__ void conv64_produce(const Conv64Params &p, Conv64Shared &shared, uint32_t ring, int first,
                                               int count) {
  const uint32_t filter_full = pinned_address(&shared.filter_full);
  barrier_expect(filter_full, CONV64_TAPS * FILTER_TILE_BYTES);
  for (int i = 0; i < CONV64_TAPS; i++)
    tma_load(ring + FILTER_SLOT * TILE_BYTES + i * FILTER_TILE_BYTES, &p.filter, filter_full, 0, i, 0, 0);
  PipelineState<RING> pipe(shared.ring);
  for (int i = 0; i < count - 1 + tiles_read(p.pitch); i++) {
    const Position at = conv64_position(p, first + i);
    const bool twice = i && !pipe.stage; // behind the ring's last tile, too
    if (i == FILTER_SLOT) barrier_wait(pinned_address(&shared.filter_empty), 0);
    pipe.wait_empty();
    barrier_expect(pipe.full, twice ? 2 * TILE_BYTES : TILE_BYTES);
    tma_load_im2col(ring + pipe.stage * TILE_BYTES, &p.in, pipe.full, 0, at.j - 1, at.i - 1, at.n, 0, 0);
    if (twice) tma_load_im2col(ring + RING * TILE_BYTES, &p.in, pipe.full, 0, at.j - 1, at.i - 1, at.n, 0, 0);
    pipe.advance();
  }
}

// The filter [k, taps, c] as a warpgroup's operand A: forward, filters in rows; backward, channels in rows and the taps
// from the last on.
template <bool BACKWARD>
__device__ __forceinline__ void conv64_load_filter(uint32_t (&a)[CONV64_TAPS][CONV64_SLICES][4], uint32_t filter) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32, high = lane / 16, odd = lane / 8 % 2;
#pragma unroll
  for (int tap = 0; tap < CONV64_TAPS; tap++)
#pragma unroll
    for (int k = 0; k < CONV64_SLICES; k++) {
      const int row = (BACKWARD ? k * WGMMA_K + high * 8 : warp * WGMMA_WARP_M + odd * 8) + lane % 8,
                chunk = BACKWARD ? 2 * warp + odd : 2 * k + high;
      const Fragment f = ldmatrix_x4<BACKWARD>(filter + (BACKWARD ? CONV64_TAPS - 1 - tap : tap) * FILTER_TILE_BYTES +
                                               row * SWIZZLE_ROW + (chunk ^ lane % 8) * 16);
#pragma unroll
      for (int i = 0; i < 4; i++) a[tap][k][i] = f.r[i];
    }
}

// Accumulators, a channel in a row, to a tile's rows of 128 bytes, a pixel each: f(v + bias).
template <class T>
__device__ __forceinline__ void conv64_stage(float (&v)[TILE / 2], float bias, float bias8, bool relu, uint32_t rows) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % WARPGROUP / 32;
  // Of 16 pixels and 16 channels: eight pixels of eight channels, of the next eight, then the next pixels.
  const uint32_t to = rows + (lane / 16 * 8 + lane % 8) * SWIZZLE_ROW + ((2 * warp + lane / 8 % 2) ^ lane % 8) * 16;
#pragma unroll
  for (int q = 0; q < TILE / 16; q++) {
    uint32_t m[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float a = v[8 * q + 2 * i] + (i % 2 ? bias8 : bias), b = v[8 * q + 2 * i + 1] + (i % 2 ? bias8 : bias);
      if (relu) {
        a = positive_part(a);
        b = positive_part(b);
      }
      m[i] = pack<T>(a, b);
    }
    stmatrix_transposed(to + q * 16 * SWIZZLE_ROW, m);
  }
}

// A row of a tile: its pixel of the result, -1 where a zero stands.
__device__ __forceinline__ int conv64_pixel(const Conv64Params &p, int tile, int row) {
  const uint32_t at = tile * TILE + row, n = divide(at, p.area), rest = at - n * p.area.by, y = divide(rest, p.width),
                 x = rest - y * p.width.by;
  const bool inside = (int)n < p.out.n && (int)y < p.out.h && (int)x < p.out.w;
  return inside ? ((int)n * p.out.h + (int)y) * p.out.w + (int)x : -1;
}

// Bits of the elements that are positive, of two.
template <class T> __device__ __forceinline__ uint32_t positive(float pair) {
  const uint32_t bits = __float_as_uint(pair);
  if constexpr (std::is_same_v<T, __half>) {
    __half2 two;
    memcpy(&two, &bits, sizeof two);
    return __hgt2_mask(two, __half2half2(__half()));
  } else {
    __nv_bfloat162 two;
    memcpy(&two, &bits, sizeof two);
    return __hgt2_mask(two, __bfloat162bfloat162(__nv_bfloat16()));
  }
}
template <class T> __device__ __forceinline__ float keep(float pair, float mask) {
  return __uint_as_float(__float_as_uint(pair) & positive<T>(mask));
}

// The rows to the result, under the mask, eight channels at a time; a warp has 32 of them, and `pixel` is a lane's.
template <class T> __device__ __forceinline__ void conv64_store(const Conv64Params &p, int pixel, uint32_t rows) {
  constexpr int CHUNKS = SWIZZLE_ROW / 16, STEP = 32 / CHUNKS, AT_ONCE = 4;
  const int lane = threadIdx.x % 32, chunk = lane % CHUNKS;
  rows += threadIdx.x % WARPGROUP / 32 * 32 * SWIZZLE_ROW;
#pragma unroll
  for (int first = 0; first < 32; first += AT_ONCE * STEP) {
    int at[AT_ONCE];
    float4 v[AT_ONCE], mask[AT_ONCE] = {};
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int row = first + i * STEP + lane / CHUNKS;
      at[i] = __shfl_sync(~0u, pixel, row);
      if (p.mask.data && at[i] >= 0) mask[i] = *(const float4 *)element<T>(p.mask, at[i], chunk * 8);
      v[i] = load_shared16(rows + row * SWIZZLE_ROW + (chunk ^ row % 8) * 16);
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      if (p.mask.data)
        v[i] = make_float4(keep<T>(v[i].x, mask[i].x), keep<T>(v[i].y, mask[i].y), keep<T>(v[i].z, mask[i].z),
                           keep<T>(v[i].w, mask[i].w));
      if (at[i] >= 0) *(float4 *)element<T>(p.out, at[i], chunk * 8) = v[i];
    }
  }
}

template <class T, bool BACKWARD>
__device__ __forceinline__ void conv64_consume(const Conv64Params &p, Conv64Shared &shared, uint32_t ring, int first,
                                               int count) {
  const int group = uniform(threadIdx.x / WARPGROUP), thread = threadIdx.x % WARPGROUP;
  const uint32_t rows = ring + (RING + 1 + group) * TILE_BYTES;
  uint32_t a[CONV64_TAPS][CONV64_SLICES][4];
  barrier_wait(pinned_address(&shared.filter_full), 0);
  conv64_load_filter<BACKWARD>(a, ring + FILTER_SLOT * TILE_BYTES);
  named_sync(FILTER_READ, CONSUMERS * WARPGROUP);
  if (threadIdx.x == 0) barrier_arrive_at(pinned_address(&shared.filter_empty));
  const int channel = thread / 32 * WGMMA_WARP_M + thread % 32 / 4;
  const float bias = p.bias ? p.bias[channel] : 0.f, bias8 = p.bias ? p.bias[channel + 8] : 0.f;
  PipelineState<RING> pipe(shared.ring);
  int arrived = 0; // tiles of the ring that were waited for
  int slot = group;
  const uint32_t empty = pinned_address(shared.ring.empty);
  if (group == 1) {
    named_arrive(TURN, CONSUMERS * WARPGROUP);
    if (thread == 0) barrier_arrive_at(empty); // for the tile before the first
  }
  for (int i = group; i < count; i += CONSUMERS) {
    const int row_pixel = conv64_pixel(p, first + i, thread);
    if (p.mask.data && row_pixel >= 0) prefetch_l2(element<T>(p.mask, row_pixel, 0));
    named_sync(TURN + group, CONSUMERS * WARPGROUP);
    float d[TILE / 2];
#pragma unroll
    for (int y = 0; y < 3; y++) {
      const int distance = y * p.pitch;
      for (const int need = i + (distance + 2 + TILE - 1) / TILE; arrived <= need; arrived++) {
        pipe.wait_full();
        pipe.advance();
      }
      wgmma_fence();
#pragma unroll
      for (int x = 0; x < 3; x++) {
        int pixel = slot * TILE + distance + x;
        if (pixel >= RING * TILE) pixel -= RING * TILE;
        const uint64_t b = matrix_descriptor(ring + pixel * SWIZZLE_ROW);
#pragma unroll
        for (int k = 0; k < CONV64_SLICES; k++) wgmma_registers<T, TILE>(d, a[3 * y + x][k], b + 2 * k, y + x + k > 0);
      }
    }
    wgmma_commit();
    if (i + 1 < count) named_arrive(TURN + 1 - group, CONSUMERS * WARPGROUP);
    wgmma_wait<0>();
    if (thread == 0) {
      barrier_arrive_at(empty + 8 * slot);
      barrier_arrive_at(empty + 8 * (slot + 1 == RING ? 0 : slot + 1));
    }
    slot += CONSUMERS;
    if (slot >= RING) slot -= RING;
    conv64_stage<T>(d, bias, bias8, p.relu, rows);
    warpgroup_sync(group);
    conv64_store<T>(p, row_pixel, rows);
  }
}

// y or dx [n, h, w, 64] of `in` [n, h, w, 64]. Persistent blocks, a piece of the row of pixels each.
template <class T, bool BACKWARD>
__global__ __launch_bounds__(KERNEL_THREADS, 1) void conv64_kernel(const __grid_constant__ Conv64Params p) {
  if constexpr (HAS_WGMMA) {
    __shared__ Conv64Shared shared;
    const uint32_t ring = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    const int first = (int64_t)p.tiles * blockIdx.x / gridDim.x,
              count = (int)((int64_t)p.tiles * (blockIdx.x + 1) / gridDim.x) - first;
    if (threadIdx.x == 0) {
      barrier_init(pinned_address(&shared.filter_full), 1);
      barrier_init(pinned_address(&shared.filter_empty), 1);
      pipeline_init(shared.ring, 1, CONSUMERS);
    }
    __syncthreads();
    grid_wait_prerequisite();
    grid_launch_dependents();
    if (uniform(threadIdx.x / WARPGROUP) == CONSUMERS) {
      registers_dealloc<KERNEL_PRODUCER_REGISTERS>();
      if (threadIdx.x == CONSUMERS * WARPGROUP) conv64_produce(p, shared, ring, first, count);
    } else {
      registers_alloc<KERNEL_CONSUMER_REGISTERS>();
      conv64_consume<T, BACKWARD>(p, shared, ring, first, count);
    }
  }
}

// Whether the ring has room for what two tiles read, and one more; and the epilogue stores such a destination.
bool conv64_fits(const Conv *conv, const Tensor *in, const Tensor *w, const Dest *out) {
  return conv64_is(conv, in, w) && tiles_read(in->w + 1) + CONSUMERS <= RING && out->t.ldc == CONV64_CHANNELS &&
         !out->addend && !out->accumulate && !out->moments && !out->pool;
}

template <class T, bool BACKWARD> static void launch(Device *dev, const Conv64Params &p) {
  auto kernel = conv64_kernel<T, BACKWARD>;
  allow_shared(kernel, KERNEL_SHARED);
  cudaLaunchAttribute follow = dependent_launch_attribute();
  cudaLaunchConfig_t config = {};
  config.gridDim = MIN(p.tiles, granted_to_products(dev));
  config.blockDim = KERNEL_THREADS;
  config.dynamicSmemBytes = KERNEL_SHARED;
  config.stream = stream_of(dev);
  config.attrs = &follow;
  config.numAttrs = granted_to_products(dev) == dev->multiprocessors && !dev->contended; // as wgmma_kernel
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, p));
}

void conv64(Device *dev, bool backward, const Tensor *in, const Tensor *w, const Dest *out) {
  if (!in->n) return;
  const Im2col read = conv64_row(in, 1), written = conv64_row(in, 0);
  const Im2colView view = im2col_view(in, &written);
  Conv64Params p = {};
  p.in = map_im2col(in, &read, TILE, MAP_OPERAND_PROMOTED);
  p.out = out->t;
  if (out->mask) p.mask = *out->mask;
  p.filter = map_filters(w, CONV64_CHANNELS, CONV64_CHANNELS);
  p.bias = (const float *)out->bias;
  p.relu = out->relu;
  p.pitch = view.width.by;
  p.tiles = blocks_for(view_capacity(view), TILE);
  p.area = view.area;
  p.width = view.width;
  if (in->dtype == BF16)
    (backward ? launch<__nv_bfloat16, true> : launch<__nv_bfloat16, false>)(dev, p);
  else
    (backward ? launch<__half, true> : launch<__half, false>)(dev, p);
}
