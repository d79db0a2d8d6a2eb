// A norm that pools what it makes by windows of 3 × 3 at stride 2: what is normalised, four times as large as the
// maxima, is in no memory. Forward reads x once more than its statistics do, and keeps of each maximum the x that it
// was made of and its tap (PoolArgmax): the sums of the gradient are taken over these. dx then gathers: the pixels of a
// 2 × 2 block lie in at most 2 × 2 windows. A thread has eight channels of a column of windows, or of blocks, and goes
// down a band of rows with what the next one needs, too. Bound by memory.
#include "cuda/norm_passes.cuh"

enum {
  TAPS = 3,   // along an axis
  STRIDE = 2, // of windows
  BAND = 8,   // rows of windows, or of blocks, of a thread
  POOL_THREADS = 128
};
// Threadblocks on a multiprocessor: registers hold more of what takes more.
template <class T> static constexpr int POOL_BLOCKS = sizeof(T) == 4 ? 3 : 4;

// ---- forward --------------------------------------------------------------------------------------------------------

// Scanning a window in row-major order, `next` takes the place of the maximum so far: ties stay with the first; NaN
// counts as the largest, the last of several wins, as in max_pool_forward.
static __device__ __forceinline__ bool replaces(float next, float max) { return next > max || next != next; }

// Of eight channels: the maximum so far, the x that it was made of, and where.
struct EightMaxima {
  Eight value, x;
  unsigned tap[8];
};
static __device__ __forceinline__ void take(EightMaxima &to, const EightMaxima &next, unsigned taps) {
#pragma unroll
  for (int k = 0; k < 8; k++)
    if (replaces(next.value.v[k], to.value.v[k])) {
      to.value.v[k] = next.value.v[k];
      to.x.v[k] = next.x.v[k];
      to.tap[k] = next.tap[k] + taps;
    }
}

// As elementwise passes of norm_passes.cuh have them.
struct EightScales {
  Eight mean, scale, shift;
};
// What an element is stored as: maxima are of these.
template <class T> static __device__ __forceinline__ float stored(float v) { return to_float(from_float<T>(v)); }

template <class T>
static __device__ __forceinline__ EightMaxima normalised(const Raw8<T> &raw, const EightScales &s, bool relu) {
  EightMaxima m;
  m.x = to_eight<T>(raw);
#pragma unroll
  for (int k = 0; k < 8; k++) {
    float v = stored<T>((m.x.v[k] - s.mean.v[k]) * s.scale.v[k] + s.shift.v[k]);
    m.value.v[k] = relu && v < 0.f ? 0.f : v; // NaN stays
    m.tap[k] = 0;
  }
  return m;
}

static __device__ __forceinline__ uint2 bytes_of(const unsigned *b) {
  return make_uint2(b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24, b[4] | b[5] << 8 | b[6] << 16 | b[7] << 24);
}

// y [n, p, q, c] = the maxima, argmax [n, p, q, c] and tap, a byte an element. Grid (vectors of a row of y, bands, n).
// Where a window reaches beyond x, pixels at the border are looked at again: they lose, or are the same tap.
template <class T>
__global__ void __launch_bounds__(POOL_THREADS, POOL_BLOCKS<T>)
    norm_pool_kernel(int pad, const __grid_constant__ NormTiling m, const float *gamma, const float *beta,
                     const float *stats, bool from_end, Tensor argmax, uint2 *tap, const __grid_constant__ DestArgs y) {
  const Tensor &x = m.x;
  const int eights = x.ldc / 8, i = blockIdx.x * blockDim.x + threadIdx.x, ox = i / eights, c = (i - ox * eights) * 8;
  const int n = from_end ? gridDim.z - 1 - blockIdx.z : blockIdx.z;
  grid_wait_prerequisite();
  if (ox >= y.t.w || n >= rows_of(x)) return;
  EightScales s;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const int channel = min(c + k, x.c - 1); // padding channels take anything: they are stored as zero
    const float *of_group = stats + 2 * group_of(m, m.per_image ? n : 0, channel);
    s.mean.v[k] = of_group[0];
    s.scale.v[k] = gamma[channel] * of_group[1];
    s.shift.v[k] = beta[channel];
  }
  const int left = ox * STRIDE - pad, first = blockIdx.y * BAND, end = min(first + BAND, y.t.h);
  const T *image = pixel<T>(x, n, 0, 0) + c;
  auto row_of = [&](int row) { return min(max(row, 0), x.h - 1); };
  auto column_of = [&](int k) { return min(max(left + k, 0), x.w - 1); };
  auto read_row = [&](Raw8<T> *to, int row) {
#pragma unroll
    for (int k = 0; k < TAPS; k++) to[k] = read8(image + ((size_t)row_of(row) * x.w + column_of(k)) * x.ldc);
  };
  auto search = [&](const Raw8<T> *pixels) {
    EightMaxima m = normalised<T>(pixels[0], s, y.relu);
#pragma unroll
    for (int k = 0; k < 8; k++) m.tap[k] = column_of(0) - left;
#pragma unroll
    for (int k = 1; k < TAPS; k++) take(m, normalised<T>(pixels[k], s, y.relu), column_of(k) - left);
    return m;
  };
  Raw8<T> pixels[2][TAPS];
  read_row(pixels[0], first * STRIDE - pad);
  EightMaxima above = search(pixels[0]); // the window's first row, which is the last one's of the window before
  for (int oy = first; oy < end; oy++) {
    const int top = oy * STRIDE - pad;
    read_row(pixels[0], top + 1);
    read_row(pixels[1], top + 2);
    EightMaxima best = above;
#pragma unroll
    for (int k = 0; k < 8; k++) best.tap[k] += TAPS * (row_of(top) - top);
    take(best, search(pixels[0]), TAPS * (row_of(top + 1) - top));
    above = search(pixels[1]);
    take(best, above, TAPS * (row_of(top + 2) - top));
    const size_t at = (((size_t)n * y.t.h + oy) * y.t.w + ox) * x.ldc + c;
    store8((T *)argmax.data + at, best.x);
    tap[at / 8] = bytes_of(best.tap);
    dest_write8<T>(y, at, c, best.value, {});
  }
}

void normalise_pooled(Device *dev, const NormTiling &m, const void *gamma, const void *beta, const void *stats,
                      bool from_end, const Dest *y) {
  const Tensor *x = &m.x, *t = &y->t, *argmax = &y->argmax->x;
  const Pool *p = y->pool;
  CHECK(p->size == TAPS && p->stride == STRIDE && p->pad >= 0 && p->pad <= 1);
  CHECK(t->dtype == x->dtype && t->ldc == x->ldc && t->n == x->n && t->c == x->c);
  CHECK(argmax->dtype == x->dtype && argmax->ldc == x->ldc && argmax->h == t->h && argmax->w == t->w);
  CHECK(t->h == pool_extent(p, x->h, false) || t->h == pool_extent(p, x->h, true));
  CHECK(t->w == pool_extent(p, x->w, false) || t->w == pool_extent(p, x->w, true));
  CHECK(!y->addend && !y->mask && !y->accumulate && t->n <= 65535);
  if (!tensor_elements(t)) return;
  const dim3 grid(blocks_for((size_t)t->w * (t->ldc / 8), POOL_THREADS), blocks_for(t->h, BAND), t->n);
  WITH_TYPE(x->dtype, T,
            launch_dependent(dev, norm_pool_kernel<T>, grid, POOL_THREADS, p->pad, m, (const float *)gamma,
                             (const float *)beta, (const float *)stats, from_end, *argmax, (uint2 *)y->argmax->tap,
                             dest_args(y)))
}

// ---- backward -------------------------------------------------------------------------------------------------------

// Four masks of eight bits, each the sign of a byte of `a`: of byte i where the digit of `select` is 8 + i.
static __device__ __forceinline__ uint32_t signs(uint32_t a, uint32_t select) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(d) : "r"(a), "r"(select));
  return d;
}

// What a window gives to its pixels.
template <class T> struct WindowGradient {
  Raw8<T> dy;
  uint2 tap;
};
// sum += dy where the window's maximum is at `tap`.
template <class T> static __device__ __forceinline__ void gather(Eight &sum, const WindowGradient<T> &w, uint32_t tap) {
  const uint32_t taps[2] = {w.tap.x, w.tap.y};
  Raw8<T> kept = w.dy;
  uint32_t *word = (uint32_t *)&kept;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const uint32_t no = (taps[half] ^ tap * 0x01010101u) + 0x7f7f7f7fu; // the sign of a byte: whether it differs
    if constexpr (sizeof(T) == 4) {
      word[4 * half] &= ~signs(no, 0x8888);
      word[4 * half + 1] &= ~signs(no, 0x9999);
      word[4 * half + 2] &= ~signs(no, 0xaaaa);
      word[4 * half + 3] &= ~signs(no, 0xbbbb);
    } else {
      word[2 * half] &= ~signs(no, 0x9988);
      word[2 * half + 1] &= ~signs(no, 0xbbaa);
    }
  }
  add8(sum, to_eight<T>(kept));
}

// dx [n, h, w, c], by blocks of 2 × 2 pixels, the first of which begins in the padding: block (i, j) is covered by
// windows (i - 1, j - 1) … (i, j). m: of the maxima. Grid (vectors of a row of blocks, bands, n).
template <class T>
__global__ void __launch_bounds__(POOL_THREADS, POOL_BLOCKS<T>)
    norm_pool_backward_kernel(int pad, const __grid_constant__ NormTiling m, Tensor x, Tensor dy, const uint2 *tap,
                              const float *gamma, const float *stats, const float *slopes, int columns, int rows,
                              const __grid_constant__ DestArgs dx) {
  const int eights = x.ldc / 8, i = blockIdx.x * blockDim.x + threadIdx.x, ox = i / eights, c = (i - ox * eights) * 8;
  const int n = blockIdx.z;
  grid_wait_prerequisite();
  if (ox >= columns || n >= rows_of(x)) return;
  Eight mean, of_dy, of_x, constant;
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const int channel = min(c + k, x.c - 1); // padding channels take anything: they are stored as zero
    const int group = group_of(m, m.per_image ? n : 0, channel);
    mean.v[k] = stats[2 * group];
    of_dy.v[k] = gamma[channel] * stats[2 * group + 1];
    of_x.v[k] = slopes[2 * group];
    constant.v[k] = slopes[2 * group + 1];
  }
  // Windows (row, ox - 1) and (row, ox).
  auto read_windows = [&](WindowGradient<T> *to, int row) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int column = ox - 1 + k;
      const bool any = row >= 0 && row < dy.h && column >= 0 && column < dy.w;
      const size_t at = any ? ((size_t)n * dy.h + row) * dy.w + column : 0;
      to[k].dy = any ? read8((const T *)dy.data + at * dy.ldc + c) : Raw8<T>{};
      to[k].tap = any ? tap[at * eights + c / 8] : make_uint2(0, 0); // whichever pixel gets 0
    }
  };
  const int first = blockIdx.y * BAND, end = min(first + BAND, rows);
  WindowGradient<T> above[2], own[2];
  read_windows(above, first - 1);
  for (int oy = first; oy < end; oy++) {
    const int top = oy * STRIDE - pad, left = ox * STRIDE - pad;
    auto there = [&](int k) {
      return top + k / 2 >= 0 && top + k / 2 < x.h && left + k % 2 >= 0 && left + k % 2 < x.w;
    };
    auto at = [&](int k) { return (((size_t)n * x.h + top + k / 2) * x.w + left + k % 2) * x.ldc + c; };
    read_windows(own, oy);
    Raw8<T> value[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (there(k)) value[k] = read8((const T *)x.data + at(k));
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int down = k / 2, right = k % 2; // within the block; taps in row-major order of the windows
      Eight sum = {};
      if (!down && !right) gather<T>(sum, above[0], 2 * TAPS + 2);
      if (!down) gather<T>(sum, above[1], 2 * TAPS + right);
      if (!right) gather<T>(sum, own[0], down * TAPS + 2);
      gather<T>(sum, own[1], down * TAPS + right);
      if (!there(k)) continue;
      const Eight v = to_eight<T>(value[k]);
#pragma unroll
      for (int j = 0; j < 8; j++) sum.v[j] = of_dy.v[j] * sum.v[j] + (of_x.v[j] * (v.v[j] - mean.v[j]) + constant.v[j]);
      if (dx.resized) add8(sum, dest_resized8<T>(dx, n, top + down, left + right, c));
      dest_write8<T>(dx, at(k), c, sum, dest_read8<T>(dx, at(k), {}));
    }
#pragma unroll
    for (int k = 0; k < 2; k++) above[k] = own[k];
  }
}

extern "C" void cuda_norm_pool_backward(Device *dev, int groups, const Pool *pool, const Tensor *x,
                                        const PoolArgmax *argmax, const Tensor *dy, const void *gamma,
                                        const void *stats, const Dest *dx, void *dgamma, void *dbeta, bool accumulate) {
  const NormTiling m = tiling_of(&argmax->x, groups);
  const size_t total = totals_elements(&m), slope = slopes_elements(&m), part = partial_elements(&m);
  double *totals = (double *)device_workspace(dev, total * sizeof(double) + (slope + part) * sizeof(float));
  if (!totals || !tensor_elements(x)) return;
  float *slopes = (float *)(totals + total), *partial = slopes + slope;
  CHECK(pool->size == TAPS && pool->stride == STRIDE && pool->pad >= 0 && pool->pad <= 1 && x->n <= 65535);
  CHECK(argmax->x.ldc == x->ldc && argmax->x.c == x->c);
  check_like(&argmax->x, dy);
  check_dest(x, dx);
  CHECK(dx->t.ldc == x->ldc);
  sum_gradients(dev, m, dy, stats, partial);
  write_totals(dev, m, x->h * x->w, partial, gamma, stats, totals, slopes, accumulate, dgamma, dbeta);
  const int columns = blocks_for(x->w + pool->pad, STRIDE), rows = blocks_for(x->h + pool->pad, STRIDE);
  const dim3 grid(blocks_for((size_t)columns * (x->ldc / 8), POOL_THREADS), blocks_for(rows, BAND), x->n);
  WITH_TYPE(x->dtype, T,
            launch_dependent(dev, norm_pool_backward_kernel<T>, grid, POOL_THREADS, pool->pad, m, *x, *dy,
                             (const uint2 *)argmax->tap, (const float *)gamma, (const float *)stats, slopes, columns,
                             rows, dest_args(dx)))
}
