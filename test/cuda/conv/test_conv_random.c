// Catches GPU convolutions that are wrong or inaccurate on shapes nobody thought of.
//
// Rungs 04 and 05 over a few hundred problems drawn at random: 1 to 2048 channels, odd sizes, tails, strides, tiny
// tensors, tiles that begin in one image and end in another, levels that share a filter, device-side counts. They are
// compared with rung 02, which test_conv.c holds against the CPU: what is one there is cheap enough here for wide
// problems.
//
// Twice each. First operands are whole numbers from -2 to 2 and what a Dest asks for is drawn, too: all sums stay below
// 2^24, so that each rung has to arrive at rung 02's numbers exactly, 16-bit results included, which round one and the
// same sum. Then operands are any numbers, and errors are measured.
//
// An error is the distance from the convolution of the operands as they were in float, in the root mean square of a
// result and at its worst element. Rung 02 gets them rounded to the type in question, and has that error and the one of
// rounding the result; what another rung may add is the order of its sums and truncation. Twice is asked for. The
// convolution in float comes from the naive rung: a sum of T terms of either sign, each addition of which rounds by at
// most 2^-24 of a partial sum, errs by about √T · 2^-24 of the result, and T ≤ 2^16 here: at most 2^-16, where operands
// alone, rounded by up to 2^-11 in fp16 and TF32, cause 2^-12 (measured: 4400 · 2^-24).
//
// Beside rounded operands the sums' own errors are small. So results in float (wgrad, TF32) also have to be near rung
// 02's, whose operands are the same. Tensor cores add 8 or 16 products at a time, padding lanes among them, and
// truncate: for T lanes T / 8 additions, each of which loses half of 2^-23 of a partial sum on average; that is the
// root of the number of terms by 3 at most, the root mean square of a sum of products of numbers from -1 to 1. A single
// element may lose all of it and be the largest there is: ten times that, of which the mean of n such keeps 1 / √n.
// Rung 02's error counts as no less than the mean: in few elements it may be right by chance.
#include "base/alloc.h"
#include "base/rng.h"
#include "nn/device.h"
#include "nn/rung.h"
#include "test/harness/gpu.h"

enum {
  PROBLEMS = 300,
  MOST_LEVELS = 5,
  MOST_ELEMENTS = 1 << 18, // of an activation; a filter may have four times as many
  MOST_PRODUCTS = 1 << 27,
  MOST_TERMS = 1 << 16,
};

typedef struct Type {
  const char *name;
  DType dtype;
  bool tf32;
} Type;
static const Type types[] = {{"bf16", BF16, false}, {"fp16", F16, false}, {"tf32", F32, true}};
static const Type exact = {"fp32", F32, false};
static const char *const op_names[] = {"forward", "dgrad", "wgrad"};

// Rung 02, with which the others are compared, and all above 03. Returns how many.
enum { MOST_RUNGS = 16 };
static int rungs_compared(const char *names[MOST_RUNGS]) {
  int n = 0;
  bool above = false;
  names[n++] = "im2col";
  for (const Rung *const *rung = gpu_device()->conv_rungs; *rung; rung++) {
    if (above && n < MOST_RUNGS) names[n++] = (*rung)->name;
    above |= !strcmp((*rung)->name, "wmma");
  }
  return n;
}

typedef struct Problem {
  Conv conv;
  int r, s, levels, n, c, k;
  int h[MOST_LEVELS], w[MOST_LEVELS]; // of x
  int rows;                           // -1: no count
} Problem;

typedef struct Worst { // over all problems
  int results;
  double ratio;
} Worst;

// ---- problems -------------------------------------------------------------------------------------------------------

typedef struct Draw {
  uint64_t key, i;
} Draw;
static int below(Draw *d, int limit) { return (int)(rng_u32(d->key, d->i++) % (uint32_t)limit); }

static int out_size(int in, int taps, const Conv *conv) { return (in + 2 * conv->pad - taps) / conv->stride + 1; }
static int out_h(const Problem *p, int level) { return out_size(p->h[level], p->r, &p->conv); }
static int out_w(const Problem *p, int level) { return out_size(p->w[level], p->s, &p->conv); }

static const char *describe(const Problem *p, const Type *t, ConvOp op, const char *rung) {
  static char text[256];
  int length =
      snprintf(text, sizeof text, "%s %s of %s: %d images (count %d), %d x %d taps, stride %d, pad %d, %d -> %d", rung,
               op_names[op], t->name, p->n, p->rows, p->r, p->s, p->conv.stride, p->conv.pad, p->c, p->k);
  for (int i = 0; i < p->levels; i++)
    length += snprintf(text + length, sizeof text - (size_t)length, ", %d x %d", p->h[i], p->w[i]);
  return text;
}

// All magnitudes alike often; powers of two, their neighbours, multiples of eight and the rest.
static int draw_channels(Draw *d) {
  int power = 1 << below(d, 12), most = 2048, near = power - 1 + below(d, 3);
  int between = power + below(d, power);
  switch (below(d, 4)) {
  case 0: return power;
  case 1: return MIN(most, MAX(1, near));
  case 2: return MIN(most, (between + 7) / 8 * 8);
  default: return MIN(most, between);
  }
}

static bool is_affordable(const Problem *p, int shift) {
  double pixels = 0, most = 0, terms = (double)p->r * p->s * MAX(p->c, p->k);
  for (int i = 0; i < p->levels; i++) {
    double x = (double)p->n * p->h[i] * p->w[i], y = (double)p->n * out_h(p, i) * out_w(p, i);
    pixels += y;
    most = fmax(most, fmax(x * channel_pitch(p->c), y * channel_pitch(p->k)));
  }
  double filter = (double)p->k * p->r * p->s * channel_pitch(p->c);
  return most <= MOST_ELEMENTS >> shift && filter <= 4 * (MOST_ELEMENTS >> shift) &&
         fmax(pixels, terms) <= MOST_TERMS && pixels * filter <= MOST_PRODUCTS >> shift;
}

static void shrink(Draw *d, Problem *p) {
  int *channels = p->c > p->k ? &p->c : &p->k, what = below(d, 4);
  if (what == 0) *channels = (*channels + 1) / 2;
  if (what == 1) p->n = (p->n + 1) / 2;
  for (int i = 0; i < p->levels && what > 1; i++) {
    int *size = what == 2 ? &p->h[i] : &p->w[i];
    *size = MAX(*size / 2, MAX(1, (what == 2 ? p->r : p->s) - 2 * p->conv.pad));
  }
}

static Problem draw_problem(uint64_t seed) {
  static const int taps[] = {1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 7, 11}, strides[] = {1, 1, 1, 2, 2, 3, 4};
  Draw d = {.key = rng_key(seed, RNG_SHAPES)};
  Problem p = {.levels = 1, .r = taps[below(&d, COUNT(taps))]};
  p.s = below(&d, 5) ? p.r : taps[below(&d, COUNT(taps))];
  p.conv = (Conv){.stride = strides[below(&d, COUNT(strides))], .pad = below(&d, MAX(p.r, p.s) / 2 + 2)};
  p.c = draw_channels(&d);
  p.k = draw_channels(&d);
  int pass = below(&d, 4), area = pass == 0 ? 64 : pass == 1 ? 8 : 20;
  p.n = 1 + below(&d, pass == 0 ? 3 : pass == 1 ? 400 : pass == 2 ? 64 : 300); // images, small ones, RoIs, vectors
  for (int i = 0; i < MOST_LEVELS; i++) {
    p.h[i] = MAX(1, p.r - 2 * p.conv.pad) + below(&d, MAX(area >> i, 1));
    p.w[i] = MAX(1, p.s - 2 * p.conv.pad) + below(&d, MAX(area >> i, 1));
  }
  if (pass == 0 && below(&d, 2)) p.levels = 2 + below(&d, MOST_LEVELS - 1);
  if (pass == 3) {
    p.conv = (Conv){1, 0};
    p.h[0] = p.r;
    p.w[0] = p.s;
  }
  for (int shift = below(&d, 4); !is_affordable(&p, shift);) shrink(&d, &p);
  p.rows = below(&d, 3) ? -1 : below(&d, p.n + 1);
  return p;
}

// What chance leaves out: the widest filters; counts after which the next image would begin a stage of wgrad's sum (the
// mask head with 32 objects, where rung 05's taps share a patch); levels of the network; the stem; as many taps and as
// large a stride and padding as rung 05 takes.
static const Problem chosen[] = {
    {{1, 0}, 1, 1, 1, 1, 2048, 256, {9}, {15}, -1},
    {{2, 0}, 1, 1, 1, 1, 256, 2048, {13}, {15}, -1},
    {{1, 1}, 3, 3, 1, 2, 2048, 40, {5}, {7}, -1},
    {{1, 1}, 3, 3, 1, 33, 256, 256, {14}, {14}, 32},
    {{1, 0}, 3, 3, 1, 9, 64, 256, {16}, {16}, 4},
    {{1, 0}, 1, 1, 1, 64, 256, 64, {8}, {8}, 5},
    {{1, 0}, 7, 7, 1, 130, 256, 72, {7}, {7}, 65},
    {{1, 0}, 1, 1, 5, 2, 256, 3, {50, 25, 13, 7, 4}, {84, 42, 21, 11, 6}, -1},
    {{1, 1}, 3, 3, 5, 2, 64, 256, {50, 25, 13, 7, 4}, {84, 42, 21, 11, 6}, -1},
    {{2, 3}, 7, 7, 1, 3, 3, 64, {61}, {150}, 2},
    {{2, 2}, 5, 6, 1, 3, 7, 50, {20}, {34}, -1},
    {{4, 2}, 11, 11, 1, 3, 3, 96, {67}, {150}, 2},
    {{1, 1}, 3, 3, 1, 3, 1, 32, {28}, {70}, -1},
    {{8, 3}, 3, 5, 1, 3, 40, 24, {37}, {41}, -1},
    {{1, 20}, 41, 3, 1, 2, 8, 16, {9}, {30}, -1},
    {{2, 0}, 98, 1, 1, 2, 16, 8, {121}, {5}, -1},
    {{1, 49}, 1, 1, 1, 1, 32, 8, {3}, {2}, -1},
};

// ---- operands -------------------------------------------------------------------------------------------------------

// All tensors of a problem, before they are rounded to a type; of filters and vectors the first alone.
typedef struct Numbers {
  float *x[MOST_LEVELS], *w, *y[MOST_LEVELS];
} Numbers;
typedef struct Operands {
  TensorPair x[MOST_LEVELS], w, y[MOST_LEVELS];
} Operands;

// Rows past the count are NaN: nobody may be touched by them.
static float *draw_numbers(Draw *d, int n, size_t row, int rows, bool whole) {
  float *v = xmalloc((size_t)n * row * sizeof *v);
  for (size_t i = 0; i < (size_t)n * row; i++) {
    uint32_t bits = rng_u32(d->key, d->i++);
    v[i] = rows >= 0 && i >= (size_t)rows * row ? NAN : whole ? (float)(bits % 5) - 2 : (float)bits * 0x1p-31f - 1;
  }
  return v;
}
static Numbers numbers_new(Draw *d, const Problem *p, bool whole) {
  Numbers v = {.w = draw_numbers(d, p->k, (size_t)p->r * p->s * p->c, -1, whole)};
  for (int i = 0; i < p->levels; i++) {
    v.x[i] = draw_numbers(d, p->n, (size_t)p->h[i] * p->w[i] * p->c, p->rows, whole);
    v.y[i] = draw_numbers(d, p->n, (size_t)out_h(p, i) * out_w(p, i) * p->k, p->rows, whole);
  }
  return v;
}
static void numbers_free(Numbers *v) {
  free(v->w);
  for (int i = 0; i < MOST_LEVELS; i++) {
    free(v->x[i]);
    free(v->y[i]);
  }
}

static float to_tf32(float v) { // to nearest, ties to even
  uint32_t u;
  memcpy(&u, &v, 4);
  u = (u + 0xfff + (u >> 13 & 1)) & ~0x1fffu;
  memcpy(&v, &u, 4);
  return v;
}
static TensorPair operand(const Type *t, int n, int h, int w, int c, const float *values, int rows) {
  size_t elements = (size_t)n * h * w * c;
  float *rounded = xmalloc(elements * sizeof *rounded);
  for (size_t i = 0; i < elements; i++) rounded[i] = t->tf32 ? to_tf32(values[i]) : values[i];
  TensorPair pair = pair_values(t->dtype, n, h, w, c, rounded);
  free(rounded);
  if (rows >= 0) pair_rows(&pair, rows);
  return pair;
}
static Operands operands_new(const Type *t, const Problem *p, const Numbers *v) {
  Operands o = {.w = operand(t, p->k, p->r, p->s, p->c, v->w, -1)};
  for (int i = 0; i < p->levels; i++) {
    o.x[i] = operand(t, p->n, p->h[i], p->w[i], p->c, v->x[i], p->rows);
    o.y[i] = operand(t, p->n, out_h(p, i), out_w(p, i), p->k, v->y[i], p->rows);
  }
  return o;
}
static void operands_free(Operands *o, const Problem *p) {
  pair_check_guards(&o->w, true);
  pair_free(&o->w);
  for (int i = 0; i < p->levels; i++) {
    pair_check_guards(&o->x[i], true);
    pair_free(&o->x[i]);
    pair_check_guards(&o->y[i], true);
    pair_free(&o->y[i]);
  }
}

// ---- results --------------------------------------------------------------------------------------------------------

// Where an op writes, as it was before; and what it adds on the way.
typedef struct Target {
  TensorPair t[MOST_LEVELS], addend[MOST_LEVELS], mask[MOST_LEVELS], bias, db;
  int count; // of t
  bool accumulate, relu, has_bias, has_addend, has_mask;
} Target;

static Target target_new(const Type *t, ConvOp op, const Problem *p) {
  Target o = {.count = op == CONV_WGRAD ? 1 : p->levels};
  if (op == CONV_WGRAD) o.t[0] = pair_poisoned(F32, p->k, p->r, p->s, p->c);
  for (int i = 0; i < p->levels && op != CONV_WGRAD; i++) {
    o.t[i] = op == CONV_FORWARD ? pair_poisoned(t->dtype, p->n, out_h(p, i), out_w(p, i), p->k)
                                : pair_poisoned(t->dtype, p->n, p->h[i], p->w[i], p->c);
    if (p->rows >= 0) pair_rows(&o.t[i], p->rows);
  }
  return o;
}
static void target_free(Target *o) {
  TensorPair *all[] = {&o->bias, &o->db};
  for (int i = 0; i < COUNT(all); i++)
    if (all[i]->gpu.data) {
      pair_check_guards(all[i], true);
      pair_free(all[i]);
    }
  for (int i = 0; i < o->count; i++) {
    pair_free(&o->t[i]);
    if (o->has_addend) {
      pair_check_guards(&o->addend[i], true);
      pair_free(&o->addend[i]);
    }
    if (o->has_mask) {
      pair_check_guards(&o->mask[i], true);
      pair_free(&o->mask[i]);
    }
  }
}

// Whole numbers everywhere. wgrad's bias is its scale, which is exact, too.
static Target draw_target(Draw *d, const Type *t, ConvOp op, const Problem *p) {
  Target o = target_new(t, op, p);
  o.accumulate = below(d, 3) == 0;
  o.relu = below(d, 3) == 0;
  o.has_bias = below(d, 2);
  o.has_addend = op != CONV_WGRAD && below(d, 2);
  o.has_mask = op != CONV_WGRAD && below(d, 3) == 0;
  int size = below(d, 3), channels = op == CONV_DGRAD ? p->c : p->k; // of the addend: the same, half or double
  for (int i = 0; i < o.count; i++) {
    const Tensor s = o.t[i].cpu;
    const Type type = op == CONV_WGRAD ? exact : *t;
    int h = size == 1 ? (s.h + 1) / 2 : s.h << size / 2, w = size == 1 ? (s.w + 1) / 2 : s.w << size / 2;
    int rows = op == CONV_WGRAD ? -1 : p->rows;
    float *old = draw_numbers(d, s.n, (size_t)s.h * s.w * s.c, rows, true);
    float *addend = draw_numbers(d, s.n, (size_t)h * w * s.c, rows, true);
    if (o.accumulate) {
      pair_free(&o.t[i]);
      o.t[i] = operand(&type, s.n, s.h, s.w, s.c, old, rows);
    }
    if (o.has_addend) o.addend[i] = operand(&type, s.n, h, w, s.c, addend, -1);
    if (o.has_mask) o.mask[i] = operand(&type, s.n, s.h, s.w, s.c, old, -1);
    free(old);
    free(addend);
  }
  float *bias = draw_numbers(d, 1, (size_t)channels, -1, true);
  if (o.has_bias) o.bias = pair_packed(1, channels, bias);
  if (op == CONV_WGRAD) o.db = pair_packed(1, channels, o.accumulate ? bias : NULL);
  free(bias);
  return o;
}

// The tensors that a rung wrote, in memory of their own; the last is db.
typedef struct Result {
  TensorPair of[MOST_LEVELS + 1];
} Result;

static TensorPair duplicate(const TensorPair *t) {
  Device *gpu = gpu_device();
  TensorPair copy = *t;
  size_t bytes = tensor_bytes(&t->gpu) + PAIR_GUARD;
  copy.gpu.data = device_alloc(gpu, bytes);
  CHECK(copy.gpu.data);
  device_copy(gpu, copy.gpu.data, t->gpu.data, bytes);
  return copy;
}
static void result_free(Result *r) {
  for (int i = 0; i <= MOST_LEVELS; i++) {
    if (!r->of[i].gpu.data) continue;
    pair_check_guards(&r->of[i], false);
    device_free(gpu_device(), r->of[i].gpu.data);
  }
}

static void run_once(ConvOp op, const Problem *p, const Operands *o, const Target *to, Result *r) {
  Device *gpu = gpu_device();
  Tensor x[MOST_LEVELS], y[MOST_LEVELS];
  Dest out[MOST_LEVELS];
  for (int i = 0; i < p->levels; i++) {
    x[i] = o->x[i].gpu;
    y[i] = o->y[i].gpu;
    out[i] = (Dest){.t = r->of[i].gpu,
                    .accumulate = to->accumulate,
                    .relu = to->relu,
                    .bias = to->bias.gpu.data,
                    .addend = to->has_addend ? &to->addend[i].gpu : NULL,
                    .mask = to->has_mask ? &to->mask[i].gpu : NULL};
  }
  const FilterGrad dw = {
      .dw = r->of[0].gpu, .db = r->of[MOST_LEVELS].gpu.data, .scale = to->bias.gpu.data, .accumulate = to->accumulate};
  if (op == CONV_FORWARD) gpu->ops->conv_forward(gpu, &p->conv, p->levels, x, &o->w.gpu, out);
  if (op == CONV_DGRAD) gpu->ops->conv_dgrad(gpu, &p->conv, p->levels, y, &o->w.gpu, out);
  if (op == CONV_WGRAD) gpu->ops->conv_wgrad(gpu, &p->conv, p->levels, x, y, &dw);
}

// As the graph runs it: first asked for its workspace, then given no more than that.
static Result run(const char *rung, const Type *t, ConvOp op, const Problem *p, const Operands *o, const Target *to) {
  Device *gpu = gpu_device();
  Result r = {0};
  for (int i = 0; i < to->count; i++) r.of[i] = duplicate(&to->t[i]);
  if (to->db.gpu.data) r.of[MOST_LEVELS] = duplicate(&to->db);
  size_t reserved = gpu->workspace_bytes;
  gpu->conv_rung = rung_find(gpu->conv_rungs, rung);
  gpu->tf32 = t->tf32;
  gpu->workspace_bytes = 0;
  gpu->measuring = true;
  run_once(op, p, o, to, &r);
  gpu->measuring = false;
  CHECK(gpu->workspace_bytes <= reserved);
  run_once(op, p, o, to, &r);
  gpu->conv_rung = NULL;
  gpu->tf32 = false;
  gpu->workspace_bytes = reserved;
  return r;
}

static bool supports(const char *name, const Type *t, ConvOp op, const Problem *p, const Operands *o) {
  Device *gpu = gpu_device();
  const Rung *rung = rung_find(gpu->conv_rungs, name);
  gpu->tf32 = t->tf32;
  bool can = rung->supports(gpu, op, &p->conv, op == CONV_DGRAD ? &o->y[0].gpu : &o->x[0].gpu, &o->w.gpu);
  gpu->tf32 = false;
  return can;
}

// ---- exactly --------------------------------------------------------------------------------------------------------

static size_t valid_elements(const TensorPair *t) {
  int rows = t->cpu.count ? *t->cpu.count : t->cpu.n;
  return tensor_elements(&t->cpu) / (size_t)MAX(t->cpu.n, 1) * (size_t)rows;
}
static bool same_bits(const TensorPair *a, const TensorPair *b) {
  void *x = gpu_fetch(a->gpu.data, tensor_bytes(&a->gpu)), *y = gpu_fetch(b->gpu.data, tensor_bytes(&b->gpu));
  bool same = !memcmp(x, y, valid_elements(a) * dtype_size(a->gpu.dtype));
  free(x);
  free(y);
  return same;
}
static bool same_numbers(const TensorPair *a, const TensorPair *b) {
  if (same_bits(a, b)) return true; // if not, there may be a zero with either sign
  float *x = gpu_fetch_floats(&a->gpu), *y = gpu_fetch_floats(&b->gpu);
  size_t i = 0, n = valid_elements(a);
  while (i < n && x[i] == y[i]) i++;
  if (i < n) printf("  element %zu of %zu: %g, and %g by rung 02\n", i, n, (double)y[i], (double)x[i]);
  free(x);
  free(y);
  return i == n;
}

static void check_exactness(const Problem *p, uint64_t seed) {
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  Numbers v = numbers_new(&d, p, true);
  const char *rung[MOST_RUNGS];
  const int rungs = rungs_compared(rung);
  for (int t = 0; t < COUNT(types); t++) {
    Operands o = operands_new(&types[t], p, &v);
    for (ConvOp op = 0; op < CONV_OPS; op++) {
      Target to = draw_target(&d, &types[t], op, p);
      Result want = run(rung[0], &types[t], op, p, &o, &to);
      for (int i = 1; i < rungs; i++) {
        if (!supports(rung[i], &types[t], op, p, &o)) continue;
        Result got = run(rung[i], &types[t], op, p, &o, &to);
        bool ok = !to.db.gpu.data || EXPECT(same_numbers(&want.of[MOST_LEVELS], &got.of[MOST_LEVELS]));
        for (int j = 0; j < to.count; j++) ok &= EXPECT(same_numbers(&want.of[j], &got.of[j]));
        if (!ok)
          printf("  %s; accumulate %d, relu %d, bias %d, addend %d x %d, mask %d\n",
                 describe(p, &types[t], op, rung[i]), to.accumulate, to.relu, to.has_bias, to.addend[0].cpu.h,
                 to.addend[0].cpu.w, to.has_mask);
        result_free(&got);
      }
      result_free(&want);
      target_free(&to);
    }
    operands_free(&o, p);
  }
  numbers_free(&v);
}

// ---- rounding -------------------------------------------------------------------------------------------------------

typedef struct Error {
  double rms, worst;
} Error;

static Error error_of(const float *want, const float *got, size_t n) {
  Error e = {0, 0};
  for (size_t i = 0; i < n; i++) {
    double off = fabs((double)got[i] - want[i]);
    e.rms += off * off;
    if (off > e.worst) e.worst = off;
  }
  e.rms = n ? sqrt(e.rms / (double)n) : 0;
  if (isnan(e.rms)) e.worst = NAN;
  return e;
}

// What truncation costs a result, as derived above.
static double truncated(const Problem *p, ConvOp op) {
  double pixels = (double)p->n * out_h(p, 0) * out_w(p, 0), taps = (double)p->r * p->s;
  int channels = op == CONV_FORWARD ? p->c : p->k;
  double terms = op == CONV_WGRAD ? pixels : taps * channels;
  double additions = op == CONV_WGRAD ? pixels / 8 : taps * channel_pitch(channels) / 8;
  return (1 + additions) * 0x1p-24 * sqrt(terms) / 3;
}

// All rungs of one op; `want`: the result in float.
static void check_errors(const Type *t, ConvOp op, const Problem *p, const Operands *o, const float *want,
                         Worst worst[]) {
  Target to = target_new(t, op, p);
  size_t n = valid_elements(&to.t[0]);
  float *first = NULL; // rung 02's
  double lost = truncated(p, op);
  Error peer = {0, 0};
  const char *rung[MOST_RUNGS];
  const int rungs = rungs_compared(rung);
  for (int i = 0; i < rungs; i++) {
    if (!supports(rung[i], t, op, p, o)) continue;
    Result got = run(rung[i], t, op, p, o, &to), again = run(rung[i], t, op, p, o, &to);
    float *values = gpu_fetch_floats(&got.of[0].gpu);
    Error error = error_of(want, values, n), apart = error_of(first ? first : values, values, n);
    bool ok = EXPECT(same_bits(&got.of[0], &again.of[0]) && "the same bits twice");
    if (i == 0) {
      peer = (Error){fmax(error.rms, lost), fmax(error.worst, lost)};
      first = values;
    } else {
      worst[op].results++;
      worst[op].ratio = fmax(worst[op].ratio, fmax(error.rms / peer.rms, error.worst / peer.worst));
      ok &= EXPECT(error.rms <= 2 * peer.rms && error.worst <= 2 * peer.worst);
      ok &= got.of[0].gpu.dtype != F32 || EXPECT(apart.rms <= lost * (1 + 10 / sqrt((double)n)));
      free(values);
    }
    if (!ok)
      printf("  %s: error %g (at worst %g), by rung 02 %g (%g); %g from it\n", describe(p, t, op, rung[i]), error.rms,
             error.worst, peer.rms, peer.worst, apart.rms);
    result_free(&got);
    result_free(&again);
  }
  free(first);
  target_free(&to);
}

// Of the first level alone.
static void check_rounding(const Problem *all, uint64_t seed, Worst worst[]) {
  Problem one = *all;
  const Problem *p = &one;
  one.levels = 1;
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  Numbers v = numbers_new(&d, p, false);
  Operands in_float = operands_new(&exact, p, &v);
  float *want[CONV_OPS];
  for (ConvOp op = 0; op < CONV_OPS; op++) {
    Target to = target_new(&exact, op, p);
    Result r = run("naive", &exact, op, p, &in_float, &to);
    want[op] = gpu_fetch_floats(&r.of[0].gpu);
    result_free(&r);
    target_free(&to);
  }
  operands_free(&in_float, p);
  for (int t = 0; t < COUNT(types); t++) {
    Operands o = operands_new(&types[t], p, &v);
    for (ConvOp op = 0; op < CONV_OPS; op++) check_errors(&types[t], op, p, &o, want[op], worst);
    operands_free(&o, p);
  }
  for (ConvOp op = 0; op < CONV_OPS; op++) free(want[op]);
  numbers_free(&v);
}

TEST_TIER(cuda_conv_is_right_on_random_problems, 1) {
  if (!gpu_device()) return;
  Worst worst[CONV_OPS] = {0};
  for (int i = 0; i < COUNT(chosen) + PROBLEMS; i++) {
    Problem p = i < COUNT(chosen) ? chosen[i] : draw_problem((uint64_t)i);
    check_exactness(&p, (uint64_t)i);
    check_rounding(&p, (uint64_t)i, worst);
  }
  printf("\n  %d problems; results and the largest error in rung 02's:", COUNT(chosen) + PROBLEMS);
  for (ConvOp op = 0; op < CONV_OPS; op++) printf(" %s %d, %.2f;", op_names[op], worst[op].results, worst[op].ratio);
  printf("\n%-48s", "");
}
