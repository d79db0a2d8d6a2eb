// Catches a GPU convolution that loses, doubles or misplaces a term in some shape, type or kernel.
//
// Compares convolutions on the GPU with the CPU reference: every rung of the ladder in every type that it supports.
//
// Operands are small integers. They, their products and their sums are exact in all types and in whatever order they
// are added, so that F32 results must agree to the bit and 16-bit results to one rounding: a term that is lost, doubled
// or taken from the wrong pixel cannot hide.
//
// The quick tier uses shapes of a few tiles, small enough for compute-sanitizer.
#include "test/harness/gpu_conv.h"

// ---- running ----------------------------------------------------------------------------------------------------

static TensorPair x_pair(Draw *d, DType dtype, const Problem *p, int i, bool poisoned) {
  TensorPair t =
      poisoned ? pair_poisoned(dtype, p->n, p->h[i], p->w[i], p->c) : whole(d, dtype, p->n, p->h[i], p->w[i], p->c);
  count_rows(&t, p->rows[i]);
  return t;
}
static TensorPair y_pair(Draw *d, DType dtype, const Problem *p, int i, bool poisoned) {
  int h = out_size(p->h[i], p->r, &p->conv), w = out_size(p->w[i], p->s, &p->conv);
  TensorPair t = poisoned ? pair_poisoned(dtype, p->n, h, w, p->k) : whole(d, dtype, p->n, h, w, p->k);
  count_rows(&t, p->rows[i]);
  return t;
}

// One pair's destination and what it refers to.
typedef struct Target {
  TensorPair t, bias, addend, mask;
  bool accumulate, relu, has_bias, has_addend, has_mask;
} Target;

static Target draw_target(Draw *d, DType dtype, const Problem *p, ConvPass pass, int i) {
  Target o = {.accumulate = below(d, 3) == 0,
              .relu = below(d, 3) == 0,
              .has_bias = below(d, 2),
              .has_addend = below(d, 2),
              .has_mask = below(d, 3) == 0};
  o.t = pass == FORWARD ? y_pair(d, dtype, p, i, !o.accumulate) : x_pair(d, dtype, p, i, !o.accumulate);
  const Tensor *t = &o.t.cpu;
  if (o.has_bias) o.bias = whole_vector(d, t->c);
  int size = below(d, 3), h = t->h, w = t->w; // the same, half or double
  if (size == 1) {
    h = (h + 1) / 2;
    w = (w + 1) / 2;
  }
  if (size == 2) {
    h = 2 * h - below(d, 2);
    w = 2 * w - below(d, 2);
  }
  if (o.has_addend) o.addend = whole(d, dtype, t->n, h, w, t->c);
  if (o.has_mask) o.mask = whole(d, dtype, t->n, t->h, t->w, t->c);
  return o;
}
static Dest target_dest(const Target *o, bool gpu) {
  return (Dest){.t = *pair_side(&o->t, gpu),
                .accumulate = o->accumulate,
                .relu = o->relu,
                .bias = o->has_bias ? pair_side(&o->bias, gpu)->data : NULL,
                .addend = o->has_addend ? pair_side(&o->addend, gpu) : NULL,
                .mask = o->has_mask ? pair_side(&o->mask, gpu) : NULL};
}
static void check_target(Target *o) {
  pair_check_guards(&o->t, false);
  pair_free(&o->t);
  TensorPair *inputs[] = {&o->bias, &o->addend, &o->mask};
  for (int i = 0; i < COUNT(inputs); i++) {
    if (!inputs[i]->gpu.data) continue;
    pair_check_guards(inputs[i], true);
    pair_free(inputs[i]);
  }
}

static void run_activations(const Mode *m, ConvPass pass, const Problem *p, Draw *d) {
  Device *cpu = cpu_device();
  TensorPair w = whole(d, m->dtype, p->k, p->r, p->s, p->c), in[MAX_TEST_PAIRS];
  Target out[MAX_TEST_PAIRS];
  Tensor cpu_in[MAX_TEST_PAIRS], gpu_in[MAX_TEST_PAIRS];
  Dest cpu_out[MAX_TEST_PAIRS], gpu_out[MAX_TEST_PAIRS];
  for (int i = 0; i < p->pairs; i++) {
    in[i] = pass == FORWARD ? x_pair(d, m->dtype, p, i, false) : y_pair(d, m->dtype, p, i, false);
    out[i] = draw_target(d, m->dtype, p, pass, i);
    cpu_in[i] = in[i].cpu;
    gpu_in[i] = in[i].gpu;
    cpu_out[i] = target_dest(&out[i], false);
    gpu_out[i] = target_dest(&out[i], true);
  }
  if (pass == FORWARD) {
    cpu->ops->conv_forward(cpu, &p->conv, p->pairs, cpu_in, &w.cpu, cpu_out);
    RUN_ON_GPU(m, conv_forward, &p->conv, p->pairs, gpu_in, &w.gpu, gpu_out);
  } else {
    cpu->ops->conv_dgrad(cpu, &p->conv, p->pairs, cpu_in, &w.cpu, cpu_out);
    RUN_ON_GPU(m, conv_dgrad, &p->conv, p->pairs, gpu_in, &w.gpu, gpu_out);
  }
  for (int i = 0; i < p->pairs; i++) {
    if (!pair_check(&out[i].t, NULL, m->dtype == F32 ? 0 : 1)) {
      describe(m, pass, p);
      printf("  pair %d: accumulate %d, relu %d, bias %d, addend %d x %d, mask %d\n", i, out[i].accumulate, out[i].relu,
             out[i].has_bias, out[i].addend.cpu.h, out[i].addend.cpu.w, out[i].has_mask);
    }
    check_target(&out[i]);
    pair_check_guards(&in[i], true);
    pair_free(&in[i]);
  }
  pair_check_guards(&w, true);
  pair_free(&w);
}

// cuDNN rounds the gradient of a filter, a sum of products of up to 4 over all pixels, to the operands' type, and
// only then is it scaled, by up to 2. Everyone else's is exact.
static bool check_filter(const Mode *m, const Problem *p, const TensorPair *dw, const Tensor *y) {
  if (!is_cudnn(m->rung) || m->dtype == F32) return pair_check(dw, NULL, 0);
  size_t elements = tensor_elements(&dw->cpu), pixels = 0;
  for (int i = 0; i < p->pairs; i++) pixels += tensor_pixels(&y[i]);
  float *bound = xmalloc(elements * sizeof *bound);
  for (size_t i = 0; i < elements; i++) bound[i] = 8 * (float)pixels;
  bool ok = pair_check(dw, bound, m->dtype == BF16 ? 0x1p-9 / 0x1p-24 : 0x1p-12 / 0x1p-24);
  free(bound);
  return ok;
}

static void run_filter(const Mode *m, const Problem *p, Draw *d) {
  Device *cpu = cpu_device();
  bool accumulate = below(d, 2), biased = below(d, 3), scaled = below(d, 2);
  TensorPair dw = accumulate ? whole(d, F32, p->k, p->r, p->s, p->c) : pair_poisoned(F32, p->k, p->r, p->s, p->c);
  TensorPair db = accumulate ? whole_vector(d, p->k) : pair_packed(1, p->k, NULL), scale = whole_vector(d, p->k);
  TensorPair x[MAX_TEST_PAIRS], dy[MAX_TEST_PAIRS];
  Tensor xs[2][MAX_TEST_PAIRS], dys[2][MAX_TEST_PAIRS];
  for (int i = 0; i < p->pairs; i++) {
    x[i] = x_pair(d, m->dtype, p, i, false);
    dy[i] = y_pair(d, m->dtype, p, i, false);
    for (int gpu = 0; gpu < 2; gpu++) {
      xs[gpu][i] = *pair_side(&x[i], gpu);
      dys[gpu][i] = *pair_side(&dy[i], gpu);
    }
  }
  FilterGrad out[2];
  for (int gpu = 0; gpu < 2; gpu++)
    out[gpu] = (FilterGrad){.dw = *pair_side(&dw, gpu),
                            .db = biased ? pair_side(&db, gpu)->data : NULL,
                            .scale = scaled ? pair_side(&scale, gpu)->data : NULL,
                            .accumulate = accumulate};
  cpu->ops->conv_wgrad(cpu, &p->conv, p->pairs, xs[0], dys[0], &out[0]);
  RUN_ON_GPU(m, conv_wgrad, &p->conv, p->pairs, xs[1], dys[1], &out[1]);
  bool ok = check_filter(m, p, &dw, dys[0]);
  if (biased) ok &= pair_check(&db, NULL, 0);
  if (!ok) {
    describe(m, WGRAD, p);
    printf("  accumulate %d, db %d, scale %d\n", accumulate, biased, scaled);
  }
  TensorPair *all[] = {&dw, &db, &scale};
  for (int i = 0; i < COUNT(all); i++) {
    pair_check_guards(all[i], i == 2);
    pair_free(all[i]);
  }
  for (int i = 0; i < p->pairs; i++) {
    pair_check_guards(&x[i], true);
    pair_free(&x[i]);
    pair_check_guards(&dy[i], true);
    pair_free(&dy[i]);
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
    // tiles that begin in one image and end in the next, a larger N than a tile's, a longer K than a stage's
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

// The same forms at lengths that take many tiles, stages and split-K slices.
static const Problem thorough[] = {
    {{1, 1}, 3, 3, 1, 2, 70, 140, {11}, {13}, {-1}},
    {{1, 1}, 3, 3, 3, 2, 16, 24, {17, 9, 5}, {19, 10, 5}, {-1, 1, 0}},
    // pixels for more split-K slices of the filter's gradient than one pass of its reduction adds up
    {{1, 1}, 3, 3, 2, 2, 8, 12, {50, 23}, {53, 29}, {-1, 1}},
    {{2, 3}, 7, 7, 1, 2, 3, 64, {33}, {38}, {-1}},
    {{2, 0}, 1, 1, 1, 2, 40, 33, {9}, {10}, {-1}},
    {{1, 0}, 7, 7, 1, 40, 16, 24, {7}, {7}, {33}},
    {{1, 0}, 1, 1, 1, 300, 64, 5, {1}, {1}, {129}},
    {{2, 0}, 2, 2, 1, 4, 48, 64, {14}, {14}, {3}},
};

// Dense layers of a classifier, an image a row.
static const Problem dense[] = {
    {{1, 0}, 1, 1, 1, 1, 512, 512, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 2, 512, 512, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 7, 512, 512, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 64, 512, 512, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 128, 512, 512, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 128, 512, 10, {1}, {1}, {-1}},
    {{1, 0}, 7, 7, 1, 32, 64, 512, {7}, {7}, {-1}},
    {{1, 0}, 1, 1, 1, 37, 1000, 264, {1}, {1}, {-1}},
    // rows past a count; more rows than a tile; slices of K that end in the middle of a stage, and of a padded K
    {{1, 0}, 1, 1, 1, 64, 264, 1000, {1}, {1}, {40}},
    {{1, 0}, 1, 1, 1, 65, 4104, 200, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 128, 200, 2056, {1}, {1}, {71}},
    {{1, 0}, 1, 1, 1, 3, 2050, 10, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 129, 520, 264, {1}, {1}, {-1}},
    {{1, 0}, 2, 3, 1, 20, 5, 136, {2}, {3}, {-1}},
    // filters that take longer to write than to compute, with and without padding
    {{1, 0}, 1, 1, 1, 64, 2048, 2048, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 40, 1420, 1540, {1}, {1}, {33}},
    // more tiles than blocks of wgrad
    {{1, 0}, 1, 1, 1, 33, 2500, 2300, {1}, {1}, {-1}},
};

// 3 × 3 of 64 to 64 channels: one pixel, images within a tile, one row, rows as long as the ring has room for and one
// longer, more tiles than the ring.
static const Problem of_64_channels[] = {
    {{1, 1}, 3, 3, 1, 1, 64, 64, {1}, {1}, {-1}},
    {{1, 1}, 3, 3, 1, 40, 64, 64, {3}, {3}, {-1}},
    {{1, 1}, 3, 3, 1, 1, 64, 64, {1}, {300}, {-1}},
    {{1, 1}, 3, 3, 1, 1, 64, 64, {5}, {446}, {-1}},
    {{1, 1}, 3, 3, 1, 1, 64, 64, {2}, {447}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 64, 64, {37}, {41}, {-1}},
    {{1, 1}, 3, 3, 2, 2, 64, 64, {9, 3}, {7, 21}, {-1, -1}},
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
TEST_TIER(cuda_conv_of_dense_layers_is_exact, 1) {
  if (gpu_device()) check_problems(OURS, dense, COUNT(dense), 1, 0);
}
// Also for any number of multiprocessors granted.
TEST_TIER(cuda_conv_of_64_channels_is_exact, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Mode modes[MAX_MODES];
  const int num_modes = find_modes(gpu, WGMMA, modes), granted[] = {gpu->multiprocessors, 1, 5};
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; modes[i].dtype != F32 && j < DRAWS * COUNT(granted) * COUNT(of_64_channels); j++) {
      gpu->granted = granted[j / COUNT(of_64_channels) % COUNT(granted)];
      run_all(&modes[i], &of_64_channels[j % COUNT(of_64_channels)], (uint64_t)j);
    }
  gpu->granted = gpu->multiprocessors;
}
// In TF32 dgrad of a dense layer reads the filter where it lies: its workspace is smaller than a copy would be.
TEST(cuda_conv_dgrad_of_dense_layers_copies_no_filter) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  static const int rows[] = {1, 64, 128};
  const Tensor w = tensor(F32, 4096, 6, 6, 256);
  const Conv conv = {1, 0};
  const size_t reserved = gpu->workspace_bytes;
  gpu->tf32 = gpu->measuring = true;
  for (int i = 0; i < COUNT(rows); i++) {
    const Tensor dy = tensor(F32, rows[i], 1, 1, 4096);
    const Dest dx = {.t = tensor(F32, rows[i], 6, 6, 256)};
    gpu->workspace_bytes = 0;
    gpu->ops->conv_dgrad(gpu, &conv, 1, &dy, &w, &dx);
    EXPECT(gpu->workspace_bytes < tensor_bytes(&w) / 4);
  }
  gpu->tf32 = gpu->measuring = false;
  gpu->workspace_bytes = reserved;
}
// Forward in TF32, of any numbers: the first image's bits do not depend on how many there are beside it, up to p->n.
static void check_any_batch(const Mode *mode, const Problem *p, const int *batches, int count) {
  const size_t pixels = (size_t)p->h[0] * (size_t)p->w[0], elements = (size_t)p->n * pixels * (size_t)p->c;
  const int h = out_size(p->h[0], p->r, &p->conv), w = out_size(p->w[0], p->s, &p->conv);
  float *values = xmalloc(elements * sizeof *values);
  Draw d = {.key = rng_key(1, RNG_TEST)};
  for (size_t i = 0; i < elements; i++) values[i] = 1e-3f * (float)(below(&d, 2000) - 1000);
  TensorPair filter = pair_random(F32, p->k, p->r, p->s, p->c, 0.05, 1);
  char *first = NULL;
  for (int i = 0; i < count; i++) {
    CHECK(batches[i] <= p->n);
    TensorPair in = pair_values(F32, batches[i], p->h[0], p->w[0], p->c, values);
    TensorPair out = pair_poisoned(F32, batches[i], h, w, p->k);
    const Dest dest = {.t = out.gpu};
    RUN_ON_GPU(mode, conv_forward, &p->conv, 1, &in.gpu, &filter.gpu, &dest);
    const size_t image = tensor_bytes(&out.gpu) / (size_t)batches[i];
    char *bits = gpu_fetch(out.gpu.data, image);
    if (first && !EXPECT(!memcmp(first, bits, image))) {
      describe(mode, FORWARD, p);
      printf("  batch %d beside batch %d\n", batches[i], batches[0]);
    }
    if (first)
      free(bits);
    else
      first = bits;
    pair_free(&in);
    pair_free(&out);
  }
  free(first);
  free(values);
  pair_free(&filter);
}
TEST(cuda_conv_of_dense_layers_in_any_batch) {
  static const int batches[] = {1, 5, 64, 65, 128};
  static const Problem layers[] = {{{1, 0}, 1, 1, 1, 128, 2048, 1000, {1}, {1}, {-1}},
                                   {{1, 0}, 3, 3, 1, 128, 68, 72, {3}, {3}, {-1}}}; // with padding channels
  const Mode mode = {.dtype = F32, .tf32 = true};
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(layers); i++) check_any_batch(&mode, &layers[i], batches, COUNT(batches));
}
// Few rows in a batch of one, many in the others: only dense layers, whose rows are images, may split K by that.
TEST(cuda_conv_of_small_maps_in_any_batch) {
  static const int batches[] = {1, 2, 24};
  static const Problem maps[] = {{{1, 0}, 5, 5, 1, 24, 6, 16, {14}, {14}, {-1}},
                                 {{1, 1}, 3, 3, 1, 24, 256, 64, {2}, {3}, {-1}},
                                 {{1, 0}, 1, 1, 1, 24, 512, 128, {7}, {7}, {-1}}};
  Device *gpu = gpu_device();
  if (!gpu) return;
  const Mode modes[] = {{NULL, F32, true}, {rung_find(gpu->conv_rungs, "mma"), F32, true}};
  for (int i = 0; i < COUNT(modes) * COUNT(maps); i++)
    check_any_batch(&modes[i % COUNT(modes)], &maps[i / COUNT(modes)], batches, COUNT(batches));
}
TEST_TIER(cuda_conv_by_cudnn_is_exact, 1) {
  if (gpu_device()) check_problems(CUDNN, quick, COUNT(quick), 1, 0);
}

// Rung 05 by itself, in every type; some of the problems of run_all.
static void check_wgmma(const Problem *problems, int count, bool forward, bool dgrad, bool wgrad) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; j < count; j++) {
      Draw d = {.key = rng_key((uint64_t)j, RNG_TEST)};
      if (forward) run_activations(&modes[i], FORWARD, &problems[j], &d);
      if (dgrad) run_activations(&modes[i], DGRAD, &problems[j], &d);
      if (wgrad) run_filter(&modes[i], &problems[j], &d);
    }
}

// For memcheck and initcheck.
TEST_TIER(cuda_conv_by_wgmma_is_exact_on_small_shapes, 1) { check_wgmma(quick, COUNT(quick), true, true, true); }

// Filters' gradients large enough for the larger threadblock tiles of rung 05, unsplit and split along K, of which some
// share a patch for the taps of a row.
static const Problem filters[] = {
    {{1, 0}, 1, 1, 1, 60, 136, 400, {14}, {17}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 400, 520, {10}, {13}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 520, 520, {10}, {13}, {1}},
    {{1, 1}, 3, 3, 1, 2, 72, 200, {40}, {43}, {-1}},
    {{1, 2}, 3, 3, 3, 4, 40, 400, {40, 9, 3}, {43, 11, 3}, {3, -1, 0}},
    {{1, 1}, 3, 3, 1, 60, 136, 400, {14}, {17}, {41}},
    {{1, 1}, 3, 3, 1, 4, 200, 400, {60}, {63}, {-1}},
};

TEST_TIER(cuda_conv_wgrad_is_exact_in_large_tiles, 1) { check_wgmma(filters, COUNT(filters), false, false, true); }

// Phases of a stride whose tiles the scheduler interleaves: GEMMs of one K, and of several where tiles are enough for
// that.
static const Problem phases[] = {
    {{2, 0}, 2, 2, 1, 3, 16, 24, {18}, {22}, {2}},
    {{2, 0}, 2, 2, 1, 3, 512, 32, {72}, {88}, {2}},
    {{2, 1}, 3, 3, 1, 2, 16, 8, {520}, {520}, {-1}},
    {{2, 1}, 3, 3, 1, 3, 16, 8, {520}, {520}, {2}},
};

TEST_TIER(cuda_conv_phases_are_interleaved, 1) { check_wgmma(phases, COUNT(phases), false, true, false); }

// A last wave of few tiles: more tiles than an H200 has multiprocessors, but by a few, of every width; forward, dgrad,
// with a count, with levels, and with mainloops that go round the pipeline's stages. Of the last problem the tail wave
// is a launch of its own, forward and in dgrad, in all types: by a margin of 4 to 24 % of what launch_cost says.
static const Problem tail_waves[] = {
    {{1, 0}, 1, 1, 1, 60, 256, 256, {17}, {17}, {-1}},
    {{1, 0}, 1, 1, 1, 60, 192, 192, {17}, {17}, {59}},
    {{1, 1}, 3, 3, 1, 60, 128, 128, {17}, {17}, {-1}},
    {{1, 0}, 1, 1, 3, 20, 256, 256, {17, 18, 17}, {17, 16, 17}, {-1, 19, -1}},
    {{1, 0}, 1, 1, 1, 60, 136, 264, {17}, {17}, {-1}},
    {{1, 0}, 1, 1, 1, 60, 256, 2176, {17}, {17}, {-1}},
    {{1, 1}, 3, 3, 1, 59, 192, 256, {17}, {17}, {-1}},
};

TEST_TIER(cuda_conv_ends_in_a_tail_wave, 1) { check_wgmma(tail_waves, COUNT(tail_waves), true, true, false); }

// Tiles that leave some blocks of a cluster without rows: one, two, all but the first; where the device alone knows how
// many there are, none among them; in images that a tile crosses, and in levels; with columns past the first tile's.
static const Problem clusters[] = {
    {{1, 1}, 3, 3, 1, 1, 72, 256, {23}, {23}, {-1}},
    {{1, 0}, 1, 1, 1, 3, 136, 520, {13}, {20}, {-1}},
    {{1, 0}, 1, 1, 1, 300, 64, 264, {1}, {1}, {129}},
    {{1, 1}, 3, 3, 1, 5, 64, 256, {14}, {14}, {3}},
    {{1, 1}, 3, 3, 1, 5, 64, 256, {14}, {14}, {0}},
    {{2, 1}, 3, 3, 1, 2, 64, 384, {31}, {33}, {-1}},
    {{1, 1}, 3, 3, 3, 2, 64, 256, {17, 9, 5}, {19, 10, 5}, {-1, 1, 0}},
};

// Every tile that a rung can be asked for, in every type that takes it.
TEST_TIER(cuda_conv_tiles_are_exact, 1) {
  static const struct {
    const Problem *problems;
    int count;
  } sets[] = {{quick, COUNT(quick)}, {clusters, COUNT(clusters)}, {tail_waves, COUNT(tail_waves)}};
  Device *gpu = gpu_device();
  if (!gpu) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu, WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++)
    for (const char *const *tile = modes[i].rung->tiles; *tile && modes[i].dtype != F32; tile++) {
      gpu->conv_tile = *tile;
      printf("  %s, dtype %d\n", *tile, modes[i].dtype);
      for (int set = 0; set < COUNT(sets); set++)
        for (int j = 0; j < sets[set].count; j++) {
          Draw d = {.key = rng_key((uint64_t)j, RNG_TEST)};
          run_activations(&modes[i], FORWARD, &sets[set].problems[j], &d);
        }
      gpu->conv_tile = NULL;
    }
}

// Any numbers, whose sums depend on their order: all tiles have the bits of the tile that is chosen unasked.
TEST_TIER(cuda_conv_tiles_have_the_same_bits, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu, WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  const Conv conv = {1, 1};
  for (int i = 0; i < num_modes; i++) {
    if (modes[i].dtype == F32) continue;
    TensorPair x = pair_random(modes[i].dtype, 3, 61, 83, 200, 1, 1),
               w = pair_random(modes[i].dtype, 264, 3, 3, 200, 0.05, 2);
    char *want = NULL;
    for (const char *const *tile = modes[i].rung->tiles;; tile++) {
      TensorPair y = pair_poisoned(modes[i].dtype, 3, 61, 83, 264);
      Dest dest = {.t = y.gpu};
      RUN_ON_GPU(&modes[i], conv_forward, &conv, 1, &x.gpu, &w.gpu, &dest);
      char *got = gpu_fetch(y.gpu.data, tensor_bytes(&y.gpu));
      if (want && !EXPECT(!memcmp(got, want, tensor_bytes(&y.gpu)))) printf("  %s\n", gpu->conv_tile);
      pair_free(&y);
      free(want);
      want = got;
      if (!(gpu->conv_tile = *tile)) break;
    }
    free(want);
    pair_free(&x);
    pair_free(&w);
  }
}

// Images: strides with a layout of the patch each, filters of AlexNet, VGG, GoogLeNet and ResNet, and others at the
// edges: an even width and an odd one, one channel and four, filters of two blocks, partly empty, tiles of several
// columns and of two or four rows, more taps across than down, counts, a patch larger than the image, two that share a
// filter, and more tiles than blocks that run at once.
static const Problem stems[] = {
    {{2, 3}, 7, 7, 1, 2, 3, 64, {33}, {141}, {-1}},
    {{2, 3}, 7, 7, 1, 3, 3, 64, {18}, {300}, {2}},
    {{4, 2}, 11, 11, 1, 2, 3, 64, {67}, {275}, {-1}},
    {{4, 0}, 11, 11, 1, 2, 3, 96, {51}, {63}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 3, 64, {13}, {70}, {-1}},
    {{1, 1}, 3, 3, 1, 5, 1, 32, {28}, {28}, {4}},
    {{1, 2}, 5, 5, 1, 2, 3, 130, {9}, {65}, {-1}},
    {{2, 2}, 5, 6, 1, 2, 4, 50, {20}, {34}, {-1}},
    {{4, 1}, 5, 4, 1, 2, 2, 20, {41}, {300}, {1}},
    {{1, 7}, 16, 16, 1, 1, 3, 8, {5}, {6}, {-1}},
    {{2, 0}, 3, 1, 1, 2, 3, 70, {9}, {131}, {-1}},
    {{1, 0}, 1, 9, 1, 2, 4, 16, {3}, {129}, {-1}},
    {{2, 3}, 7, 7, 2, 2, 3, 64, {33, 12}, {40, 17}, {-1, 1}},
    {{2, 3}, 7, 7, 1, 70, 3, 24, {40}, {60}, {-1}},
};
TEST_TIER(cuda_conv_of_images_is_exact, 1) { check_wgmma(stems, COUNT(stems), true, false, true); }

// Images that are alike have results that are, to the bit: where rows of a tensor come from two launches, in tiles of
// two shapes, and in the stem, where tiles begin elsewhere in every image.
typedef struct AlikeCase {
  Conv conv;
  int images, side, taps, c, k;
  bool dgrad;
} AlikeCase;
static void check_alike_images(const Mode *m, ConvPass pass, const AlikeCase *p) {
  int side = out_size(p->side, p->taps, &p->conv), c = pass == FORWARD ? p->c : p->k, k = pass == FORWARD ? p->k : p->c;
  int in_side = pass == FORWARD ? p->side : side, out_side = pass == FORWARD ? side : p->side;
  size_t image = (size_t)in_side * in_side * c, all = p->images * image;
  float *values = xmalloc(all * sizeof *values);
  Draw d = {.key = rng_key((uint64_t)pass, RNG_TEST)};
  for (size_t i = 0; i < all; i++) values[i] = i < image ? 1e-3f * (float)(below(&d, 2000) - 1000) : values[i - image];
  TensorPair in = pair_values(m->dtype, p->images, in_side, in_side, c, values);
  TensorPair w = pair_random(m->dtype, p->k, p->taps, p->taps, p->c, 0.05, 1);
  TensorPair out = pair_poisoned(m->dtype, p->images, out_side, out_side, k);
  Dest dest = {.t = out.gpu};
  if (pass == FORWARD)
    RUN_ON_GPU(m, conv_forward, &p->conv, 1, &in.gpu, &w.gpu, &dest);
  else
    RUN_ON_GPU(m, conv_dgrad, &p->conv, 1, &in.gpu, &w.gpu, &dest);
  char *bits = gpu_fetch(out.gpu.data, tensor_bytes(&out.gpu));
  size_t each = tensor_bytes(&out.gpu) / (size_t)p->images;
  for (int i = 1; i < p->images; i++) EXPECT(!memcmp(bits, bits + (size_t)i * each, each));
  free(bits);
  free(values);
  pair_free(&in);
  pair_free(&w);
  pair_free(&out);
}
TEST_TIER(cuda_conv_of_images_that_are_alike_is_alike, 1) {
  if (!gpu_device()) return;
  static const AlikeCase cases[] = {
      {{1, 1}, 59, 17, 3, 192, 256, true}, {{2, 3}, 25, 150, 7, 3, 64, false}, {{4, 2}, 25, 70, 11, 3, 96, false}};
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; j < COUNT(cases); j++) {
      check_alike_images(&modes[i], FORWARD, &cases[j]);
      if (cases[j].dgrad) check_alike_images(&modes[i], DGRAD, &cases[j]);
    }
}
