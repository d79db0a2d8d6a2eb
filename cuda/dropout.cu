// Dropout by keyed draws: forward, and of a gradient backward. A thread for each vector of eight channels; the step's
// number is read on the device, so that a captured CUDA graph draws anew in every replay. Two hashes an element hide
// behind the memory traffic.
#include "cuda/common.cuh"
extern "C" {
#include "exact/dropout.h"
}

enum { THREADS = 256 };

template <class T>
__global__ void dropout_kernel(const __grid_constant__ Dropout p, Tensor x, const __grid_constant__ DestArgs y,
                               unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition at = position_of(y.t, i);
  if (at.n >= rows_of(y.t)) return;
  DropoutRule rule = dropout_rule(&p);
  uint64_t first = dropout_element(&p, &y.t, at.n, at.y, at.x) + at.c;
  Eight v = load8(pixel<T>(x, at.n, at.y, at.x) + at.c);
#pragma unroll
  for (int k = 0; k < 8; k++) v.v[k] = dropout_apply(&rule, first + k, v.v[k]);
  dest_store8<T>(y, at.n, at.y, at.x, at.c, v);
}

extern "C" void cuda_dropout(Device *dev, const Dropout *p, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  const Tensor *t = &y->t;
  CHECK(x->dtype == t->dtype && x->ldc == t->ldc && x->h == t->h && x->w == t->w && p->p >= 0 && p->p <= 1);
  unsigned eights = eights_of(t);
  if (!eights) return;
  WITH_TYPE(x->dtype, T, {
    dropout_kernel<T><<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(*p, *x, dest_args(y), eights);
    LAUNCH_CHECK();
  })
}
