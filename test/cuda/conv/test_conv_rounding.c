// Catches GPU convolutions that round more than they should, or give other bits the second time.
#include "test/harness/gpu_conv.h"

static Tensor magnitude(const Tensor *t) {
  Tensor m = *t;
  m.data = xmalloc(tensor_bytes(t));
  for (size_t i = 0; i < tensor_elements(t); i++) ((float *)m.data)[i] = fabsf(((const float *)t->data)[i]);
  return m;
}

static void run_pass(Device *dev, ConvPass pass, const Problem *p, const Tensor *x, const Tensor *w, const Tensor *y) {
  Dest to_x = {.t = *x}, to_y = {.t = *y};
  FilterGrad to_w = {.dw = *w};
  if (pass == FORWARD) dev->ops->conv_forward(dev, &p->conv, 1, x, w, &to_y);
  if (pass == DGRAD) dev->ops->conv_dgrad(dev, &p->conv, 1, y, w, &to_x);
  if (pass == WGRAD) dev->ops->conv_wgrad(dev, &p->conv, 1, x, y, &to_w);
}

// A sum of T terms errs by at most T·u·Σ|term|, u = 2^-24 where additions round to nearest and 2^-23 where they
// truncate, as tensor cores do; the CPU's errs likewise. TF32 rounds both factors of each term by 2^-11. The result is
// rounded once. So is a filter's gradient before the rest, by cuDNN, to the operands' type.
static double sum_factor(const Mode *m, DType result, double terms) {
  static const double eps[DTYPES] = {[F32] = 0x1p-24, [BF16] = 0x1p-8, [F16] = 0x1p-11};
  double between = is_cudnn(m->rung) && result == F32 ? eps[m->dtype] : 0;
  return 1 + (terms * (0x1p-23 + 0x1p-24) + (m->tf32 ? 0x1p-10 : 0) + between) / eps[result];
}

static void check_rounding(const Mode *m, ConvPass pass, const Problem *p) {
  Device *gpu = gpu_device(), *cpu = cpu_device();
  int h = out_size(p->h[0], p->r, &p->conv), w_out = out_size(p->w[0], p->s, &p->conv);
  DType filter = pass == WGRAD ? F32 : m->dtype;
  TensorPair x = pair_random(m->dtype, p->n, p->h[0], p->w[0], p->c, 1, 1);
  TensorPair w = pair_random(filter, p->k, p->r, p->s, p->c, 1, 2),
             y = pair_random(m->dtype, p->n, h, w_out, p->k, 1, 3);
  TensorPair *out = pass == FORWARD ? &y : pass == DGRAD ? &x : &w;
  Tensor ax = magnitude(&x.cpu), aw = magnitude(&w.cpu), ay = magnitude(&y.cpu);
  run_pass(cpu, pass, p, &ax, &aw, &ay);
  run_pass(cpu, pass, p, &x.cpu, &w.cpu, &y.cpu);
  gpu->conv_rung = m->rung;
  gpu->tf32 = m->tf32;
  void *bits[2];
  for (int i = 0; i < 2; i++) {
    run_pass(gpu, pass, p, &x.gpu, &w.gpu, &y.gpu);
    bits[i] = gpu_fetch(out->gpu.data, tensor_bytes(&out->gpu));
  }
  gpu->conv_rung = NULL;
  gpu->tf32 = false;
  const Tensor *bound = pass == FORWARD ? &ay : pass == DGRAD ? &ax : &aw;
  double terms = pass == WGRAD ? (double)tensor_pixels(&y.cpu) : (double)p->r * p->s * (pass == FORWARD ? p->c : p->k);
  bool ok = pair_check(out, bound->data, sum_factor(m, out->gpu.dtype, terms));
  ok &= EXPECT(!memcmp(bits[0], bits[1], tensor_bytes(&out->gpu)) && "the same bits twice");
  if (!ok) describe(m, pass, p);
  for (int i = 0; i < 2; i++) free(bits[i]);
  free(ax.data);
  free(aw.data);
  free(ay.data);
  pair_free(&x);
  pair_free(&w);
  pair_free(&y);
}

// An everyday problem, and the stem.
static const Problem problems[] = {
    {{1, 1}, 3, 3, 1, 2, 16, 24, {9}, {7}, {-1}},
    {{2, 3}, 7, 7, 1, 1, 3, 16, {11}, {10}, {-1}},
};

static void check_all_rounding(Side side) {
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), side, modes);
  if (!num_modes) return test_skip("libcudnn.so.9 is not on LD_LIBRARY_PATH");
  for (int i = 0; i < num_modes; i++)
    for (ConvPass pass = FORWARD; pass < CONV_PASSES; pass++)
      for (int j = 0; j < COUNT(problems); j++) check_rounding(&modes[i], pass, &problems[j]);
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

// ---- TF32 -------------------------------------------------------------------------------------------------------

// Operands that become TF32 are rounded to nearest, not cut off, be they pixels or filters: 1 × 1 filters that copy, by
// a factor. (Rungs 01 and 02 leave them as they are.)
static void check_tf32(const Mode *m, ConvPass pass, bool filter) {
  enum { C = 40, PIXELS = 2 * 5 * 7 };
  const float between = 1 + 0x1p-11f + 0x1p-12f, nearest = 1 + 0x1p-10f;
  const Problem p = {{1, 0}, 1, 1, 1, 2, C, C, {5}, {7}, {-1}};
  float v[PIXELS * C], factors[C * C] = {0};
  for (int i = 0; i < PIXELS * C; i++) v[i] = filter ? 1 : between;
  for (int i = 0; i < C; i++) factors[i * C + i] = filter ? between : 1;
  TensorPair in = pair_values(F32, 2, 5, 7, C, v), w = pair_values(F32, C, 1, 1, C, factors);
  TensorPair out = pair_poisoned(F32, 2, 5, 7, C);
  Dest to = {.t = out.gpu};
  if (pass == FORWARD)
    RUN_ON_GPU(m, conv_forward, &p.conv, 1, &in.gpu, &w.gpu, &to);
  else
    RUN_ON_GPU(m, conv_dgrad, &p.conv, 1, &in.gpu, &w.gpu, &to);
  float *got = gpu_fetch_floats(&out.gpu);
  bool ok = true;
  for (int i = 0; i < PIXELS * C; i++) ok &= got[i] == nearest || got[i] == between;
  if (!EXPECT(ok && "rounded to nearest")) {
    printf("  %a, where %a becomes %a\n", (double)got[0], (double)between, (double)nearest);
    describe(m, pass, &p);
  }
  free(got);
  pair_free(&in);
  pair_free(&w);
  pair_free(&out);
}

TEST_TIER(cuda_conv_rounds_to_tf32, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), OURS, modes);
  for (int i = 0; i < num_modes; i++)
    for (int j = 0; modes[i].tf32 && j < 4; j++) check_tf32(&modes[i], j % 2 ? DGRAD : FORWARD, j / 2);
}

// ---- multiprocessors that are left to collectives ---------------------------------------------------------------

// How many rung 05 may take: an H200's, some less, a few, one.
static const int granted[] = {132, 128, 124, 100, 8, 1};

// Tiles of one wave and of many; a tail wave in a launch of its own; the stem; phases that the scheduler interleaves or
// not by the number of blocks; rows past a count; filters' gradients unsplit, split over a cluster, and through the
// workspace.
static const Problem shared_out[] = {
    {{1, 1}, 3, 3, 1, 2, 16, 24, {9}, {7}, {-1}},      {{2, 3}, 7, 7, 1, 2, 3, 64, {133}, {138}, {-1}},
    {{1, 1}, 3, 3, 1, 59, 192, 256, {17}, {17}, {-1}}, {{2, 1}, 3, 3, 1, 2, 16, 8, {264}, {264}, {-1}},
    {{2, 0}, 2, 2, 1, 3, 512, 32, {72}, {88}, {2}},    {{1, 1}, 3, 3, 1, 2, 400, 520, {10}, {13}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 72, 200, {40}, {43}, {1}},    {{1, 1}, 3, 3, 1, 4, 200, 400, {60}, {63}, {-1}},
};

typedef struct Operands {
  TensorPair x, w, y;
} Operands;
static Operands draw_operands(const Mode *m, ConvPass pass, const Problem *p) {
  int h = out_size(p->h[0], p->r, &p->conv), w = out_size(p->w[0], p->s, &p->conv);
  Operands o = {.x = pair_random(m->dtype, p->n, p->h[0], p->w[0], p->c, 1, 1),
                .w = pair_random(pass == WGRAD ? F32 : m->dtype, p->k, p->r, p->s, p->c, 1, 2),
                .y = pair_random(m->dtype, p->n, h, w, p->k, 1, 3)};
  count_rows(&o.x, p->rows[0]);
  count_rows(&o.y, p->rows[0]);
  return o;
}
static const TensorPair *result_of(const Operands *o, ConvPass pass) {
  return pass == FORWARD ? &o->y : pass == DGRAD ? &o->x : &o->w;
}
static void free_operands(Operands *o) {
  pair_free(&o->x);
  pair_free(&o->w);
  pair_free(&o->y);
}

// The result's bits, with so many multiprocessors and the workspace that is measured with them.
static void *run_granted(const Mode *m, ConvPass pass, const Problem *p, const Operands *o, int multiprocessors) {
  Device *gpu = gpu_device();
  Dest to_x = {.t = o->x.gpu}, to_y = {.t = o->y.gpu};
  FilterGrad to_w = {.dw = o->w.gpu};
  gpu->granted = MIN(multiprocessors, gpu->multiprocessors);
  if (pass == FORWARD) RUN_ON_GPU(m, conv_forward, &p->conv, 1, &o->x.gpu, &o->w.gpu, &to_y);
  if (pass == DGRAD) RUN_ON_GPU(m, conv_dgrad, &p->conv, 1, &o->y.gpu, &o->w.gpu, &to_x);
  if (pass == WGRAD) RUN_ON_GPU(m, conv_wgrad, &p->conv, 1, &o->x.gpu, &o->y.gpu, &to_w);
  gpu->granted = gpu->multiprocessors;
  const Tensor *out = &result_of(o, pass)->gpu;
  return gpu_fetch(out->data, tensor_bytes(out));
}

static bool check_same_bits(const Mode *m, ConvPass pass, const Problem *p) {
  Operands o = draw_operands(m, pass, p);
  const Tensor *out = &result_of(&o, pass)->gpu;
  size_t valid = tensor_bytes(out) / (size_t)p->n * (size_t)(p->rows[0] < 0 ? p->n : p->rows[0]);
  void *first = run_granted(m, pass, p, &o, granted[0]);
  bool ok = true;
  for (int i = 1; i < COUNT(granted); i++) {
    void *bits = run_granted(m, pass, p, &o, granted[i]);
    if (!EXPECT(!memcmp(first, bits, valid))) ok = !printf("  %d multiprocessors\n", granted[i]);
    free(bits);
  }
  free(first);
  free_operands(&o);
  return ok;
}

// How wgrad's sums are split depends on them: right within what sums may err, and the same bits twice.
static bool check_split(const Mode *m, const Problem *p) {
  Operands o = draw_operands(m, WGRAD, p);
  Tensor ax = magnitude(&o.x.cpu), aw = magnitude(&o.w.cpu), ay = magnitude(&o.y.cpu);
  run_pass(cpu_device(), WGRAD, p, &ax, &aw, &ay);
  run_pass(cpu_device(), WGRAD, p, &o.x.cpu, &o.w.cpu, &o.y.cpu);
  double factor = sum_factor(m, F32, (double)tensor_pixels(&o.y.cpu));
  bool ok = true;
  for (int i = 0; i < COUNT(granted); i++) {
    void *bits[2];
    for (int run = 0; run < 2; run++) bits[run] = run_granted(m, WGRAD, p, &o, granted[i]);
    bool same = EXPECT(!memcmp(bits[0], bits[1], tensor_bytes(&o.w.gpu)));
    if (!pair_check(&o.w, aw.data, factor) || !same) ok = !printf("  %d multiprocessors\n", granted[i]);
    for (int run = 0; run < 2; run++) free(bits[run]);
  }
  free(ax.data);
  free(aw.data);
  free(ay.data);
  free_operands(&o);
  return ok;
}

// Forward, dgrad: one result, whatever is granted; wgrad: one for each grant.
TEST_TIER(cuda_conv_by_wgmma_for_any_multiprocessors_granted, 1) {
  if (!gpu_device()) return;
  Mode modes[MAX_MODES];
  int num_modes = find_modes(gpu_device(), WGMMA, modes);
  if (!num_modes) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  for (int i = 0; i < num_modes; i++)
    for (ConvPass pass = FORWARD; pass < CONV_PASSES; pass++)
      for (int j = 0; j < COUNT(shared_out); j++) {
        const Problem *p = &shared_out[j];
        bool ok = pass == WGRAD ? check_split(&modes[i], p) : check_same_bits(&modes[i], pass, p);
        if (!ok) describe(&modes[i], pass, p);
      }
}
