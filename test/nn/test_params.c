// Catches parameters with a wrong layout, order or initial value, or folded wrongly into convolutions.
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "nn/params.h"
#include "test/harness/op.h"

static const char *const devices[] = {"cpu", "cpu64"};

static void open_params(Params *p, const char *device) {
  Err err;
  Device *dev = device_open(device, &err);
  CHECK(dev);
  params_init(p, dev, dev->real);
}

static void close_params(Params *p) {
  Device *dev = p->dev;
  params_free(p);
  device_close(dev);
}

static void allocate(Params *p) {
  Err err;
  CHECK(params_allocate(p, &err));
}

// ---- layout ---------------------------------------------------------------------------------------------------------

TEST(params_layout) {
  for (int d = 0; d < COUNT(devices); d++) {
    Params p;
    open_params(&p, devices[d]);
    Param *frozen = param_filter(&p, "frozen", 4, 3, 3, 5, false, false, INIT_ONE);
    Param *late = param_filter(&p, "late", 3, 1, 1, 7, false, true, INIT_ONE);
    Param *buffer = param_buffer(&p, "buffer", 5, INIT_ONE);
    Param *moving = param_buffer(&p, "moving", 65, INIT_ONE);
    param_moves(&p, moving);
    Param *early = param_vector(&p, "early", PARAM_NORM_SCALE, 70, true, INIT_ONE, 0);
    Param *also_late = param_vector(&p, "also_late", PARAM_NORM_SCALE, 3, true, INIT_ONE, 0);
    late->last_use = also_late->last_use = 9;
    early->last_use = 2;
    // Known before there is memory: what is trained, too, which ops go by when they state their workspace.
    params_lay_out(&p);
    EXPECT(!p.master && p.bytes > 0);
    EXPECT(early->grad.data && late->grad.data && also_late->grad.data && !frozen->grad.data && !buffer->grad.data);
    allocate(&p);

    // Trainable ones by the step that completes their gradient, ties as declared, then what moves; each on a boundary
    // of 64 elements.
    Param *order[] = {early, late, also_late, moving, frozen, buffer};
    size_t at = 0, real = dtype_size(p.dev->real);
    for (int i = 0; i < COUNT(order); i++) {
      Param *q = order[i];
      EXPECT((char *)q->master.data == (char *)p.master + at * real);
      EXPECT((char *)q->grad.data == (i < 3 ? (char *)p.grad + at * real : NULL));
      EXPECT((char *)q->momentum.data == (i < 3 ? (char *)p.momentum + at * real : NULL));
      at += (tensor_elements(&q->master) + 63) / 64 * 64;
      if (i == 2) EXPECT_INT(p.trainable, at);
      if (i == 3) EXPECT_INT(p.trainable + p.moving, at);
    }
    EXPECT_INT(p.elements, at);
    EXPECT(frozen->shadow.data == frozen->master.data); // one dtype: convolutions read the master itself
    close_params(&p);
  }
}

// The filters and biases of two layers as those of one: nothing stands between them, and each is imported by itself.
TEST(params_joined) {
  for (int d = 0; d < COUNT(devices); d++) {
    Params p;
    open_params(&p, devices[d]);
    const size_t real = dtype_size(p.dev->real);
    Param *second[] = {param_filter(&p, "b", 3, 1, 1, 20, false, true, INIT_ONE),
                       param_vector(&p, "b.bias", PARAM_BIAS, 3, true, INIT_ONE, 0)};
    Param *other = param_vector(&p, "other", PARAM_BIAS, 3, true, INIT_ONE, 0);
    Param *first[] = {param_filter(&p, "a", 12, 1, 1, 20, false, true, INIT_ONE),
                      param_vector(&p, "a.bias", PARAM_BIAS, 12, true, INIT_ONE, 0)};
    for (int i = 0; i < 2; i++) param_join(&p, first[i], second[i]);
    param_join(&p, first[0], second[0]); // once more, by another graph
    allocate(&p);
    for (int i = 0; i < 2; i++) {
      const size_t apart = (i ? 12 : 12 * 24) * real;
      EXPECT((char *)second[i]->master.data == (char *)first[i]->master.data + apart);
      EXPECT((char *)second[i]->grad.data == (char *)first[i]->grad.data + apart);
      EXPECT((char *)second[i]->momentum.data == (char *)first[i]->momentum.data + apart);
      EXPECT_INT(((char *)first[i]->master.data - (char *)p.master) / real % PARAM_ALIGN, 0);
    }
    EXPECT_INT(((char *)other->master.data - (char *)p.master) / real % PARAM_ALIGN, 0);
    EXPECT_INT(p.trainable, (15 * 24 + 63) / 64 * 64 + 64 + 64);
    float values[12], back[12];
    for (int i = 0; i < 12; i++) values[i] = (float)i + 1;
    param_import(&p, second[1], &second[1]->master, values);
    param_import(&p, first[1], &first[1]->master, values);
    param_export(&p, second[1], &second[1]->master, back);
    EXPECT(!memcmp(back, values, 3 * sizeof *back));
    param_export(&p, first[1], &first[1]->master, back);
    EXPECT(!memcmp(back, values, sizeof back));
    bool taken[128] = {0}; // by a part of the optimizer, no element twice
    for (int i = 0; i < p.parts; i++)
      for (int k = 0; k < p.part[i].n; k++) {
        const size_t at = p.part[i].first + (size_t)k,
                     bias = (size_t)((char *)first[1]->grad.data - (char *)p.grad) / real;
        if (at < bias || at >= bias + 64) continue;
        EXPECT(!taken[at - bias]);
        taken[at - bias] = true;
      }
    for (int k = 0; k < 15; k++) EXPECT(taken[k]);
    close_params(&p);
  }
}

TEST(params_declared_twice) {
  Params p;
  open_params(&p, "cpu");
  Param *q = param_filter(&p, "w", 2, 3, 3, 4, false, false, INIT_ONE);
  EXPECT(param_filter(&p, "w", 2, 3, 3, 4, false, true, INIT_ONE) == q);
  EXPECT(q->trainable); // one graph trains what another only reads
  EXPECT(params_find(&p, "w") == q && !params_find(&p, "v"));
  EXPECT_INT(p.n, 1);
  EXPECT_INT(param_elements(q), 2 * 3 * 3 * 4);
  close_params(&p);
}

// ---- torch's order --------------------------------------------------------------------------------------------------

// Element (k, c, r, s) of torch's order holds its own number; where it stands in ours is read off by name.
static void check_order(Params *p, Param *q) {
  const Tensor *t = &q->master;
  size_t n = param_elements(q);
  float *values = xmalloc(n * sizeof *values), *back = xmalloc(n * sizeof *back);
  for (size_t i = 0; i < n; i++) values[i] = (float)i + 0.25f;
  memset(t->data, 0xff, tensor_bytes(t));
  param_import(p, q, t, values);
  for (int k = 0; k < t->n; k++)
    for (int c = 0; c < t->c; c++)
      for (int r = 0; r < t->h; r++)
        for (int s = 0; s < t->w; s++)
          EXPECT_NEAR(get(t, k, r, s, c), ((k * t->c + c) * t->h + r) * t->w + s + 0.25, 0);
  expect_padding_zero(t);
  param_export(p, q, t, back);
  EXPECT_INT(memcmp(values, back, n * sizeof *values), 0);
  free(values);
  free(back);
}

TEST(params_torch_order) {
  for (int d = 0; d < COUNT(devices); d++) {
    Params p;
    open_params(&p, devices[d]);
    Param *conv = param_filter(&p, "conv", 3, 2, 5, 7, false, true, INIT_ONE);
    Param *connected = param_filter(&p, "connected", 5, 3, 2, 9, true, true, INIT_ONE);
    Param *plain = param_filter(&p, "plain", 5, 1, 1, 9, true, false, INIT_ONE);
    Param *bias = param_vector(&p, "bias", PARAM_NORM_SCALE, 11, true, INIT_ONE, 0);
    Param *buffer = param_buffer(&p, "buffer", 8, INIT_ONE);
    const int conv_dims[] = {3, 7, 2, 5}, connected_dims[] = {5, 9 * 3 * 2};
    EXPECT(conv->ndim == 4 && !memcmp(conv->dims, conv_dims, sizeof conv_dims));
    EXPECT(connected->ndim == 2 && !memcmp(connected->dims, connected_dims, sizeof connected_dims));
    EXPECT(bias->ndim == 1 && bias->dims[0] == 11 && buffer->buffer && !bias->buffer);
    allocate(&p);
    Param *all[] = {conv, connected, plain, bias, buffer};
    for (int i = 0; i < COUNT(all); i++) check_order(&p, all[i]);
    close_params(&p);
  }
}

// ---- initialisation -------------------------------------------------------------------------------------------------

typedef struct Sample {
  size_t n;
  double mean, variance, largest, within; // within: share of |x| below one standard deviation of a normal
} Sample;

static Sample sample_of(const Params *p, const Param *q, double deviation) {
  Sample s = {.n = param_elements(q)};
  float *values = xmalloc(s.n * sizeof *values);
  param_export(p, q, &q->master, values);
  for (size_t i = 0; i < s.n; i++) s.mean += values[i] / (double)s.n;
  for (size_t i = 0; i < s.n; i++) {
    s.variance += (values[i] - s.mean) * (values[i] - s.mean) / (double)s.n;
    s.largest = fmax(s.largest, fabs(values[i]));
    s.within += (fabs(values[i]) < deviation) / (double)s.n;
  }
  free(values);
  return s;
}

// Over n draws the mean is off by σ/√n, the variance by σ²·√(2/n), a share q by √(q(1-q)/n), in standard deviations;
// five of them are allowed.
static void check_normal(const Params *p, const Param *q, double deviation) {
  Sample s = sample_of(p, q, deviation);
  double root = sqrt((double)s.n), share = 0.6826894921;
  EXPECT_NEAR(s.mean, 0, 5 * deviation / root);
  EXPECT_NEAR(s.variance, deviation * deviation, 5 * deviation * deviation * sqrt(2) / root);
  EXPECT_NEAR(s.within, share, 5 * sqrt(share * (1 - share)) / root);
}

// Variance b²/3, whose estimate is off by b²·√(4/45/n); the largest of n falls short of b by b·20/n with odds of e^-20.
static void check_uniform(const Params *p, const Param *q, double bound) {
  Sample s = sample_of(p, q, bound / 2);
  double root = sqrt((double)s.n);
  EXPECT(s.largest <= bound && s.largest >= bound * (1 - 20 / (double)s.n));
  EXPECT_NEAR(s.mean, 0, 5 * bound / sqrt(3) / root);
  EXPECT_NEAR(s.variance, bound * bound / 3, 5 * bound * bound * sqrt(4.0 / 45) / root);
  EXPECT_NEAR(s.within, 0.5, 5 * 0.5 / root);
}

TEST(params_init_as_torch) {
  Params p;
  open_params(&p, "cpu");
  enum { K = 40, R = 3, S = 2, C = 24 };
  Param *normal = param_filter(&p, "normal", K, R, S, C, false, true, INIT_NORMAL_001);
  Param *kaiming = param_filter(&p, "kaiming", K, R, S, C, false, true, INIT_KAIMING_NORMAL);
  Param *fan_in = param_filter(&p, "fan_in", K, R, S, C, false, true, INIT_KAIMING_FAN_IN);
  Param *uniform = param_filter(&p, "uniform", K, R, S, C, false, true, INIT_KAIMING_UNIFORM);
  Param *conv = param_filter(&p, "conv", K, R, S, C, false, true, INIT_LINEAR);
  Param *linear = param_filter(&p, "linear", K, R, S, C, true, true, INIT_LINEAR);
  Param *bias = param_vector(&p, "bias", PARAM_BIAS, 4000, true, INIT_LINEAR, R * S * C);
  Param *ones = param_vector(&p, "ones", PARAM_NORM_SCALE, 9, true, INIT_ONE, 0),
        *zeros = param_buffer(&p, "zeros", 9, INIT_ZERO);
  allocate(&p);
  params_randomise(&p, 7);
  check_normal(&p, normal, 0.01);
  check_normal(&p, kaiming, sqrt(2.0 / (K * R * S)));
  check_normal(&p, fan_in, sqrt(2.0 / (C * R * S)));
  check_uniform(&p, uniform, sqrt(3.0 / (C * R * S)));
  check_uniform(&p, conv, 1 / sqrt(C * R * S));
  check_uniform(&p, linear, 1 / sqrt(C * R * S));
  check_uniform(&p, bias, 1 / sqrt(C * R * S));
  for (int i = 0; i < 9; i++) EXPECT(get(&ones->master, 0, 0, 0, i) == 1 && get(&zeros->master, 0, 0, 0, i) == 0);
  close_params(&p);
}

static void randomised(Params *p, const char *const *names, int n, uint64_t seed) {
  open_params(p, "cpu");
  for (int i = 0; i < n; i++) param_filter(p, names[i], 3, 3, 3, 5, false, true, INIT_KAIMING_NORMAL);
  allocate(p);
  params_randomise(p, seed);
}

TEST(params_init_keyed_by_name) {
  const char *forward[] = {"a.weight", "b.weight"}, *backward[] = {"c.weight", "b.weight", "a.weight"};
  Params p, q, other_seed;
  randomised(&p, forward, 2, 7);
  randomised(&q, backward, 3, 7);
  randomised(&other_seed, forward, 2, 8);
  const Tensor *a = &params_find(&p, "a.weight")->master, *b = &params_find(&p, "b.weight")->master;
  EXPECT(same_bits(a, &params_find(&q, "a.weight")->master) && same_bits(b, &params_find(&q, "b.weight")->master));
  EXPECT(!same_bits(a, b) && !same_bits(a, &params_find(&other_seed, "a.weight")->master));
  close_params(&p);
  close_params(&q);
  close_params(&other_seed);
}

// ---- folded norms ---------------------------------------------------------------------------------------------------

static void expect_fold(const Param *w, double eps) {
  const NormFold *f = w->fold;
  for (int k = 0; k < w->master.n; k++) {
    double scale = get(&f->gamma->master, 0, 0, 0, k) / sqrt(get(&f->var->master, 0, 0, 0, k) + eps);
    double shift = get(&f->beta->master, 0, 0, 0, k) - get(&f->mean->master, 0, 0, 0, k) * scale;
    // Four roundings of values of at most 4.
    EXPECT_NEAR(((double *)f->scale)[k], scale, 16 * unit_roundoff(F64));
    EXPECT_NEAR(((double *)f->shift)[k], shift, 16 * unit_roundoff(F64));
    for (int i = 0; i < w->master.h * w->master.w * w->master.c; i++) {
      int c = i % w->master.c, tap = i / w->master.c;
      double from = get(&w->master, k, tap / w->master.w, tap % w->master.w, c);
      EXPECT_NEAR(get(&w->folded, k, tap / w->master.w, tap % w->master.w, c), ((double *)f->scale)[k] * from, 0);
    }
  }
}

TEST(params_fold) {
  Params p;
  open_params(&p, "cpu64");
  Param *w = param_filter(&p, "w", 5, 3, 3, 4, false, true, INIT_KAIMING_NORMAL);
  Param *norm[4];
  const char *names[] = {"bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"};
  for (int i = 0; i < 4; i++) norm[i] = param_buffer(&p, names[i], 5, INIT_ONE);
  NormFold *fold = param_fold(&p, w, norm[0], norm[1], norm[2], norm[3], 1e-5f);
  EXPECT(param_fold(&p, w, norm[0], norm[1], norm[2], norm[3], 1e-5f) == fold); // a second graph
  allocate(&p);
  params_randomise(&p, 3);
  for (int i = 0; i < 4; i++) test_fill(&norm[i]->master, (uint64_t)i, 0.5, 1.5);
  params_refresh(&p);
  expect_fold(w, 1e-5f);
  expect_padding_zero(&w->folded);

  test_fill(&w->master, 9, -1, 1);
  put(&norm[3]->master, 0, 0, 0, 2, 0.25);
  params_refresh(&p);
  expect_fold(w, 1e-5f);
  close_params(&p);
}
