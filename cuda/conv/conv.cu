// The convolution ops of nn/ops.h: check the shapes, see a fully connected layer as a 1 × 1 convolution, and hand the
// problem to a rung of the ladder.
#include "cuda/conv/bias_shadow.cuh"
#include "cuda/conv/implicit_gemm.cuh"
#include "cuda/conv/ladder.h"

// ---- the rung -------------------------------------------------------------------------------------------------------

const Rung *conv_fastest_rung(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  int i = 0;
  while (conv_rungs[i]) i++;
  while (i--)
    if (conv_rungs[i]->supports(dev, op, conv, in, w)) return conv_rungs[i];
  die_unforeseen("no rung computes this convolution");
}

// The rung asked for where it supports the problem, else the fastest.
static const Rung *choose(Device *dev, ConvOp op, const Conv *conv, const Tensor *in, const Tensor *w) {
  const Rung *asked = dev->conv_rung;
  return asked && asked->supports(dev, op, conv, in, w) ? asked : conv_fastest_rung(dev, op, conv, in, w);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

static void check_sides(const Conv *conv, const Tensor *w, const Tensor *big, const Tensor *small) {
  CHECK(conv->stride > 0 && big->n == small->n);
  CHECK(small->h == (big->h + 2 * conv->pad - w->h) / conv->stride + 1);
  CHECK(small->w == (big->w + 2 * conv->pad - w->w) / conv->stride + 1);
  CHECK(big->c == w->c && big->ldc == w->ldc && small->c == w->n && small->ldc == channel_pitch(w->n));
  CHECK(w->ldc == channel_pitch(w->c) && big->dtype == small->dtype);
  CHECK(tensor_elements(w) < (size_t)1 << 31); // kernels count its elements in int
}

static void check_dest(const Dest *d) {
  const Tensor *t = &d->t, *a = d->addend, *m = d->mask;
  CHECK(!a || (a->ldc == t->ldc && a->dtype == t->dtype));
  CHECK(!m || (m->ldc == t->ldc && m->dtype == t->dtype && m->h == t->h && m->w == t->w));
}

// A filter that covers its input has one output pixel: the same sums as a 1 × 1 convolution of one pixel with h · w ·
// ldc channels, which needs no im2col and whose gradient has no taps in the padding. Padding channels would become
// channels of the result in two of the three ops, so there must be none.
static bool is_flat(const Conv *conv, int pairs, const Tensor *x, const Tensor *w) {
  return pairs == 1 && !conv->pad && w->h * w->w > 1 && x->h == w->h && x->w == w->w && x->c == x->ldc;
}
static Tensor flat(const Tensor *t) {
  Tensor f = *t;
  f.h = f.w = 1;
  f.c = f.ldc = t->h * t->w * t->ldc;
  return f;
}
static const Conv one_by_one = {1, 0};

// ---- ops ------------------------------------------------------------------------------------------------------------

extern "C" void cuda_conv_forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w,
                                  const Dest *y) {
  CHECK(pairs <= CONV_MAX_PAIRS && w->dtype == x->dtype);
  const Rung *rung = choose(dev, CONV_FORWARD, conv, x, w);
  CHECK(!y->moments || (pairs == 1 && rung->moments));
  if (y->pool) {
    CHECK(pairs == 1 && rung->pools && rung->pools(dev, conv, y->pool, x, w));
    return rung->forward(dev, conv, 1, x, w, y);
  }
  for (int i = 0; i < pairs; i++) {
    check_sides(conv, w, &x[i], &y[i].t);
    check_dest(&y[i]);
  }
  if (!is_flat(conv, pairs, x, w)) return rung->forward(dev, conv, pairs, x, w, y);
  Tensor x1 = flat(x), w1 = flat(w);
  rung->forward(dev, &one_by_one, 1, &x1, &w1, y);
}

// A y that is small or narrow is read again from L2, sooner than the epilogue has its sums.
extern "C" int cuda_conv_moments(Device *dev, const Conv *conv, const Tensor *x, const Tensor *w, const Tensor *y) {
  enum { LEAST_CHANNELS = 128, LEAST_BYTES = 8 << 20 };
  const Rung *rung = choose(dev, CONV_FORWARD, conv, x, w);
  const bool pays = y->c >= LEAST_CHANNELS && tensor_bytes(y) >= LEAST_BYTES;
  return pays && rung->moments && !x->count ? rung->moments(dev, conv, x, w, y) : 0;
}

extern "C" bool cuda_conv_pools(Device *dev, const Conv *conv, const Pool *pool, const Tensor *x, const Tensor *w) {
  const Rung *rung = choose(dev, CONV_FORWARD, conv, x, w);
  return rung->pools && rung->pools(dev, conv, pool, x, w);
}

// The rung for all of it.
static const Rung *choose_bottleneck(Device *dev, const Bottleneck *b, const Tensor *x) {
  return choose(dev, CONV_FORWARD, &one_by_one, x, &b->w[BOTTLENECK_REDUCE]);
}
extern "C" bool cuda_conv_bottlenecks(Device *dev, const Bottleneck *b, const Tensor *x) {
  const Rung *rung = choose_bottleneck(dev, b, x);
  return rung->bottlenecks && rung->bottlenecks(dev, b, x);
}
extern "C" void cuda_conv_bottleneck(Device *dev, const Bottleneck *b, const Tensor *x, const Tensor *y) {
  const Rung *rung = choose_bottleneck(dev, b, x);
  CHECK(rung->bottlenecks && rung->bottlenecks(dev, b, x));
  rung->bottleneck(dev, b, x, y);
}

extern "C" void cuda_conv_dgrad(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w,
                                const Dest *dx) {
  CHECK(pairs <= CONV_MAX_PAIRS && w->dtype == dy->dtype);
  for (int i = 0; i < pairs; i++) {
    check_sides(conv, w, &dx[i].t, &dy[i]);
    check_dest(&dx[i]);
  }
  const Rung *rung = choose(dev, CONV_DGRAD, conv, dy, w);
  const Tensor *t = &dx->t, *a = dx->addend;
  bool same = !a || (a->h == t->h && a->w == t->w);
  if (!is_flat(conv, pairs, t, w) || dx->bias || !same) return rung->dgrad(dev, conv, pairs, dy, w, dx);
  Tensor w1 = flat(w), addend, mask;
  Dest dx1 = *dx;
  dx1.t = flat(t);
  if (a) {
    addend = flat(a);
    dx1.addend = &addend;
  }
  if (dx->mask) {
    mask = flat(dx->mask);
    dx1.mask = &mask;
  }
  rung->dgrad(dev, &one_by_one, 1, dy, &w1, &dx1);
}

extern "C" void cuda_conv_wgrad(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *dy,
                                const FilterGrad *out) {
  CHECK(pairs <= CONV_MAX_PAIRS && out->dw.dtype == F32);
  for (int i = 0; i < pairs; i++) check_sides(conv, &out->dw, &x[i], &dy[i]);
  const Rung *rung = choose(dev, CONV_WGRAD, conv, x, &out->dw);
  if (is_flat(conv, pairs, x, &out->dw)) {
    Tensor x1 = flat(x);
    FilterGrad flattened = *out;
    flattened.dw = flat(&out->dw);
    rung->wgrad(dev, &one_by_one, 1, &x1, dy, &flattened);
  } else
    rung->wgrad(dev, conv, pairs, x, dy, out);
  if (out->db && !rung->wgrad_sums) column_sums(dev, pairs, dy, (float *)out->db, out->accumulate);
}

extern "C" int cuda_conv_wgrad_share(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw) {
  const Rung *rung = choose(dev, CONV_WGRAD, conv, x, dw);
  return rung->wgrad_share ? rung->wgrad_share(dev, conv, x, dw) : 0;
}

extern "C" int cuda_conv_squares(Device *dev, const Conv *conv, const Tensor *x, const Tensor *dw) {
  const Rung *rung = choose(dev, CONV_WGRAD, conv, x, dw);
  return rung->squares ? rung->squares(dev, conv, x, dw) : 0;
}

// None of the ladder's rungs asks for it.
extern "C" size_t cuda_filter_packed_bytes(Device *, const Conv *, const Tensor *) { return 0; }
extern "C" void cuda_filter_pack(Device *, const Conv *, const Tensor *, void *) {}
