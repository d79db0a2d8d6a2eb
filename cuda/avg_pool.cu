// Average pooling, over windows and adaptive. Every kernel gives a thread to each vector of eight channels of what it
// writes, and gathers: loads and stores are coalesced 16-byte accesses, no atomics, sums in the reference's order.
// Bound by memory.
#include "cuda/common.cuh"
extern "C" {
#include "exact/avg_windows.h"
}

enum {
  THREADS = 256,
  FORWARD_THREADS = 64, // few threads with long sums, to be spread over all multiprocessors
  AT_ONCE = 8,          // pixels whose loads are in flight
};

// sum += v / divisor.
static __device__ __forceinline__ void add_share(Eight &sum, const Eight &v, float divisor) {
#pragma unroll
  for (int k = 0; k < 8; k++) sum.v[k] += v.v[k] / divisor;
}

// y [n, p, q, c] = the means of the windows of x [n, h, w, c], and the epilogue.
template <class T>
__global__ void avg_pool_forward_kernel(const __grid_constant__ AvgPool pool, Tensor x,
                                        const __grid_constant__ DestArgs y, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(y.t, i);
  if (p.n >= rows_of(x)) return;
  PoolSpan ys = avg_window(&pool, p.y, y.t.h, x.h), xs = avg_window(&pool, p.x, y.t.w, x.w);
  Eight sum = {}, mean = {};
  for (int iy = ys.first; iy < ys.last; iy++)
    for (int ix = xs.first; ix < xs.last; ix += AT_ONCE) {
      Raw8<T> next[AT_ONCE];
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++)
        if (ix + k < xs.last) next[k] = read8(pixel<T>(x, p.n, iy, ix + k) + p.c);
#pragma unroll
      for (int k = 0; k < AT_ONCE; k++)
        if (ix + k < xs.last) add8(sum, to_eight<T>(next[k]));
    }
  if (ys.first < ys.last && xs.first < xs.last)
    add_share(mean, sum, (float)avg_divisor(&pool, p.y, y.t.h, x.h) * (float)avg_divisor(&pool, p.x, y.t.w, x.w));
  dest_store8<T>(y, p.n, p.y, p.x, p.c, mean);
}

// dx [n, h, w, c]: each pixel gathers its share of the gradients of the windows that cover it, in row-major order; then
// the epilogue.
template <class T>
__global__ void avg_pool_backward_kernel(const __grid_constant__ AvgPool pool, Tensor dy,
                                         const __grid_constant__ DestArgs dx, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(dx.t, i);
  if (p.n >= rows_of(dy)) return;
  PoolSpan outs_y = avg_windows_of(&pool, p.y, dy.h, dx.t.h), outs_x = avg_windows_of(&pool, p.x, dy.w, dx.t.w);
  Eight sum = {};
  for (int oy = outs_y.first; oy < outs_y.last; oy++) {
    float high = (float)avg_divisor(&pool, oy, dy.h, dx.t.h);
    for (int ox = outs_x.first; ox < outs_x.last; ox++)
      add_share(sum, load8(pixel<T>(dy, p.n, oy, ox) + p.c), high * (float)avg_divisor(&pool, ox, dy.w, dx.t.w));
  }
  dest_store8<T>(dx, p.n, p.y, p.x, p.c, sum);
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static void check_shapes(const AvgPool *p, const Tensor *x, const Tensor *y) {
  CHECK(p->window.size >= 0 && p->window.pad >= 0 && (!p->window.size || p->window.stride > 0));
  CHECK(x->dtype == y->dtype && x->ldc == y->ldc && x->n == y->n);
  CHECK(avg_pool_fits(p, x->h, y->h) && avg_pool_fits(p, x->w, y->w));
}

extern "C" void cuda_avg_pool_forward(Device *dev, const AvgPool *pool, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  check_shapes(pool, x, &y->t);
  unsigned eights = eights_of(&y->t);
  if (!eights) return;
  WITH_TYPE(x->dtype, T, {
    avg_pool_forward_kernel<T>
        <<<blocks_for(eights, FORWARD_THREADS), FORWARD_THREADS, 0, stream_of(dev)>>>(*pool, *x, dest_args(y), eights);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_avg_pool_backward(Device *dev, const AvgPool *pool, const Tensor *dy, const Dest *dx) {
  if (dev->measuring) return;
  check_shapes(pool, &dx->t, dy);
  unsigned eights = eights_of(&dx->t);
  if (!eights) return;
  WITH_TYPE(dy->dtype, T, {
    avg_pool_backward_kernel<T>
        <<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(*pool, *dy, dest_args(dx), eights);
    LAUNCH_CHECK();
  })
}
