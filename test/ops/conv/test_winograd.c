// Catches packed filters that change what a convolution computes: bits, where only the filter's order differs from the
// reference's; more than the bound in cpu/conv/winograd.h, where the filter is transformed.
#include <math.h>
#include <omp.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/test.h"

enum { PAIRS = 2, TRIALS = 40 };

typedef struct Trial {
  Device *dev;
  uint64_t key, draws;
  bool whole; // small whole numbers, of which every sum is exact
  Conv conv;
  int pairs, count;
  Tensor x[PAIRS], y[PAIRS], again[PAIRS], addend[PAIRS], mask[PAIRS], w, bias;
  Dest dest[PAIRS];
} Trial;

static int draw(Trial *t, int below) { return (int)(rng_u32(t->key, t->draws++) % (uint32_t)below); }

static Tensor filled(Trial *t, Tensor like) {
  Tensor f = like;
  f.data = device_alloc(t->dev, tensor_bytes(&f));
  for (size_t i = 0; i < tensor_elements(&f); i++)
    if ((int)(i % f.ldc) < f.c)
      ((float *)f.data)[i] = t->whole ? (float)(draw(t, 7) - 3) : 2 * rng_uniform(t->key, t->draws++) - 1;
  return f;
}

static Tensor poisoned(Trial *t, Tensor like) {
  Tensor f = filled(t, like);
  for (size_t i = 0; i < tensor_elements(&f); i++) ((float *)f.data)[i] = NAN;
  return f;
}

// One row of x, if there are more, is past the count: it holds NaN, which must reach nothing.
static Trial trial_new(uint64_t key, bool whole, int n, int c, int k, int taps, Conv conv, int pairs) {
  Trial t = {
      .dev = device_open("cpu", NULL), .key = rng_key(RNG_TEST, key), .whole = whole, .conv = conv, .pairs = pairs};
  t.count = MAX(n - 1, 1);
  t.w = filled(&t, tensor(F32, k, taps, taps, c));
  t.bias = filled(&t, tensor_packed(F32, 1, k));
  for (int i = 0; i < pairs; i++) {
    const int h = taps + draw(&t, 12), w = taps + draw(&t, 21);
    t.x[i] = filled(&t, tensor(F32, n, h, w, c));
    float *past = (float *)t.x[i].data + (size_t)t.count * h * w * t.x[i].ldc;
    for (size_t e = 0; e < (size_t)(n - t.count) * h * w * t.x[i].ldc; e++) past[e] = NAN;
    Tensor y =
        tensor(F32, n, (h + 2 * conv.pad - taps) / conv.stride + 1, (w + 2 * conv.pad - taps) / conv.stride + 1, k);
    t.y[i] = poisoned(&t, y);
    t.again[i] = poisoned(&t, y);
    t.mask[i] = filled(&t, y);
    Tensor addend = y;
    if (draw(&t, 3) == 0) addend = tensor(F32, n, (y.h + 1) / 2, (y.w + 1) / 2, k);
    t.addend[i] = filled(&t, addend);
  }
  return t;
}

// Once the trial lies where it stays.
static void draw_dests(Trial *t) {
  for (int i = 0; i < t->pairs; i++) {
    Tensor *counted[] = {&t->x[i], &t->y[i], &t->again[i], &t->addend[i], &t->mask[i]};
    for (int j = 0; j < COUNT(counted); j++) counted[j]->count = &t->count;
    t->dest[i] = (Dest){.relu = draw(t, 2),
                        .bias = draw(t, 3) ? t->bias.data : NULL,
                        .addend = draw(t, 2) ? &t->addend[i] : NULL,
                        .mask = draw(t, 4) ? NULL : &t->mask[i]};
  }
}

static void trial_free(Trial *t) {
  for (int i = 0; i < t->pairs; i++) {
    Tensor *all[] = {&t->x[i], &t->y[i], &t->again[i], &t->addend[i], &t->mask[i]};
    for (int j = 0; j < COUNT(all); j++) device_free(t->dev, all[j]->data);
  }
  device_free(t->dev, t->w.data);
  device_free(t->dev, t->bias.data);
  device_close(t->dev);
}

static void forward(Trial *t, const Tensor *w, Tensor *y) {
  Dest dest[PAIRS];
  for (int i = 0; i < t->pairs; i++) {
    dest[i] = t->dest[i];
    dest[i].t = y[i];
  }
  Device *dev = t->dev;
  dev->workspace_bytes = 0;
  dev->measuring = true;
  dev->ops->conv_forward(dev, &t->conv, t->pairs, t->x, w, dest);
  dev->measuring = false;
  CHECK(device_reserve_workspace(dev, NULL));
  memset(dev->workspace, 0xff, dev->workspace_bytes);
  dev->ops->conv_forward(dev, &t->conv, t->pairs, t->x, w, dest);
}

static void forward_packed(Trial *t, Tensor *y) {
  Tensor packed = t->w;
  packed.dtype = PACKED;
  packed.data = device_alloc(t->dev, t->dev->ops->filter_packed_bytes(t->dev, &t->conv, &t->w));
  t->dev->ops->filter_pack(t->dev, &t->conv, &t->w, packed.data);
  forward(t, &packed, y);
  device_free(t->dev, packed.data);
}

static size_t valid_elements(const Tensor *y) { return (size_t)(y->count ? *y->count : y->n) * y->h * y->w * y->ldc; }

static void expect_same_bits(const Trial *t) {
  for (int i = 0; i < t->pairs; i++)
    EXPECT(!memcmp(t->y[i].data, t->again[i].data, valid_elements(&t->y[i]) * sizeof(float)));
}

static void check_bits(Trial t) {
  draw_dests(&t);
  forward(&t, &t.w, t.y);
  forward_packed(&t, t.again);
  expect_same_bits(&t);
  trial_free(&t);
}

// The shapes reach every end of a block: of K (256), of columns (512, whole vectors or not), of rows.
TEST(conv_packed_has_the_references_bits) {
  static const int channels[] = {3, 16, 17, 40, 64, 300, 530}, taps[] = {1, 1, 2, 3, 7};
  for (uint64_t i = 0; i < TRIALS; i++) {
    Trial d = {.key = rng_key(RNG_TEST, 100 + i)};
    const int c = channels[draw(&d, COUNT(channels))], k = channels[draw(&d, COUNT(channels))];
    const int s = c > 100 ? 1 : taps[draw(&d, COUNT(taps))], stride = s == 3 ? 2 : 1 + draw(&d, 2);
    check_bits(trial_new(i, false, 1 + draw(&d, 3), c, k, s, (Conv){stride, draw(&d, s)}, 1 + draw(&d, PAIRS)));
  }
}

// Whole numbers' sums are exact, and so are the halves and quarters of their transforms: an element lost or doubled
// hides behind no tolerance.
TEST(conv_winograd_of_whole_numbers_is_exact) {
  for (uint64_t i = 0; i < TRIALS; i++) {
    Trial d = {.key = rng_key(RNG_TEST, 200 + i)};
    const int c = 16 * (1 + draw(&d, 3)), k = 16 * (1 + draw(&d, 5));
    check_bits(trial_new(i, true, 1 + draw(&d, 4), i ? c : 528, k, 3, (Conv){1, draw(&d, 3)}, 1 + draw(&d, PAIRS)));
  }
}

// ---- the bound ----------------------------------------------------------------------------------------------------

static const double G[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};
static const double B[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}; // transposed
static const double A[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};                              // transposed

static double x_at(const Tensor *x, int n, int y, int column, int c) {
  if (y < 0 || y >= x->h || column < 0 || column >= x->w) return 0;
  return ((const float *)x->data)[(((size_t)n * x->h + y) * x->w + column) * x->ldc + c];
}

static double w_at(const Tensor *w, int k, int r, int s, int c) {
  return ((const float *)w->data)[(((size_t)k * 3 + r) * 3 + s) * w->ldc + c];
}

// A transformed element (i, j) of the filter or of a tile's input, of absolute values throughout.
static double filter_size(const Tensor *w, int k, int c, int i, int j) {
  double sum = 0;
  for (int r = 0; r < 3; r++)
    for (int s = 0; s < 3; s++) sum += fabs(G[i][r] * w_at(w, k, r, s, c) * G[j][s]);
  return sum;
}

static double input_size(const Tensor *x, int n, int top, int left, int c, int i, int j) {
  double sum = 0;
  for (int r = 0; r < 4; r++)
    for (int s = 0; s < 4; s++) sum += fabs(B[i][r] * x_at(x, n, top + r, left + s, c) * B[j][s]);
  return sum;
}

// S of winograd.h for output (y, x) of channel k.
static double bound_size(const Trial *t, const Tensor *in, int n, int y, int x, int k) {
  const int top = y / 2 * 2 - t->conv.pad, left = x / 2 * 2 - t->conv.pad;
  double sum = 0;
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int c = 0; c < t->w.c && A[y % 2][i] != 0 && A[x % 2][j] != 0; c++)
        sum += filter_size(&t->w, k, c, i, j) * input_size(in, n, top, left, c, i, j);
  return sum;
}

static double definition(const Trial *t, const Tensor *in, int n, int y, int x, int k) {
  double sum = 0;
  for (int r = 0; r < 3; r++)
    for (int s = 0; s < 3; s++)
      for (int c = 0; c < t->w.c; c++)
        sum += w_at(&t->w, k, r, s, c) * x_at(in, n, y + r - t->conv.pad, x + s - t->conv.pad, c);
  return sum;
}

TEST(conv_winograd_keeps_its_bound) {
  const double u = 0x1p-24;
  Trial t = trial_new(300, false, 1, 48, 32, 3, (Conv){1, 1}, 1);
  forward_packed(&t, t.y);
  const Tensor *y = &t.y[0];
  double largest = 0;
  for (int i = 0; i < y->h; i++)
    for (int j = 0; j < y->w; j++)
      for (int k = 0; k < y->c; k += 5) {
        const double off = x_at(y, 0, i, j, k) - definition(&t, &t.x[0], 0, i, j, k);
        const double bound = (t.w.c + 8) * u * bound_size(&t, &t.x[0], 0, i, j, k) * (1 + 1e-5);
        EXPECT(fabs(off) <= bound);
        largest = fmax(largest, fabs(off) / bound);
      }
  EXPECT(largest > 0); // it is not the definition that is compared with itself
  trial_free(&t);
}

TEST(conv_packed_is_the_same_on_any_number_of_threads) {
  const int threads = omp_get_max_threads();
  for (int taps = 1; taps <= 3; taps += 2) {
    Trial t = trial_new(400, false, 3, 64, 80, taps, (Conv){1, taps / 2}, 2);
    draw_dests(&t);
    omp_set_num_threads(1);
    forward_packed(&t, t.y);
    for (int n = 2; n <= 5; n++) {
      omp_set_num_threads(n);
      forward_packed(&t, t.again);
      expect_same_bits(&t);
    }
    trial_free(&t);
  }
  omp_set_num_threads(threads);
}
