// The mask predictor at inference: a transposed convolution whose output nobody needs but one dot product, that of the
// detection's class. On Hopper's tensor cores, in 16-bit types; neither the output nor logits of other classes are
// written.
//
// One of the four taps is a GEMM by itself: M are the pixels of all detections, N and K channels. A threadblock keeps a
// tap's filter in shared memory for the whole launch and takes tiles of 64 pixels as they come from TMA, its two
// consumer warpgroups in turns (ping-pong): while one's products run, the other takes its accumulators through bias,
// ReLU and the class's weights, where they stand: rounded, they are mma.sync's operand A. Limit: the tensor cores.
#include "cuda/conv/wgmma.cuh"
extern "C" {
#include "exact/mask_bins.h"
}

enum {
  TAPS = 4, // of the transposed convolution, 2 × 2
  CHANNELS = MASK_PREDICT_CHANNELS,
  PANEL = 64, // of them: a swizzled row
  PANELS = CHANNELS / PANEL,
  TILE_BYTES = WGMMA_M * SWIZZLE_ROW, // of a tile of pixels, a panel of channels
  FILTER_BYTES = PANEL * SWIZZLE_ROW, // of the filter, a panel in and a panel out
  BANK_BYTES = PANELS * PANELS * FILTER_BYTES,
  STAGE_BYTES = PANELS * TILE_BYTES,
  STAGES = 3,
  SHARED_BYTES = SWIZZLE_ATOM + BANK_BYTES + STAGES * STAGE_BYTES,
  THREADS = CONSUMERS * WARPGROUP + 32,
  TURN = 1, // named barriers, one for each consumer warpgroup: the other has issued its products
};
static_assert(SHARED_BYTES <= MAX_SHARED - 2048);
static_assert((int)MASK_PREDICT_LEAST_PIXELS >= WGMMA_WARP_M, "a warp's rows are of two detections at most");

struct PredictParams {
  CUtensorMap pixels, filter; // [pixels, channels]; [channels in, taps, channels out]
  Boxes detections;
  Tensor x, classes, probs; // classes [classes, 1, 1, channels out]
  const float *bias, *class_bias;
  int channels;        // out
  int panels;          // in
  Divider area, width; // of x
};

struct PredictShared {
  alignas(8) float bias[CHANNELS];
  PipelineBarriers<STAGES> pipe;
  uint64_t filter;
};

// Which tiles are a block's: every members-th of its tap's.
struct BlockTiles {
  int tap, first, step, count;
};
__device__ __forceinline__ BlockTiles block_tiles(const PredictParams &p) {
  int tiles = (rows_of(p.x) * (int)p.area.by + WGMMA_M - 1) / WGMMA_M, step = gridDim.x / TAPS;
  int first = blockIdx.x / TAPS;
  return {(int)blockIdx.x % TAPS, first, step, tiles > first ? (tiles - first + step - 1) / step : 0};
}

// ---- products -------------------------------------------------------------------------------------------------------

__device__ void predict_produce(const PredictParams &p, PredictShared &s, uint32_t bank, const BlockTiles &b) {
  uint32_t filter = pinned_address(&s.filter);
  barrier_expect(filter, p.panels * PANELS * FILTER_BYTES);
  for (int k = 0; k < p.panels; k++)
    for (int i = 0; i < PANELS; i++)
      tma_load(bank + (k * PANELS + i) * FILTER_BYTES, &p.filter, filter, i * PANEL, b.tap, k * PANEL, 0);
  PipelineState<STAGES> pipe(s.pipe);
  for (int i = 0; i < b.count; i++, pipe.advance()) {
    uint32_t stage = bank + BANK_BYTES + pipe.stage * STAGE_BYTES;
    pipe.wait_empty();
    barrier_expect(pipe.full, p.panels * TILE_BYTES);
    for (int k = 0; k < p.panels; k++)
      tma_load(stage + k * TILE_BYTES, &p.pixels, pipe.full, k * PANEL, 0, (b.first + i * b.step) * WGMMA_M, 0);
  }
}

// Issues the wgmmas of a tile.
template <class T>
__device__ __forceinline__ void predict_multiply(float (&acc)[CHANNELS / 2], int panels, uint32_t stage,
                                                 uint32_t bank) {
  uint64_t a = matrix_descriptor(stage), b = matrix_descriptor(bank, FILTER_BYTES);
  wgmma_fence();
#pragma unroll 1
  for (int k = 0; k < panels; k++) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < PANEL / WGMMA_K; i++)
      wgmma<T, CHANNELS, true>(acc, a + (i * WGMMA_K * (int)sizeof(T) >> 4), b + (i * WGMMA_K * SWIZZLE_ROW >> 4),
                               k + i > 0);
    a += TILE_BYTES >> 4;
    b += PANELS * FILTER_BYTES >> 4;
  }
  wgmma_fence();
  wgmma_commit();
}

// ---- the class's logit ----------------------------------------------------------------------------------------------

// Where compacted row n stands, for n that never falls: its group, and how many rows the groups before have.
struct Cursor {
  int group, before;
  __device__ __forceinline__ void go_to(const Boxes &detections, int n) {
    while (group < detections.groups - 1 && n - before >= detections.count[group]) before += detections.count[group++];
  }
};
__device__ __forceinline__ int class_of(const PredictParams &p, const Cursor &at, int n) {
  return p.detections.index[at.group * p.detections.capacity + n - at.before] % p.classes.n;
}

// Of a warp's sixteen rows of the accumulators, from `row` on: bias, ReLU, rounded to T as the separate nodes round it,
// times the weights of each detection's class. B of mma.sync has a column for each of the two detections that the rows
// may belong to, whose weights lanes 0 … 3 and 4 … 7 hold; lanes whose number is a multiple of four get two rows'
// products with both.
template <class T>
__device__ __forceinline__ void predict_rows(const PredictParams &p, const float *bias,
                                             const float (&acc)[CHANNELS / 2], int tap, int row, Cursor &at) {
  int lane = threadIdx.x % 32, pair = 2 * (lane % 4), rows = rows_of(p.x) * (int)p.area.by;
  if (row >= rows) return;
  int first = divide(row, p.area), n = first + lane / 4;
  at.go_to(p.detections, first);
  const T *weights = NULL;
  float class_bias = 0;
  if (lane < 8 && n < rows_of(p.x)) {
    Cursor own = at;
    own.go_to(p.detections, n);
    int label = class_of(p, own, n);
    weights = (const T *)p.classes.data + (size_t)label * p.classes.ldc + pair;
    class_bias = p.class_bias[label];
  }
  float logit[4] = {};
#pragma unroll
  for (int q = 0; q < CHANNELS / 16; q++) {
    Fragment a, b = {};
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float *v = acc + 8 * q + 4 * half;
      float2 add = *(const float2 *)(bias + 16 * q + 8 * half + pair);
      a.r[2 * half] = pack<T>(positive_part(v[0] + add.x), positive_part(v[1] + add.y));
      a.r[2 * half + 1] = pack<T>(positive_part(v[2] + add.x), positive_part(v[3] + add.y));
      if (weights && 16 * q + 8 * half < p.classes.ldc) b.r[half] = *(const uint32_t *)(weights + 16 * q + 8 * half);
    }
    mma_sync<T>(logit, a, b, 0);
  }
  float bias0 = __shfl_sync(~0u, class_bias, 0), bias1 = __shfl_sync(~0u, class_bias, 4);
  if (lane % 4) return;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int at_row = row + lane / 4 + 8 * i;
    if (at_row >= rows) return;
    int own = divide(at_row, p.area), rest = at_row - own * p.area.by, y = divide(rest, p.width);
    float v = own > first ? logit[2 * i + 1] + bias1 : logit[2 * i] + bias0;
    *pixel<float>(p.probs, own, 2 * y + tap / 2, 2 * (rest - y * (int)p.width.by) + tap % 2) = sigmoid(v);
  }
}

// A consumer warpgroup: every second of its block's tiles. It waits for a stage in its turn, so that it never waits for
// a phase while the one before has not ended.
template <class T>
__device__ void predict_consume(const PredictParams &p, PredictShared &s, uint32_t bank, const BlockTiles &b,
                                int warpgroup) {
  PipelineState<STAGES> pipe(s.pipe);
  int warp = uniform(threadIdx.x % WARPGROUP / 32), other = 1 - warpgroup;
  Cursor at = {};
  barrier_wait(pinned_address(&s.filter), 0);
  if (warpgroup == 1) {
    pipe.advance();
    named_arrive(TURN + other, CONSUMERS * WARPGROUP);
  }
  for (int i = warpgroup; i < b.count + warpgroup; i += CONSUMERS) {
    float acc[CHANNELS / 2];
    named_sync(TURN + warpgroup, CONSUMERS * WARPGROUP);
    if (i >= b.count) break;
    pipe.wait_full();
    predict_multiply<T>(acc, p.panels, bank + BANK_BYTES + pipe.stage * STAGE_BYTES, bank);
    if (i + 1 < b.count + other) named_arrive(TURN + other, CONSUMERS * WARPGROUP);
    wgmma_wait<0>();
    if (threadIdx.x % WARPGROUP == 0) barrier_arrive_at(pipe.empty);
    predict_rows<T>(p, s.bias, acc, b.tap, (b.first + i * b.step) * WGMMA_M + warp * WGMMA_WARP_M, at);
    pipe.advance();
    pipe.advance();
  }
}

// ---- kernel ---------------------------------------------------------------------------------------------------------

// probs [detections, 2h, 2w, 1] from x [detections, h, w, channels]. A threadblock for each SM that is granted, a
// quarter of them for each tap: two consumer warpgroups and a producer warp.
template <class T>
__global__ __launch_bounds__(THREADS, 1) void predict_kernel(const __grid_constant__ PredictParams p) {
  if constexpr (HAS_WGMMA) {
    __shared__ PredictShared s;
    uint32_t bank = (pinned_address(dynamic_shared()) + SWIZZLE_ATOM - 1) / SWIZZLE_ATOM * SWIZZLE_ATOM;
    int warpgroup = uniform(threadIdx.x / WARPGROUP);
    BlockTiles b = block_tiles(p);
    if (b.count == 0) return;
    if (threadIdx.x == 0) {
      barrier_init(pinned_address(&s.filter), 1);
      pipeline_init(s.pipe, 1, 1);
    }
    for (int c = threadIdx.x; c < CHANNELS; c += THREADS) s.bias[c] = c < p.channels ? p.bias[c] : 0.f;
    __syncthreads();
    if (warpgroup < CONSUMERS)
      predict_consume<T>(p, s, bank, b, warpgroup);
    else if (threadIdx.x % 32 == 0)
      predict_produce(p, s, bank, b);
  }
}

template <class T> static void launch(Device *dev, const PredictParams &p) {
  auto kernel = predict_kernel<T>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES));
  kernel<<<MAX(TAPS, dev->granted / TAPS * TAPS), THREADS, SHARED_BYTES, stream_of(dev)>>>(p);
  LAUNCH_CHECK();
}

extern "C" void cuda_mask_predict(Device *dev, const Boxes *detections, const Tensor *x, const MaskPredictor *m,
                                  const Tensor *probs) {
  if (dev->measuring || !x->n) return;
  const Tensor *w = &m->filter, *classes = &m->classes;
  CHECK(dev->wgmma && (x->dtype == BF16 || x->dtype == F16) && w->dtype == x->dtype && classes->dtype == x->dtype);
  CHECK(w->h == 2 && w->w == 2 && w->n == x->c && w->ldc <= CHANNELS && x->ldc <= CHANNELS);
  CHECK(classes->c == w->c && classes->ldc == w->ldc && x->h * x->w >= MASK_PREDICT_LEAST_PIXELS &&
        tensor_pixels(x) >> 30 == 0);
  CHECK(probs->h == 2 * x->h && probs->w == 2 * x->w && probs->n == x->n && probs->dtype == F32 && probs->ldc == 1);
  PredictParams p = {};
  p.pixels = map_tiled(x->data, x->dtype, {(size_t)x->ldc, 1, tensor_pixels(x), 1}, {PANEL, 1, WGMMA_M, 1});
  p.filter = map_tiled(w->data, w->dtype, {(size_t)w->ldc, TAPS, (size_t)w->n, 1}, {PANEL, 1, PANEL, 1});
  p.detections = *detections;
  p.x = *x;
  p.classes = *classes;
  p.probs = *probs;
  p.bias = (const float *)m->bias;
  p.class_bias = (const float *)m->class_bias;
  p.channels = w->c;
  p.panels = blocks_for(x->ldc, PANEL);
  p.area = divider(x->h * x->w);
  p.width = divider(x->w);
  if (x->dtype == BF16)
    launch<__nv_bfloat16>(dev, p);
  else
    launch<__half>(dev, p);
}
