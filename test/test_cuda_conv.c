// Convolutions on the GPU against the CPU reference: every rung of the ladder in every type that it computes.
//
// Most operands here are small whole numbers. Their products and sums are exact in float, in whatever order they are
// added, and so are the operands in all types, so that F32 has to agree to the bit and 16 bits to one rounding: a term
// that is lost, doubled or taken from the wrong pixel cannot hide. Rounding itself is looked at once, on normal numbers.
//
// The quick tier takes shapes of a few tiles, small enough for compute-sanitizer.
#include "cuda/conv/ladder.h"
#include "nn/rng.h"
#include "test/gpu.h"

enum { MAX_TEST_PAIRS = 3, MAX_MODES = 64 };

typedef enum Kind { FORWARD, DGRAD, WGRAD, KINDS } Kind;
static const char *const kind_names[] = {"forward", "dgrad", "wgrad"};

typedef struct Mode { // who computes
  const char *rung;   // NULL: whoever the ops choose
  DType dtype;
  bool tf32;
} Mode;
// RACECHECKED: ours without wgmma. The quick tier runs under compute-sanitizer, whose racecheck does not see the order that
// mbarriers give to bulk copies.
typedef enum Side { OURS, RACECHECKED, CUDNN } Side;

static bool is_cudnn(const char *rung) { return rung && !strcmp(rung, "cudnn"); }

static bool is_on(const char *rung, Side side) {
  if (is_cudnn(rung)) return side == CUDNN;
  return side == OURS || (side == RACECHECKED && strcmp(rung, "wgmma"));
}

// Every rung in every type in which it computes an everyday problem, and, of ours, the one that is chosen unasked.
static int find_modes(Device *gpu, Side side, Mode modes[MAX_MODES]) {
  static const Mode types[] = {{NULL, F32, false}, {NULL, F32, true}, {NULL, BF16, false}, {NULL, F16, false}};
  int count = 0;
  if (side != CUDNN) modes[count++] = types[0];
  for (const Rung *const *rung = gpu->conv_rungs; *rung; rung++)
    for (int i = 0; i < COUNT(types) && is_on((*rung)->name, side); i++) {
      const Tensor in = tensor(types[i].dtype, 2, 16, 16, 64), w = tensor(types[i].dtype, 64, 3, 3, 64);
      const Conv conv = {1, 1};
      gpu->tf32 = types[i].tf32;
      bool any = false; // what it leaves out goes to another one
      for (int op = 0; op < CONV_OPS; op++) any |= (*rung)->supports(gpu, (ConvOp)op, &conv, &in, &w);
      gpu->tf32 = false;
      CHECK(count < MAX_MODES);
      if (any) modes[count] = types[i], modes[count++].rung = (*rung)->name;
    }
  return count;
}

typedef struct Problem {
  Conv conv;
  int r, s, pairs, n, c, k;
  int h[MAX_TEST_PAIRS], w[MAX_TEST_PAIRS]; // of x
  int rows[MAX_TEST_PAIRS];                 // -1: no count
} Problem;

typedef struct Draw {
  uint64_t key, i;
} Draw;
static int below(Draw *d, int limit) { return (int)(rng_u32(d->key, d->i++) % (uint32_t)limit); }

static int out_size(int in, int taps, const Conv *conv) { return (in + 2 * conv->pad - taps) / conv->stride + 1; }

static void describe(const Mode *m, Kind kind, const Problem *p) {
  printf("  %s, dtype %d, %s: %d pairs, n %d, %d x %d taps, stride %d, pad %d, %d -> %d channels, x", //
         m->rung ? m->rung : "auto", m->dtype, kind_names[kind], p->pairs, p->n, p->r, p->s, p->conv.stride,
         p->conv.pad, p->c, p->k);
  for (int i = 0; i < p->pairs; i++) printf(" %d x %d (%d rows)", p->h[i], p->w[i], p->rows[i]);
  printf("\n");
}

// ---- twins ------------------------------------------------------------------------------------------------------

// Whole numbers from -2 to 2.
static Twin whole(Draw *d, DType dtype, int n, int h, int w, int c) {
  size_t elements = (size_t)n * h * w * c;
  float *values = xmalloc(elements * sizeof *values);
  for (size_t i = 0; i < elements; i++) values[i] = (float)(below(d, 5) - 2);
  Twin t = twin_values(dtype, n, h, w, c, values);
  free(values);
  return t;
}
static Twin whole_vector(Draw *d, int c) {
  float *values = xmalloc((size_t)c * sizeof *values);
  for (int i = 0; i < c; i++) values[i] = (float)(below(d, 5) - 2);
  Twin t = twin_packed(1, c, values);
  free(values);
  return t;
}
static void count_rows(Twin *t, int rows) {
  if (rows >= 0) twin_rows(t, rows);
}
static Twin x_twin(Draw *d, DType dtype, const Problem *p, int i, bool poisoned) {
  Twin t =
      poisoned ? twin_poisoned(dtype, p->n, p->h[i], p->w[i], p->c) : whole(d, dtype, p->n, p->h[i], p->w[i], p->c);
  count_rows(&t, p->rows[i]);
  return t;
}
static Twin y_twin(Draw *d, DType dtype, const Problem *p, int i, bool poisoned) {
  int h = out_size(p->h[i], p->r, &p->conv), w = out_size(p->w[i], p->s, &p->conv);
  Twin t = poisoned ? twin_poisoned(dtype, p->n, h, w, p->k) : whole(d, dtype, p->n, h, w, p->k);
  count_rows(&t, p->rows[i]);
  return t;
}

// ---- running ----------------------------------------------------------------------------------------------------

// The op on the GPU as the graph runs it: first asked for its scratch, then given no more than that.
#define RUN_ON_GPU(mode, op, ...)                                                                                      \
  do {                                                                                                                 \
    Device *gpu_ = gpu_device();                                                                                       \
    size_t reserved_ = gpu_->scratch_bytes;                                                                            \
    gpu_->conv = (mode)->rung;                                                                                         \
    gpu_->tf32 = (mode)->tf32;                                                                                         \
    gpu_->scratch_bytes = 0;                                                                                           \
    gpu_->measuring = true;                                                                                            \
    gpu_->ops->op(gpu_, __VA_ARGS__);                                                                                  \
    gpu_->measuring = false;                                                                                           \
    CHECK(gpu_->scratch_bytes <= reserved_);                                                                           \
    gpu_->ops->op(gpu_, __VA_ARGS__);                                                                                  \
    gpu_->scratch_bytes = reserved_;                                                                                   \
    gpu_->conv = NULL;                                                                                                 \
    gpu_->tf32 = false;                                                                                                \
  } while (0)

// One pair's destination and what it refers to.
typedef struct Target {
  Twin t, bias, addend, mask;
  bool accumulate, relu, has_bias, has_addend, has_mask;
} Target;

static Target draw_target(Draw *d, DType dtype, const Problem *p, Kind kind, int i) {
  Target o = {.accumulate = below(d, 3) == 0,
              .relu = below(d, 3) == 0,
              .has_bias = below(d, 2),
              .has_addend = below(d, 2),
              .has_mask = below(d, 3) == 0};
  o.t = kind == FORWARD ? y_twin(d, dtype, p, i, !o.accumulate) : x_twin(d, dtype, p, i, !o.accumulate);
  const Tensor *t = &o.t.cpu;
  if (o.has_bias) o.bias = whole_vector(d, t->c);
  int size = below(d, 3), h = t->h, w = t->w; // the same, half or double
  if (size == 1) h = (h + 1) / 2, w = (w + 1) / 2;
  if (size == 2) h = 2 * h - below(d, 2), w = 2 * w - below(d, 2);
  if (o.has_addend) o.addend = whole(d, dtype, t->n, h, w, t->c);
  if (o.has_mask) o.mask = whole(d, dtype, t->n, t->h, t->w, t->c);
  return o;
}
static Dest target_dest(const Target *o, bool gpu) {
  return (Dest){.t = *twin_side(&o->t, gpu),
                .accumulate = o->accumulate,
                .relu = o->relu,
                .bias = o->has_bias ? twin_side(&o->bias, gpu)->data : NULL,
                .addend = o->has_addend ? twin_side(&o->addend, gpu) : NULL,
                .mask = o->has_mask ? twin_side(&o->mask, gpu) : NULL};
}
static void check_target(Target *o) {
  twin_check_guards(&o->t, false);
  twin_free(&o->t);
  Twin *inputs[] = {&o->bias, &o->addend, &o->mask};
  for (int i = 0; i < COUNT(inputs); i++) {
    if (!inputs[i]->gpu.data) continue;
    twin_check_guards(inputs[i], true);
    twin_free(inputs[i]);
  }
}

static void run_activations(const Mode *m, Kind kind, const Problem *p, Draw *d) {
  Device *cpu = cpu_device();
  Twin w = whole(d, m->dtype, p->k, p->r, p->s, p->c), in[MAX_TEST_PAIRS];
  Target out[MAX_TEST_PAIRS];
  Tensor cpu_in[MAX_TEST_PAIRS], gpu_in[MAX_TEST_PAIRS];
  Dest cpu_out[MAX_TEST_PAIRS], gpu_out[MAX_TEST_PAIRS];
  for (int i = 0; i < p->pairs; i++) {
    in[i] = kind == FORWARD ? x_twin(d, m->dtype, p, i, false) : y_twin(d, m->dtype, p, i, false);
    out[i] = draw_target(d, m->dtype, p, kind, i);
    cpu_in[i] = in[i].cpu, gpu_in[i] = in[i].gpu;
    cpu_out[i] = target_dest(&out[i], false), gpu_out[i] = target_dest(&out[i], true);
  }
  if (kind == FORWARD) {
    cpu->ops->conv_forward(cpu, &p->conv, p->pairs, cpu_in, &w.cpu, cpu_out);
    RUN_ON_GPU(m, conv_forward, &p->conv, p->pairs, gpu_in, &w.gpu, gpu_out);
  } else {
    cpu->ops->conv_dgrad(cpu, &p->conv, p->pairs, cpu_in, &w.cpu, cpu_out);
    RUN_ON_GPU(m, conv_dgrad, &p->conv, p->pairs, gpu_in, &w.gpu, gpu_out);
  }
  for (int i = 0; i < p->pairs; i++) {
    if (!twin_check(&out[i].t, NULL, m->dtype == F32 ? 0 : 1)) {
      describe(m, kind, p);
      printf("  pair %d: accumulate %d, relu %d, bias %d, addend %d x %d, mask %d\n", i, out[i].accumulate, out[i].relu,
             out[i].has_bias, out[i].addend.cpu.h, out[i].addend.cpu.w, out[i].has_mask);
    }
    check_target(&out[i]);
    twin_check_guards(&in[i], true);
    twin_free(&in[i]);
  }
  twin_check_guards(&w, true);
  twin_free(&w);
}

// cuDNN rounds the gradient of a filter, a sum of products of up to 4 over all pixels, to the operands' type, and only
// then is it scaled, by up to 2. Everyone else's is exact.
static bool check_filter(const Mode *m, const Problem *p, const Twin *dw, const Tensor *y) {
  if (!is_cudnn(m->rung) || m->dtype == F32) return twin_check(dw, NULL, 0);
  size_t elements = tensor_elements(&dw->cpu), pixels = 0;
  for (int i = 0; i < p->pairs; i++) pixels += tensor_pixels(&y[i]);
  float *bound = xmalloc(elements * sizeof *bound);
  for (size_t i = 0; i < elements; i++) bound[i] = 8 * (float)pixels;
  bool ok = twin_check(dw, bound, m->dtype == BF16 ? 0x1p-9 / 0x1p-24 : 0x1p-12 / 0x1p-24);
  free(bound);
  return ok;
}

static void run_filter(const Mode *m, const Problem *p, Draw *d) {
  Device *cpu = cpu_device();
  bool accumulate = below(d, 2), biased = below(d, 3), scaled = below(d, 2);
  Twin dw = accumulate ? whole(d, F32, p->k, p->r, p->s, p->c) : twin_poisoned(F32, p->k, p->r, p->s, p->c);
  Twin db = accumulate ? whole_vector(d, p->k) : twin_packed(1, p->k, NULL), scale = whole_vector(d, p->k);
  Twin x[MAX_TEST_PAIRS], dy[MAX_TEST_PAIRS];
  Tensor xs[2][MAX_TEST_PAIRS], dys[2][MAX_TEST_PAIRS];
  for (int i = 0; i < p->pairs; i++) {
    x[i] = x_twin(d, m->dtype, p, i, false);
    dy[i] = y_twin(d, m->dtype, p, i, false);
    for (int gpu = 0; gpu < 2; gpu++) xs[gpu][i] = *twin_side(&x[i], gpu), dys[gpu][i] = *twin_side(&dy[i], gpu);
  }
  FilterGrad out[2];
  for (int gpu = 0; gpu < 2; gpu++)
    out[gpu] = (FilterGrad){.dw = *twin_side(&dw, gpu),
                            .db = biased ? twin_side(&db, gpu)->data : NULL,
                            .scale = scaled ? twin_side(&scale, gpu)->data : NULL,
                            .accumulate = accumulate};
  cpu->ops->conv_wgrad(cpu, &p->conv, p->pairs, xs[0], dys[0], &out[0]);
  RUN_ON_GPU(m, conv_wgrad, &p->conv, p->pairs, xs[1], dys[1], &out[1]);
  bool ok = check_filter(m, p, &dw, dys[0]);
  if (biased) ok &= twin_check(&db, NULL, 0);
  if (!ok) {
    describe(m, WGRAD, p);
    printf("  accumulate %d, db %d, scale %d\n", accumulate, biased, scaled);
  }
  Twin *all[] = {&dw, &db, &scale};
  for (int i = 0; i < COUNT(all); i++) twin_check_guards(all[i], i == 2), twin_free(all[i]);
  for (int i = 0; i < p->pairs; i++) {
    twin_check_guards(&x[i], true), twin_free(&x[i]);
    twin_check_guards(&dy[i], true), twin_free(&dy[i]);
  }
}

static void run_all(const Mode *m, const Problem *p, uint64_t seed) {
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  run_activations(m, FORWARD, p, &d);
  run_activations(m, DGRAD, p, &d);
  run_filter(m, p, &d);
}

// ---- problems ---------------------------------------------------------------------------------------------------

static Problem draw_problem(uint64_t seed) {
  static const int channels[] = {1, 3, 8, 12, 16, 33, 40, 64, 70}, sizes[] = {1, 1, 2, 3, 3, 3, 5};
  Draw d = {.key = rng_key(seed, RNG_SHAPES)};
  Problem p = {.pairs = below(&d, 4) ? 1 : 1 + below(&d, MAX_TEST_PAIRS), .n = 1 + below(&d, 3)};
  p.r = p.s = sizes[below(&d, COUNT(sizes))];
  if (below(&d, 5) == 0) p.s = sizes[below(&d, COUNT(sizes))];
  p.conv = (Conv){.stride = 1 + below(&d, 3), .pad = below(&d, MAX(p.r, p.s) / 2 + 2)};
  p.c = channels[below(&d, COUNT(channels))];
  p.k = channels[below(&d, COUNT(channels))];
  for (int i = 0; i < MAX_TEST_PAIRS; i++) {
    p.h[i] = MAX(1, p.r - 2 * p.conv.pad) + below(&d, 9);
    p.w[i] = MAX(1, p.s - 2 * p.conv.pad) + below(&d, 9);
    p.rows[i] = below(&d, 3) ? -1 : below(&d, p.n + 1);
  }
  return p;
}

// A few tiles each: every form that is treated apart, and the edges of tiles.
static const Problem quick[] = {
    // stride and pad, taps, pairs, n, channels in and out, x's heights, widths, rows
    {{1, 0}, 1, 1, 1, 1, 1, 1, {1}, {1}, {-1}}, // everything is one
    // tiles that begin in one image and end in the next, more columns than a tile, more terms than a stage
    {{1, 1}, 3, 3, 1, 2, 24, 136, {9}, {9}, {-1}},
    {{1, 0}, 1, 1, 1, 1, 72, 264, {12}, {12}, {-1}},
    // levels that share a filter, one without rows; a stride
    {{1, 1}, 3, 3, 3, 2, 16, 24, {9, 5, 3}, {7, 6, 3}, {-1, 1, 0}},
    {{2, 1}, 3, 3, 2, 2, 8, 40, {9, 6}, {10, 5}, {1, -1}},
    // the stem
    {{2, 3}, 7, 7, 1, 1, 3, 16, {11}, {10}, {-1}},
    // a projection, whose gradient is zero in three pixels out of four
    {{2, 0}, 1, 1, 1, 2, 40, 33, {5}, {6}, {-1}},
    // fully connected over 2 × 3, some rows valid; with padding lanes
    {{1, 0}, 2, 3, 1, 9, 16, 24, {2}, {3}, {7}},
    {{1, 0}, 2, 3, 1, 5, 5, 9, {2}, {3}, {-1}},
    // the transposed convolution of the mask head
    {{2, 0}, 2, 2, 1, 3, 16, 24, {8}, {6}, {2}},
    // a stride past the filter: some pixels meet no tap
    {{3, 0}, 2, 2, 1, 2, 8, 8, {8}, {7}, {-1}},
};

// The same forms at lengths that take many tiles, stages and slots.
static const Problem thorough[] = {
    {{1, 1}, 3, 3, 1, 2, 70, 140, {11}, {13}, {-1}},
    {{1, 1}, 3, 3, 3, 2, 16, 24, {17, 9, 5}, {19, 10, 5}, {-1, 1, 0}},
    // pixels for more slots of the filter's gradient than one pass of its reduction adds up
    {{1, 1}, 3, 3, 2, 2, 8, 12, {50, 23}, {53, 29}, {-1, 1}},
    {{2, 3}, 7, 7, 1, 2, 3, 64, {33}, {38}, {-1}},
    {{2, 0}, 1, 1, 1, 2, 40, 33, {9}, {10}, {-1}},
    {{1, 0}, 7, 7, 1, 40, 16, 24, {7}, {7}, {33}},
    {{1, 0}, 1, 1, 1, 300, 64, 5, {1}, {1}, {129}},
    {{2, 0}, 2, 2, 1, 4, 48, 64, {14}, {14}, {3}},
};

enum { DRAWS = 4, RANDOM_PROBLEMS = 24 }; // of what each Dest asks for; of shapes

static void check_problems(Side side, const Problem *problems, int count, int draws, int random) {
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), side, modes);
  if (!num_modes) return test_skip("libcudnn.so.9 is not on LD_LIBRARY_PATH");
  for (int i = 0; i < num_modes; i++) {
    for (int j = 0; j < draws * count; j++) run_all(&modes[i], &problems[j % count], (uint64_t)(1000 * (i + 1) + j));
    for (int j = 0; j < random; j++) {
      Problem p = draw_problem((uint64_t)(j + i * random));
      run_all(&modes[i], &p, (uint64_t)j);
    }
  }
}

TEST(cuda_conv_is_exact_on_small_shapes) {
  if (gpu_device()) check_problems(RACECHECKED, quick, COUNT(quick), 1, 0);
}
TEST_TIER(cuda_conv_is_exact, 1) {
  if (!gpu_device()) return;
  check_problems(OURS, quick, COUNT(quick), DRAWS, RANDOM_PROBLEMS);
  check_problems(OURS, thorough, COUNT(thorough), DRAWS, 0);
}
TEST_TIER(cuda_conv_by_cudnn_is_exact, 1) {
  if (gpu_device()) check_problems(CUDNN, quick, COUNT(quick), 1, 0);
}

// By itself, for memcheck and initcheck.
TEST_TIER(cuda_conv_by_wgmma_is_exact_on_small_shapes, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), OURS, modes);
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; modes[i].rung && !strcmp(modes[i].rung, "wgmma") && j < COUNT(quick); j++)
      run_all(&modes[i], &quick[j], (uint64_t)j);
}

// Filters' gradients large enough for the larger tiles of rung 05, in one slot and in several, of which some share a patch
// for the taps of a row.
static const Problem filters[] = {
    {{1, 0}, 1, 1, 1, 60, 136, 400, {14}, {17}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 400, 520, {10}, {13}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 520, 520, {10}, {13}, {1}},
    {{1, 1}, 3, 3, 1, 2, 72, 200, {40}, {43}, {-1}},
    {{1, 2}, 3, 3, 3, 4, 40, 400, {40, 9, 3}, {43, 11, 3}, {3, -1, 0}},
    {{1, 1}, 3, 3, 1, 60, 136, 400, {14}, {17}, {41}},
    {{1, 1}, 3, 3, 1, 4, 200, 400, {60}, {63}, {-1}},
};

TEST_TIER(cuda_conv_wgrad_is_exact_in_large_tiles, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), OURS, modes);
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; modes[i].rung && !strcmp(modes[i].rung, "wgmma") && j < COUNT(filters); j++) {
      Draw d = {.key = rng_key((uint64_t)j, RNG_TEST)};
      run_filter(&modes[i], &filters[j], &d);
    }
}

// Phases of a stride whose tiles take turns: sums of one length, and of several in tiles enough for that.
static const Problem phases[] = {
    {{2, 0}, 2, 2, 1, 3, 16, 24, {18}, {22}, {2}},
    {{2, 1}, 3, 3, 1, 2, 16, 8, {520}, {520}, {-1}},
    {{2, 1}, 3, 3, 1, 3, 16, 8, {520}, {520}, {2}},
};

TEST_TIER(cuda_conv_phases_take_turns, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), OURS, modes);
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; modes[i].rung && !strcmp(modes[i].rung, "wgmma") && j < COUNT(phases); j++) {
      Draw d = {.key = rng_key((uint64_t)j, RNG_TEST)};
      run_activations(&modes[i], DGRAD, &phases[j], &d);
    }
}

// ---- rounding, repetition ---------------------------------------------------------------------------------------

static Tensor magnitude(const Tensor *t) {
  Tensor m = *t;
  m.data = xmalloc(tensor_bytes(t));
  for (size_t i = 0; i < tensor_elements(t); i++) ((float *)m.data)[i] = fabsf(((const float *)t->data)[i]);
  return m;
}

static void run_kind(Device *dev, Kind kind, const Problem *p, const Tensor *x, const Tensor *w, const Tensor *y) {
  Dest to_x = {.t = *x}, to_y = {.t = *y};
  FilterGrad to_w = {.dw = *w};
  if (kind == FORWARD) dev->ops->conv_forward(dev, &p->conv, 1, x, w, &to_y);
  if (kind == DGRAD) dev->ops->conv_dgrad(dev, &p->conv, 1, y, w, &to_x);
  if (kind == WGRAD) dev->ops->conv_wgrad(dev, &p->conv, 1, x, y, &to_w);
}

// A sum of T terms errs by at most T·u·Σ|term|, u = 2^-24 where additions round to nearest and 2^-23 where they truncate,
// as tensor cores do; the CPU's errs likewise. TF32 rounds both factors of each term by 2^-11. The result is rounded once.
// So is a filter's gradient before the rest, by cuDNN, to the operands' type.
static double sum_factor(const Mode *m, DType result, double terms) {
  static const double eps[DTYPES] = {[F32] = 0x1p-24, [BF16] = 0x1p-8, [F16] = 0x1p-11};
  double between = is_cudnn(m->rung) && result == F32 ? eps[m->dtype] : 0;
  return 1 + (terms * (0x1p-23 + 0x1p-24) + (m->tf32 ? 0x1p-10 : 0) + between) / eps[result];
}

static void check_rounding(const Mode *m, Kind kind, const Problem *p) {
  Device *gpu = gpu_device(), *cpu = cpu_device();
  int h = out_size(p->h[0], p->r, &p->conv), w_out = out_size(p->w[0], p->s, &p->conv);
  DType filter = kind == WGRAD ? F32 : m->dtype;
  Twin x = twin_random(m->dtype, p->n, p->h[0], p->w[0], p->c, 1, 1);
  Twin w = twin_random(filter, p->k, p->r, p->s, p->c, 1, 2), y = twin_random(m->dtype, p->n, h, w_out, p->k, 1, 3);
  Twin *out = kind == FORWARD ? &y : kind == DGRAD ? &x : &w;
  Tensor ax = magnitude(&x.cpu), aw = magnitude(&w.cpu), ay = magnitude(&y.cpu);
  run_kind(cpu, kind, p, &ax, &aw, &ay);
  run_kind(cpu, kind, p, &x.cpu, &w.cpu, &y.cpu);
  gpu->conv = m->rung;
  gpu->tf32 = m->tf32;
  void *bits[2];
  for (int i = 0; i < 2; i++) {
    run_kind(gpu, kind, p, &x.gpu, &w.gpu, &y.gpu);
    bits[i] = gpu_fetch(out->gpu.data, tensor_bytes(&out->gpu));
  }
  gpu->conv = NULL;
  gpu->tf32 = false;
  const Tensor *bound = kind == FORWARD ? &ay : kind == DGRAD ? &ax : &aw;
  double terms = kind == WGRAD ? (double)tensor_pixels(&y.cpu) : (double)p->r * p->s * (kind == FORWARD ? p->c : p->k);
  bool ok = twin_check(out, bound->data, sum_factor(m, out->gpu.dtype, terms));
  ok &= EXPECT(!memcmp(bits[0], bits[1], tensor_bytes(&out->gpu)) && "the same bits twice");
  if (!ok) describe(m, kind, p);
  for (int i = 0; i < 2; i++) free(bits[i]);
  free(ax.data), free(aw.data), free(ay.data);
  twin_free(&x), twin_free(&w), twin_free(&y);
}

// Operands that become TF32 are rounded to nearest, not cut off, be they pixels or filters: 1 × 1 filters that copy, by a
// factor. (Rungs 01 and 02 leave them as they are.)
static void check_tf32(const Mode *m, Kind kind, bool filter) {
  enum { C = 40, PIXELS = 2 * 5 * 7 };
  const float between = 1 + 0x1p-11f + 0x1p-12f, nearest = 1 + 0x1p-10f;
  const Problem p = {{1, 0}, 1, 1, 1, 2, C, C, {5}, {7}, {-1}};
  float v[PIXELS * C], factors[C * C] = {0};
  for (int i = 0; i < PIXELS * C; i++) v[i] = filter ? 1 : between;
  for (int i = 0; i < C; i++) factors[i * C + i] = filter ? between : 1;
  Twin in = twin_values(F32, 2, 5, 7, C, v), w = twin_values(F32, C, 1, 1, C, factors);
  Twin out = twin_poisoned(F32, 2, 5, 7, C);
  Dest to = {.t = out.gpu};
  if (kind == FORWARD)
    RUN_ON_GPU(m, conv_forward, &p.conv, 1, &in.gpu, &w.gpu, &to);
  else
    RUN_ON_GPU(m, conv_dgrad, &p.conv, 1, &in.gpu, &w.gpu, &to);
  float *got = gpu_fetch_floats(&out.gpu);
  bool ok = true;
  for (int i = 0; i < PIXELS * C; i++) ok &= got[i] == nearest || got[i] == between;
  if (!EXPECT(ok && "rounded to nearest"))
    printf("  %a, where %a becomes %a\n", (double)got[0], (double)between, (double)nearest), describe(m, kind, &p);
  free(got);
  twin_free(&in), twin_free(&w), twin_free(&out);
}

TEST_TIER(cuda_conv_rounds_to_tf32, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), OURS, modes);
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; modes[i].tf32 && j < 4; j++) check_tf32(&modes[i], j % 2 ? DGRAD : FORWARD, j / 2);
}

static void check_all_rounding(Side side) {
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), side, modes);
  if (!num_modes) return test_skip("libcudnn.so.9 is not on LD_LIBRARY_PATH");
  for (int i = 0; i < num_modes; i++)
    for (Kind kind = FORWARD; kind < KINDS; kind++) {
      check_rounding(&modes[i], kind, &quick[3]);
      check_rounding(&modes[i], kind, &quick[5]);
    }
}
TEST(cuda_conv_rounds_as_it_should) {
  if (gpu_device()) check_all_rounding(RACECHECKED);
}
TEST_TIER(cuda_conv_rounds_as_it_should_and_repeats_its_bits, 1) {
  if (gpu_device()) check_all_rounding(OURS);
}
TEST_TIER(cuda_conv_by_cudnn_rounds_as_it_should_and_repeats_its_bits, 1) {
  if (gpu_device()) check_all_rounding(CUDNN);
}

// ---- every Dest ---------------------------------------------------------------------------------------------------

typedef struct ConvArgs {
  Conv conv;
  Twin in, w;
  bool backward;
} ConvArgs;
static void run_dest(Device *dev, bool gpu, void *context, const Dest *d) {
  const ConvArgs *a = context;
  if (a->backward)
    dev->ops->conv_dgrad(dev, &a->conv, 1, twin_side(&a->in, gpu), twin_side(&a->w, gpu), d);
  else
    dev->ops->conv_forward(dev, &a->conv, 1, twin_side(&a->in, gpu), twin_side(&a->w, gpu), d);
}

static void check_dests(const Mode *m, bool backward, uint64_t seed) {
  Device *gpu = gpu_device();
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  ConvArgs a = {.conv = {1, 1}, .backward = backward};
  a.in = whole(&d, m->dtype, 2, 5, 6, 11);
  a.w = backward ? whole(&d, m->dtype, 11, 3, 3, 9) : whole(&d, m->dtype, 9, 3, 3, 11);
  Twin shape = twin_poisoned(m->dtype, 2, 5, 6, 9);
  twin_rows(&shape, 1);
  twin_rows(&a.in, 1);
  gpu->conv = m->rung;
  gpu->tf32 = m->tf32;
  twin_check_dests(run_dest, &a, &shape, NULL, 1, seed);
  gpu->conv = NULL;
  gpu->tf32 = false;
  twin_free(&a.in), twin_free(&a.w), twin_free(&shape);
}
// Each rung in the first of its types, or in all of them.
static void check_all_dests(Side side, bool all) {
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), side, modes);
  if (!num_modes) return test_skip("libcudnn.so.9 is not on LD_LIBRARY_PATH");
  for (int i = 0; i < num_modes; i++)
    for (int backward = 0; backward < 2; backward++)
      if (all || (modes[i].rung && (!i || modes[i].rung != modes[i - 1].rung)))
        check_dests(&modes[i], backward, (uint64_t)i);
}
TEST(cuda_conv_honours_every_dest) {
  if (gpu_device()) check_all_dests(RACECHECKED, false);
}
TEST_TIER(cuda_conv_honours_every_dest_in_every_type, 1) {
  if (gpu_device()) check_all_dests(OURS, true);
}
TEST_TIER(cuda_conv_by_cudnn_honours_every_dest, 1) {
  if (gpu_device()) check_all_dests(CUDNN, false);
}

// ---- the small ops ------------------------------------------------------------------------------------------------

TEST(cuda_bias_grad_adds_columns) {
  Device *gpu = gpu_device(), *cpu = cpu_device();
  if (!gpu) return;
  static const struct {
    int n, h, w, c, rows;
  } cases[] = {{1, 1, 1, 1, -1},    {2, 5, 7, 3, -1}, {3, 9, 9, 12, 2},   {4, 40, 41, 91, -1},
               {30, 1, 1, 364, 17}, {2, 3, 3, 8, 0},  {1, 3, 5, 1100, -1}};
  const Mode any = {.rung = NULL};
  for (int i = 0; i < COUNT(cases); i++)
    for (DType t = F32; t < DTYPES; t++)
      for (int accumulate = 0; accumulate < 2 && t != F64; accumulate++) {
        Draw d = {.key = rng_key((uint64_t)i, RNG_TEST)};
        Twin dy = whole(&d, t, cases[i].n, cases[i].h, cases[i].w, cases[i].c);
        count_rows(&dy, cases[i].rows);
        Twin db = accumulate ? whole_vector(&d, cases[i].c) : twin_packed(1, cases[i].c, NULL);
        cpu->ops->bias_grad(cpu, &dy.cpu, db.cpu.data, accumulate);
        RUN_ON_GPU(&any, bias_grad, &dy.gpu, db.gpu.data, accumulate);
        if (!twin_check(&db, NULL, 0)) printf("  case %d, dtype %d, accumulate %d\n", i, t, accumulate);
        twin_check_guards(&dy, true);
        twin_check_guards(&db, false);
        twin_free(&dy), twin_free(&db);
      }
}

TEST(cuda_filter_shadow_scales_rows) {
  Device *gpu = gpu_device(), *cpu = cpu_device();
  if (!gpu) return;
  const Mode any = {.rung = NULL};
  for (DType t = F32; t < DTYPES; t++)
    for (int scaled = 0; scaled < 2 && t != F64; scaled++) {
      Draw d = {.key = RNG_TEST};
      Twin master = twin_random(F32, 70, 3, 3, 11, 1, 4), shadow = twin_poisoned(t, 70, 3, 3, 11);
      Twin scale = whole_vector(&d, 70);
      cpu->ops->filter_shadow(cpu, &master.cpu, scaled ? scale.cpu.data : NULL, &shadow.cpu);
      RUN_ON_GPU(&any, filter_shadow, &master.gpu, scaled ? scale.gpu.data : NULL, &shadow.gpu);
      if (!twin_check(&shadow, NULL, t == F32 ? 0 : 1)) printf("  dtype %d, scale %d\n", t, scaled);
      twin_check_guards(&master, true);
      twin_check_guards(&shadow, false);
      twin_free(&master), twin_free(&shadow), twin_free(&scale);
    }
}
