// Max pooling, and the elementwise copy through a Dest. Every kernel gives a thread to each vector of eight channels of
// what it writes, and gathers: loads and stores are coalesced 16-byte accesses, no atomics. Bound by memory: the stem's
// pool runs at half the ceiling (results/profile-b4-h200.txt).
#include "cuda/common.cuh"
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
  VectorPlace p = place_of(y.t, i);
  if (p.n >= rows_of(y.t)) return;
  dest_store8<T>(y, p.n, p.y, p.x, p.c, x.data ? load8(pixel<T>(x, p.n, p.y, p.x) + p.c) : Eight{});
}

// y [n, p, q, c] = the maxima of the windows of x [n, h, w, c], and the epilogue. Windows overlap, so x is read size² /
// stride² times, mostly from the caches.
template <class T> __global__ void max_pool_forward_kernel(Pool pool, Tensor x, DestArgs y, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPlace p = place_of(y.t, i);
  if (p.n >= rows_of(x)) return;
  PoolSpan ys = pool_window(&pool, p.y, x.h), xs = pool_window(&pool, p.x, x.w);
  Eight best;
#pragma unroll
  for (int k = 0; k < 8; k++) best.v[k] = -INFINITY;
  for (int iy = ys.first; iy < ys.last; iy++)
    for (int ix = xs.first; ix < xs.last; ix++) {
      Eight next = load8(pixel<T>(x, p.n, iy, ix) + p.c);
#pragma unroll
      for (int k = 0; k < 8; k++) best.v[k] = replaces(next.v[k], best.v[k]) ? next.v[k] : best.v[k];
    }
  dest_store8<T>(y, p.n, p.y, p.x, p.c, best);
}

// The argmax of every window, a byte: tap [n, p, q, c] is the tap, in row-major order, that holds the maximum. First
// pass of the gradient, so that x is read for each window once and not for each window and tap.
template <class T> __global__ void max_pool_argmax_kernel(Pool pool, Tensor x, Tensor y, uint2 *tap, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPlace p = place_of(y, i);
  if (p.n >= rows_of(x)) return;
  PoolSpan ys = pool_window(&pool, p.y, x.h), xs = pool_window(&pool, p.x, x.w);
  Eight best;
  uint8_t at[8];
  for (int iy = ys.first; iy < ys.last; iy++)
    for (int ix = xs.first; ix < xs.last; ix++) {
      Eight next = load8(pixel<T>(x, p.n, iy, ix) + p.c);
      bool first = iy == ys.first && ix == xs.first; // even where all are -inf there is a maximum
      int here = (iy - p.y * pool.stride + pool.pad) * pool.size + ix - p.x * pool.stride + pool.pad;
#pragma unroll
      for (int k = 0; k < 8; k++)
        if (first || replaces(next.v[k], best.v[k])) {
          best.v[k] = next.v[k];
          at[k] = (uint8_t)here;
        }
    }
  // A window entirely in the padding stores whatever was in `at`: no pixel belongs to it, so none asks.
  tap[i] = make_uint2(at[0] | at[1] << 8 | at[2] << 16 | (unsigned)at[3] << 24,
                      at[4] | at[5] << 8 | at[6] << 16 | (unsigned)at[7] << 24);
}

// dx [n, h, w, c]: each pixel gathers the gradients of the windows whose maximum it is, in row-major order, where a
// scatter would need atomics and lose the order of sums; then the epilogue.
template <class T>
__global__ void max_pool_backward_kernel(Pool pool, Tensor dy, const uint2 *tap, DestArgs dx, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPlace p = place_of(dx.t, i);
  if (p.n >= rows_of(dy)) return;
  PoolSpan outs_y = pool_windows_of(&pool, p.y, dy.h), outs_x = pool_windows_of(&pool, p.x, dy.w);
  Eight sum = {};
  for (int oy = outs_y.first; oy < outs_y.last; oy++)
    for (int ox = outs_x.first; ox < outs_x.last; ox++) {
      const T *from = pixel<T>(dy, p.n, oy, ox) + p.c;
      uint2 taps = tap[(from - (const T *)dy.data) / 8];
      Eight g = load8(from);
      unsigned here = (p.y - oy * pool.stride + pool.pad) * pool.size + p.x - ox * pool.stride + pool.pad;
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
  CHECK(y->h == (x->h + 2 * p->pad - p->size) / p->stride + 1);
  CHECK(y->w == (x->w + 2 * p->pad - p->size) / p->stride + 1);
}

extern "C" void cuda_max_pool_forward(Device *dev, const Pool *pool, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  check_shapes(pool, x, &y->t);
  unsigned eights = eights_of(&y->t);
  if (!eights) return;
  WITH_TYPE(x->dtype, T, {
    max_pool_forward_kernel<T>
        <<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(*pool, *x, dest_args(y), eights);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_max_pool_backward(Device *dev, const Pool *pool, const Tensor *x, const Tensor *dy,
                                       const Dest *dx) {
  unsigned outputs = eights_of(dy), inputs = eights_of(&dx->t);
  uint2 *tap = (uint2 *)device_workspace(dev, outputs * sizeof *tap);
  if (!tap) return;
  check_shapes(pool, x, dy);
  CHECK(pool->size * pool->size <= 256); // a tap is a byte
  CHECK(dx->t.ldc == x->ldc && dx->t.h == x->h && dx->t.w == x->w);
  if (!inputs) return;
  WITH_TYPE(x->dtype, T, {
    if (outputs) {
      max_pool_argmax_kernel<T>
          <<<blocks_for(outputs, THREADS), THREADS, 0, stream_of(dev)>>>(*pool, *x, *dy, tap, outputs);
      LAUNCH_CHECK();
    }
    max_pool_backward_kernel<T>
        <<<blocks_for(inputs, THREADS), THREADS, 0, stream_of(dev)>>>(*pool, *dy, tap, dest_args(dx), inputs);
    LAUNCH_CHECK();
  })
}
