// Catches kernels in the course that compute wrong results.
//
// Every lesson of cuda/conv/lessons/ against the CPU, on small integers, whose sums are exact in any order, so that
// results must agree to one rounding; with outputs full of NaN, and twice, to see the same bits.
#include "cuda/conv/lessons/lessons.h"
#include "test/harness/gpu_conv.h"

#pragma weak conv_lessons // a build for the CPU alone has none

// As make test-sanitizer needs it: from lesson 10 on, mbarriers order what racecheck does not see.
static bool is_racechecked(const Rung *lesson) { return strcmp(lesson->name, "10") < 0; }

// Lessons of Hopper's own instructions leave all problems to others where the GPU has none.
static bool is_idle(Device *gpu, const Rung *lesson) { return !gpu->wgmma && !is_racechecked(lesson); }

// ---- one problem ------------------------------------------------------------------------------------------------

typedef struct LessonTest {
  const Problem *p;
  TensorPair x[MAX_TEST_PAIRS], w, want[MAX_TEST_PAIRS];
  Tensor xs[2][MAX_TEST_PAIRS]; // of the CPU, of the GPU
} LessonTest;

static LessonTest lesson_test(const Problem *p, uint64_t seed) {
  Draw d = {.key = rng_key(seed, RNG_TEST)};
  LessonTest t = {.p = p, .w = whole(&d, BF16, p->k, p->r, p->s, p->c)};
  Device *cpu = cpu_device();
  Dest out[MAX_TEST_PAIRS];
  for (int i = 0; i < p->pairs; i++) {
    t.x[i] = whole(&d, BF16, p->n, p->h[i], p->w[i], p->c);
    t.want[i] = pair_poisoned(BF16, p->n, out_size(p->h[i], p->r, &p->conv), out_size(p->w[i], p->s, &p->conv), p->k);
    for (int gpu = 0; gpu < 2; gpu++) t.xs[gpu][i] = *pair_side(&t.x[i], gpu);
    out[i] = (Dest){.t = t.want[i].cpu};
  }
  cpu->ops->conv_forward(cpu, &p->conv, p->pairs, t.xs[0], &t.w.cpu, out);
  return t;
}
static void lesson_test_free(LessonTest *t) {
  for (int i = 0; i < t->p->pairs; i++) {
    pair_check_guards(&t->x[i], true);
    pair_free(&t->x[i]);
    pair_free(&t->want[i]);
  }
  pair_check_guards(&t->w, true);
  pair_free(&t->w);
}

static void run_lesson(const Rung *lesson, LessonTest *t) {
  const Problem *p = t->p;
  Mode mode = {lesson, BF16, false};
  TensorPair got[2][MAX_TEST_PAIRS];
  for (int run = 0; run < 2; run++) {
    Dest out[MAX_TEST_PAIRS];
    for (int i = 0; i < p->pairs; i++) {
      got[run][i] = pair_poisoned_like(&t->want[i]);
      memcpy(got[run][i].cpu.data, t->want[i].cpu.data, tensor_bytes(&t->want[i].cpu));
      out[i] = (Dest){.t = got[run][i].gpu};
    }
    RUN_ON_GPU(&mode, conv_forward, &p->conv, p->pairs, t->xs[1], &t->w.gpu, out);
  }
  bool ok = true;
  for (int i = 0; i < p->pairs; i++) {
    ok &= pair_check(&got[0][i], NULL, 1);
    void *bits[2];
    for (int run = 0; run < 2; run++) {
      pair_check_guards(&got[run][i], false);
      bits[run] = gpu_fetch(got[run][i].gpu.data, tensor_bytes(&got[run][i].gpu));
    }
    ok &= EXPECT(!memcmp(bits[0], bits[1], tensor_bytes(&got[0][i].gpu)) && "the same bits twice");
    for (int run = 0; run < 2; run++) {
      free(bits[run]);
      pair_free(&got[run][i]);
    }
  }
  if (!ok) describe(&mode, FORWARD, p);
}

// ---- problems ---------------------------------------------------------------------------------------------------

enum { MAX_LESSONS = 32 };

// By every lesson, and each has to take one of the problems at least.
static void check_lessons(const Problem *problems, int count, bool racechecked) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  int taken[MAX_LESSONS] = {0};
  for (int i = 0; i < count; i++) {
    LessonTest t = lesson_test(&problems[i], (uint64_t)i);
    for (int j = 0; conv_lessons[j]; j++) {
      const Rung *lesson = conv_lessons[j];
      CHECK(j < MAX_LESSONS);
      if (racechecked && !is_racechecked(lesson)) continue;
      if (!lesson->supports(gpu, CONV_FORWARD, &problems[i].conv, t.xs[1], &t.w.gpu)) continue;
      run_lesson(lesson, &t);
      taken[j]++;
    }
    lesson_test_free(&t);
  }
  for (int j = 0; conv_lessons[j]; j++)
    if (!(racechecked && !is_racechecked(conv_lessons[j])) && !is_idle(gpu, conv_lessons[j]))
      if (!EXPECT(taken[j] > 0)) printf("  %s supports none of %d problems\n", conv_lessons[j]->name, count);
}

// A few tiles each, and what a kernel may get wrong: tiles that end in the middle of M, N and K, that begin in one
// image and end in the next, taps in the padding, strides, channels that are no multiple of eight, levels that share a
// filter.
static const Problem quick[] = {
    // stride and pad, taps, pairs, n, channels in and out, x's heights, widths, rows
    {{1, 0}, 1, 1, 1, 1, 8, 8, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 1, 64, 64, {8}, {16}, {-1}}, // whole tiles
    {{1, 1}, 3, 3, 1, 2, 24, 136, {9}, {9}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 64, 40, {9}, {9}, {-1}},
    {{1, 0}, 1, 1, 1, 1, 72, 264, {12}, {12}, {-1}},
    {{2, 1}, 3, 3, 1, 2, 40, 16, {11}, {10}, {-1}},
    {{2, 0}, 1, 1, 1, 2, 64, 72, {5}, {6}, {-1}},
    {{2, 3}, 7, 7, 1, 1, 3, 16, {11}, {10}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 33, 70, {5}, {7}, {-1}},
    {{1, 2}, 5, 3, 1, 1, 16, 24, {6}, {4}, {-1}},
    {{1, 1}, 3, 3, 3, 2, 64, 24, {9, 5, 3}, {7, 6, 3}, {-1, -1, -1}},
};

// More tiles than an H200 has multiprocessors, more stages than any pipeline has, slices of K.
static const Problem thorough[] = {
    {{1, 0}, 1, 1, 1, 60, 64, 264, {17}, {17}, {-1}},
    {{1, 1}, 3, 3, 1, 60, 64, 128, {17}, {17}, {-1}},
    {{2, 1}, 3, 3, 1, 3, 128, 256, {19}, {30}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 256, 40, {7}, {9}, {-1}},
    {{1, 1}, 3, 3, 1, 2, 264, 256, {8}, {8}, {-1}},
    {{1, 0}, 1, 1, 1, 3, 4096, 40, {1}, {1}, {-1}},
    {{1, 0}, 1, 1, 1, 300, 520, 304, {1}, {1}, {-1}},
    {{1, 0}, 7, 7, 1, 40, 64, 512, {7}, {7}, {-1}},
    {{1, 1}, 3, 3, 2, 2, 64, 264, {23, 12}, {29, 15}, {-1, -1}},
};

TEST(cuda_conv_lessons_are_exact_on_small_shapes) { check_lessons(quick, COUNT(quick), true); }
TEST_TIER(cuda_conv_lessons_are_exact, 1) {
  check_lessons(quick, COUNT(quick), false);
  check_lessons(thorough, COUNT(thorough), false);
}

// ---- Dest -------------------------------------------------------------------------------------------------------

typedef struct LessonArgs {
  Conv conv;
  TensorPair x, w;
} LessonArgs;
static void run_dest(Device *dev, bool gpu, void *context, const Dest *d) {
  const LessonArgs *a = context;
  dev->ops->conv_forward(dev, &a->conv, 1, pair_side(&a->x, gpu), pair_side(&a->w, gpu), d);
}

TEST_TIER(cuda_conv_lessons_honour_every_dest, 1) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  Draw d = {.key = rng_key(1, RNG_TEST)};
  LessonArgs a = {{1, 1}, whole(&d, BF16, 2, 5, 6, 64), whole(&d, BF16, 68, 3, 3, 64)};
  TensorPair shape = pair_poisoned(BF16, 2, 5, 6, 68);
  for (int j = 0; conv_lessons[j]; j++) {
    gpu->conv_rung = conv_lessons[j];
    pair_check_dests(run_dest, &a, &shape, NULL, 1, (uint64_t)j);
  }
  gpu->conv_rung = NULL;
  pair_free(&a.x);
  pair_free(&a.w);
  pair_free(&shape);
}
