// Concatenation along channels, and the cut that is its gradient. A thread for each vector of eight channels of what is
// written; where parts begin at multiples of eight it is one load, else eight loads from one or two lines. Bound by
// memory.
#include "cuda/common.cuh"

enum { THREADS = 256 };

struct ConcatParts {
  Tensor x[MAX_CONCAT];
  int first[MAX_CONCAT + 1]; // channel of y with which each begins, and where the last ends
  int count;
};

// Channels c … c + 7 of row p of x; 0 where there is no such channel.
template <class T> static __device__ Eight load_any(const T *p, int c, int channels) {
  Eight e;
  if (c % 8 == 0) return load8(p + c);
#pragma unroll
  for (int k = 0; k < 8; k++) e.v[k] = c + k < channels ? to_float(p[c + k]) : 0;
  return e;
}

// y [n, h, w, Σ c] = the parts side by side, and the epilogue.
template <class T>
__global__ void concat_kernel(const __grid_constant__ ConcatParts parts, const __grid_constant__ DestArgs y,
                              unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(y.t, i);
  if (p.n >= rows_of(y.t)) return;
  int part = 0;
  while (part + 1 < parts.count && p.c >= parts.first[part + 1]) part++;
  Eight v;
  if (p.c + 8 <= parts.first[part + 1] || part + 1 == parts.count) { // all of it is in this one
    v = load_any(pixel<T>(parts.x[part], p.n, p.y, p.x), p.c - parts.first[part], parts.x[part].c);
  } else {
#pragma unroll
    for (int k = 0; k < 8; k++) {
      while (part + 1 < parts.count && p.c + k >= parts.first[part + 1]) part++;
      int c = p.c + k - parts.first[part];
      v.v[k] = c < parts.x[part].c ? to_float(pixel<T>(parts.x[part], p.n, p.y, p.x)[c]) : 0;
    }
  }
  dest_store8<T>(y, p.n, p.y, p.x, p.c, v);
}

// y [n, h, w, c] = channels first … of x, and the epilogue.
template <class T>
__global__ void slice_kernel(int first, Tensor x, const __grid_constant__ DestArgs y, unsigned eights) {
  unsigned i = thread_index();
  if (i >= eights) return;
  VectorPosition p = position_of(y.t, i);
  if (p.n >= rows_of(y.t)) return;
  dest_store8<T>(y, p.n, p.y, p.x, p.c, load_any(pixel<T>(x, p.n, p.y, p.x), first + p.c, x.c));
}

// ---- launchers ------------------------------------------------------------------------------------------------------

static void check_like(const Tensor *x, const Tensor *y) {
  CHECK(x->dtype == y->dtype && x->n == y->n && x->h == y->h && x->w == y->w && x->ldc % 8 == 0);
}

extern "C" void cuda_concat(Device *dev, int count, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  CHECK(count > 0 && count <= MAX_CONCAT);
  ConcatParts parts = {};
  parts.count = count;
  for (int i = 0; i < count; i++) {
    check_like(&x[i], &y->t);
    parts.x[i] = x[i];
    parts.first[i + 1] = parts.first[i] + x[i].c;
  }
  CHECK(parts.first[count] == y->t.c);
  unsigned eights = eights_of(&y->t);
  if (!eights) return;
  WITH_TYPE(y->t.dtype, T, {
    concat_kernel<T><<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(parts, dest_args(y), eights);
    LAUNCH_CHECK();
  })
}

extern "C" void cuda_slice(Device *dev, int first, const Tensor *x, const Dest *y) {
  if (dev->measuring) return;
  check_like(x, &y->t);
  CHECK(first >= 0 && first + y->t.c <= x->c);
  unsigned eights = eights_of(&y->t);
  if (!eights) return;
  WITH_TYPE(y->t.dtype, T, {
    slice_kernel<T><<<blocks_for(eights, THREADS), THREADS, 0, stream_of(dev)>>>(first, *x, dest_args(y), eights);
    LAUNCH_CHECK();
  })
}
