// Max pooling, and the elementwise copy through a Dest. Every kernel in this file gives a thread to each vector of
// eight channels of what it writes, and gathers: loads and stores are coalesced 16-byte accesses, no atomics. Bound by
// memory. The gradient of the usual windows is pool_strips.cuh's.
#include "cuda/pool_strips.cuh"
extern "C" {
#include "exact/pool_windows.h"
}

enum { THREADS = 256 };

// Scanning a window in row-major order, `next` takes the place of the maximum so far: ties stay with the first; NaN
// counts as the largest, the last of several wins, as in PyTorch.
static __device__ __forceinline__ bool replaces(float next, float max) { return next > max || next != next; }

// ---- kernels --------------------------------------------------------------------------------------------------------

// y = x, or 0 where x is absent, and the epilogue.
template <class T> __global__ void copy_kernel(Tensor x, DestArgs y, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(y.t, i);
  if (p.n >= rows_of(y.t)) return;
  dest_store8<T>(y, p.n, p.y, p.x, p.c, x.data ? load8(pixel<T>(x, p.n, p.y, p.x) + p.c) : Eight{});
}

// Eight channels as they are stored, each the larger of two; next's are the later ones. Sixteen-bit types by pairs
// without conversion, which makes every NaN the quiet one, and of two zeros takes +0.
template <class T> static __device__ __forceinline__ void keep_larger(Raw8<T> &best, const Raw8<T> &next) {
  if constexpr (sizeof(T) == 4) {
    float *max = (float *)&best;
    const float *v = (const float *)&next;
#pragma unroll
    for (int k = 0; k < 8; k++) max[k] = replaces(v[k], max[k]) ? v[k] : max[k];
  } else {
    using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
    Pair *max = (Pair *)&best;
    const Pair *v = (const Pair *)&next;
#pragma unroll
    for (int k = 0; k < 4; k++) max[k] = __hmax2_nan(max[k], v[k]);
  }
}

// y [n, p, q, c] = the maxima of the windows of x [n, h, w, c], and the epilogue. Grid (vectors of a row, rows, n).
// Windows overlap, so x is read size² / stride² times, mostly from the caches. SIZE 3: in each window there is a pixel,
// and where it reaches beyond x, the pixels at the border are looked at again: no branches, all loads at once. SIZE 0:
// any size.
template <class T, int SIZE> __global__ void max_pool_forward_kernel(Pool pool, Tensor x, DestArgs y) {
  int i = thread_index(), eights = y.t.ldc / 8, ox = i / eights, oy = blockIdx.y, n = blockIdx.z;
  if (ox >= y.t.w || n >= rows_of(x)) return;
  int c = (i - ox * eights) * 8;
  PoolSpan ys = pool_window(&pool, oy, x.h), xs = pool_window(&pool, ox, x.w);
  Raw8<T> best;
  if constexpr (SIZE) {
    const T *image = pixel<T>(x, n, 0, 0) + c;
    uint32_t row = x.w * x.ldc; // elements; an image has fewer than 2³²
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) {
      uint32_t iy = min(ys.first + k / SIZE, ys.last - 1), ix = min(xs.first + k % SIZE, xs.last - 1);
      Raw8<T> next = read8(image + (iy * row + ix * x.ldc));
      if (k)
        keep_larger<T>(best, next);
      else
        best = next;
    }
  } else {
    Eight least;
#pragma unroll
    for (int k = 0; k < 8; k++) least.v[k] = -INFINITY;
    store8((T *)&best, least);
    for (int iy = ys.first; iy < ys.last; iy++)
      for (int ix = xs.first; ix < xs.last; ix++) keep_larger<T>(best, read8(pixel<T>(x, n, iy, ix) + c));
  }
  dest_store8<T>(y, n, oy, ox, c, to_eight<T>(best));
}

// The argmax of every window, a byte: tap [n, p, q, c] is the tap, in row-major order, that holds the maximum. First
// pass of the gradient by gathering, so that x is read for each window once and not for each window and tap. SIZE as
// above: a pixel at the border that is looked at again loses against itself, or is the same tap.
template <class T, int SIZE>
__global__ void max_pool_argmax_kernel(Pool pool, Tensor x, Tensor y, uint2 *tap, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(y, i);
  if (p.n >= rows_of(x)) return;
  PoolSpan ys = pool_window(&pool, p.y, x.h), xs = pool_window(&pool, p.x, x.w);
  const int first_tap = (pool.pad - p.y * pool.stride) * pool.size + pool.pad - p.x * pool.stride;
  Eight best;
  unsigned at[8] = {}; // of a window entirely in the padding: no pixel belongs to it, so none asks
  auto look = [&](const Raw8<T> &raw, int iy, int ix, bool first) {
    const Eight next = to_eight<T>(raw);
    const unsigned here = first_tap + iy * pool.size + ix;
#pragma unroll
    for (int k = 0; k < 8; k++)
      if (first || replaces(next.v[k], best.v[k])) { // even where all are -inf there is a maximum
        best.v[k] = next.v[k];
        at[k] = here;
      }
  };
  if constexpr (SIZE) {
    Raw8<T> window[SIZE * SIZE];
    int iy[SIZE], ix[SIZE];
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
      iy[k] = min(ys.first + k, ys.last - 1);
      ix[k] = min(xs.first + k, xs.last - 1);
    }
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) window[k] = read8(pixel<T>(x, p.n, iy[k / SIZE], ix[k % SIZE]) + p.c);
#pragma unroll
    for (int k = 0; k < SIZE * SIZE; k++) look(window[k], iy[k / SIZE], ix[k % SIZE], k == 0);
  } else {
    for (int iy = ys.first; iy < ys.last; iy++)
      for (int ix = xs.first; ix < xs.last; ix++)
        look(read8(pixel<T>(x, p.n, iy, ix) + p.c), iy, ix, iy == ys.first && ix == xs.first);
  }
  tap[i] = make_uint2(at[0] | at[1] << 8 | at[2] << 16 | at[3] << 24, at[4] | at[5] << 8 | at[6] << 16 | at[7] << 24);
}

// dx [n, h, w, c]: each pixel gathers the gradients of the windows whose maximum it is, in row-major order, where a
// scatter would need atomics and lose the order of sums; then the epilogue.
template <class T>
__global__ void max_pool_backward_kernel(Pool pool, Tensor dy, const uint2 *tap, DestArgs dx, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(dx.t, i);
  if (p.n >= rows_of(dy)) return;
  PoolSpan outs_y = pool_windows_of(&pool, p.y, dy.h), outs_x = pool_windows_of(&pool, p.x, dy.w);
  Eight sum = {};
  for (int oy = outs_y.first; oy < outs_y.last; oy++)
    for (int ox = outs_x.first; ox < outs_x.last; ox++) {
      const T *from = pixel<T>(dy, p.n, oy, ox) + p.c;
      const uint2 taps = tap[(from - (const T *)dy.data) / 8];
      const Eight g = load8(from);
      const unsigned here = (p.y - oy * pool.stride + pool.pad) * pool.size + p.x - ox * pool.stride + pool.pad;
#pragma unroll
      for (int k = 0; k < 8; k++) sum.v[k] += ((k < 4 ? taps.x : taps.y) >> k % 4 * 8 & 255) == here ? g.v[k] : 0.f;
    }
  dest_store8<T>(dx, p.n, p.y, p.x, p.c, sum);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

extern "C" void cuda_copy(Device *dev, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  CHECK(!x || (x->dtype == y->t.dtype && x->ldc == y->t.ldc && x->h == y->t.h && x->w == y->t.w));
  unsigned eights = eights_of(&y->t);
  if (!eights) return;
  WITH_TYPE(y->t.dtype, T, {
    copy_kernel<T>
        <<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(x ? *x : Tensor{}, dest_args(y), eights);
    LAUNCH_CHECK();
  })
}

static void check_shapes(const Pool *p, const Tensor *x, const Tensor *y) {
  CHECK(p->size > 0 && p->stride > 0 && p->pad >= 0);
  CHECK(x->dtype == y->dtype && x->ldc == y->ldc && x->n == y->n);
  CHECK(pool_fits(p, x->h, y->h) && pool_fits(p, x->w, y->w));
}

// Whether every window is of 3 × 3 and has a pixel.
static bool of_three(const Pool *pool) { return pool->size == 3 && pool->pad < 3; }

extern "C" void cuda_max_pool_forward(Device *dev, const Pool *pool, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  check_shapes(pool, x, &y->t);
  unsigned eights = eights_of(&y->t);
  if (!eights) return;
  const Tensor *t = &y->t;
  dim3 grid(blocks_for((size_t)t->w * (t->ldc / 8), THREADS), t->h, t->n);
  CHECK(t->h <= 65535 && t->n <= 65535 && tensor_elements(x) / x->n <= UINT32_MAX); // what grid and kernel can count
  WITH_TYPE(x->dtype, T, {
    auto kernel = of_three(pool) ? max_pool_forward_kernel<T, 3> : max_pool_forward_kernel<T, 0>;
    kernel<<<grid, THREADS, 0, stream_of(dev)>>>(*pool, *x, dest_args(y));
    LAUNCH_CHECK();
  })
}

typedef void GradientLauncher(Device *, const Pool *, const Tensor *, const Tensor *, const Dest *);

// The gradient by strips; NULL where they do not know the windows or the destination, or are slower: of floats and
// windows of 3 × 3 at every pixel. In 16 bits a thread there has four channels of two columns: windows are searched by
// two threads each, and registers are enough.
template <class T> static GradientLauncher *strips_for(const Pool *p, const Dest *dx) {
  constexpr int EIGHT = 8 / LANES<T>; // words of eight channels
  if (p->pad > 1 || !strips_cover(dx)) return NULL;
  if (p->size == 2 && p->stride == 2) return max_pool_strips<T, 2, 2, 2, EIGHT>;
  if (p->size == 3 && p->stride == 2) return max_pool_strips<T, 3, 2, 2, EIGHT>;
  if constexpr (sizeof(T) == 2)
    if (p->size == 3 && p->stride == 1) return max_pool_strips<T, 3, 1, 2, 2>;
  return NULL;
}

extern "C" void cuda_max_pool_backward(Device *dev, const Pool *pool, const Tensor *x, const Tensor *dy,
                                       const Dest *dx) {
  unsigned outputs = eights_of(dy), inputs = eights_of(&dx->t);
  WITH_TYPE(x->dtype, T, {
    GradientLauncher *strips = strips_for<T>(pool, dx);
    uint2 *tap = strips ? NULL : (uint2 *)device_workspace(dev, outputs * sizeof *tap);
    if (dev->measuring) return;
    check_shapes(pool, x, dy);
    CHECK(dx->t.ldc == x->ldc && dx->t.h == x->h && dx->t.w == x->w);
    if (!inputs) return;
    if (strips) {
      strips(dev, pool, x, dy, dx);
    } else {
      CHECK(pool->size * pool->size <= 256); // a tap is a byte
      if (outputs) {
        auto argmax = of_three(pool) ? max_pool_argmax_kernel<T, 3> : max_pool_argmax_kernel<T, 0>;
        argmax<<<blocks_for(outputs, THREADS), THREADS, 0, stream_of(dev)>>>(*pool, *x, *dy, tap, outputs);
        LAUNCH_CHECK();
      }
      max_pool_backward_kernel<T>
          <<<blocks_for(inputs, THREADS), THREADS, 0, stream_of(dev)>>>(*pool, *dy, tap, dest_args(dx), inputs);
      LAUNCH_CHECK();
    }
  })
}
