// Catches dropout of other elements than the contract says, or of a wrong fraction.
//
// Which elements are dropped follows only from the contract's random numbers, their number from p. A GPU's results
// equal the reference's; and in a recorded program, those of the step whose number is in device memory.
#include "base/rng.h"
#include "test/harness/gradcheck.h"
#include "test/harness/op_fixture.h"

typedef struct DropoutArgs {
  Dropout p;
  Tensor x;
} DropoutArgs;
static void run_dropout(Device *dev, void *context, const Dest *y) {
  const DropoutArgs *a = context;
  dev->ops->dropout(dev, &a->p, &a->x, y);
}

// x, of values from 1 to 2, so that only what is dropped becomes 0.
static Tensor values(Fixture *f, int n, int h, int w, int c, int rows) {
  Tensor x = fixture_map(f, n, h, w, c);
  x.count = fixture_count(f, rows);
  test_fill(&x, 1, 1, 2);
  return x;
}
static Tensor dropped(Fixture *f, const DropoutArgs *a) {
  Dest y = {.t = fixture_tensor(f, a->x)};
  run_op(f->dev, run_dropout, (void *)a, &y);
  return y.t;
}

// The contract's draws: of the elements in order, the first row's after those of the ranks before.
static void check_draws(const DropoutArgs *a, const Tensor *y) {
  const Tensor *x = &a->x;
  const double p = a->p.p;
  uint64_t key = rng_key(a->p.key, a->p.step ? *a->p.step : 0);
  uint64_t element = (uint64_t)a->p.first_row * (uint64_t)(x->h * x->w * x->c);
  for (int n = 0; n < valid_rows(x); n++)
    for (int h = 0; h < x->h; h++)
      for (int w = 0; w < x->w; w++)
        for (int c = 0; c < x->c; c++, element++) {
          bool kept = rng_u32(key, element) * 0x1p-32 >= p;
          double want = kept ? get(x, n, h, w, c) / (1 - p) : 0;
          // The factor is rounded twice, the product once.
          EXPECT_NEAR(get(y, n, h, w, c), want, 4 * unit_roundoff(y->dtype) * want + stored_rounding(y->dtype, want));
        }
  expect_padding_zero(y);
}

TEST_TYPES(dropout_equals_definition) {
  const int shapes[][5] = {{3, 5, 3, 11, 2}, {2, 1, 1, 4096, 2}, {1, 31, 17, 64, 1}};
  const float ps[] = {0, 0.25f, 0.5f, 0.9f, 1};
  for (int s = 0; s < COUNT(shapes); s++)
    for (int i = 0; i < COUNT(ps); i++)
      for (int later = 0; later < (s ? 1 : 2); later++) { // the first step, which need not be told, and a later one
        const int *n = shapes[s];
        DropoutArgs a = {.p = {.p = ps[i], .key = 5, .first_row = 3 * later + s}};
        const uint64_t step = 7;
        if (later || s) a.p.step = fixture_copy(f, sizeof step, &step);
        a.x = values(f, n[0], n[1], n[2], n[3], n[4]);
        fixture_freeze(f);
        Tensor y = dropped(f, &a);
        check_draws(&a, &y);
        if (ps[i] == 0) EXPECT(same_bits(&y, &a.x));
        if (f->dev->gpu) expect_reference(f, run_dropout, &(DropoutArgs){a.p, fixture_floats(f, &a.x)}, &y);
        fixture_clear(f);
      }
}

TEST_TYPES(dropout_honours_dest) {
  const uint64_t step = 7;
  DropoutArgs a = {{.p = 0.5f, .key = 3, .step = fixture_copy(f, sizeof step, &step)}, values(f, 3, 5, 4, 11, 2)};
  fixture_freeze(f);
  check_dests(f->dev, run_dropout, &a, &a.x, 1);
}

// Of a row, by rank 1, what a single rank draws for it.
TEST_OP(dropout_by_rows_of_all_ranks) {
  DropoutArgs all = {{.p = 0.5f, .key = 3}, values(f, 4, 3, 2, 5, 4)}, part = all;
  part.p.first_row = part.x.n = 2;
  part.x.count = NULL;
  size_t bytes = tensor_bytes(&part.x);
  part.x.data = (char *)all.x.data + bytes;
  Tensor y = dropped(f, &all), own = dropped(f, &part);
  EXPECT(!memcmp(own.data, (char *)y.data + bytes, bytes));
}

// A binomial number, five standard deviations from its mean at most: a fair draw fails one seed in two million, and
// this seed is fixed. Steps, layers and elements draw apart.
TEST_OP(dropout_is_fair) {
  enum { N = 100000 };
  DropoutArgs a = {.x = values(f, 1, 1, N / 8, 8, 1)};
  Tensor before = {0};
  uint64_t *step = fixture_alloc(f, sizeof *step);
  for (*step = 0; *step < 4; ++*step) {
    a.p = (Dropout){.p = 0.3f, .key = 1 + *step / 2, .step = step};
    Tensor y = dropped(f, &a);
    int zeros = 0, both = 0;
    for (int i = 0; i < N; i++) {
      bool zero = get(&y, 0, 0, i / 8, i % 8) == 0;
      zeros += zero;
      both += zero && *step && get(&before, 0, 0, i / 8, i % 8) == 0;
    }
    EXPECT_NEAR(zeros, 0.3 * N, 5 * sqrt(0.3 * 0.7 * N));
    if (*step) EXPECT_NEAR(both, 0.09 * N, 5 * sqrt(0.09 * 0.91 * N));
    before = y;
  }
}

typedef struct DropoutObjective {
  Device *dev;
  DropoutArgs args;
  Tensor r;
  Dest y;
} DropoutObjective;
static double objective(void *context) {
  DropoutObjective *o = context;
  run_op(o->dev, run_dropout, &o->args, &o->y);
  return weighted_sum(&o->r, &o->y.t, NULL);
}

TEST_DOUBLE(dropout_gradient_check) {
  DropoutObjective o = {.dev = f->dev, .args = {{.p = 0.4f, .key = 9}, fixture_map(f, 2, 3, 4, 5)}};
  test_fill(&o.args.x, 1, -1, 1);
  o.r = fixture_tensor(f, o.args.x);
  test_fill(&o.r, 2, -1, 1);
  o.y.t = fixture_tensor(f, o.args.x);
  Tensor dx = dropped(f, &(DropoutArgs){o.args.p, o.r});
  double magnitude;
  objective(&o);
  weighted_sum(&o.r, &o.y.t, &magnitude);
  gradcheck(objective, &o, &o.args.x, &dx, magnitude, 2 * 3 * 4 * 5, 0, 1000); // linear: no truncation
}

// Replayed, a program draws what each step draws alone.
TEST_GPU(cuda_dropout_replays_by_step) {
  uint64_t *step = fixture_alloc(f, sizeof *step);
  DropoutArgs a = {{.p = 0.5f, .key = 3, .step = step}, values(f, 2, 3, 3, 16, 2)};
  Dest y = {.t = fixture_tensor(f, a.x)};
  Tensor before = fixture_tensor(f, a.x);
  CHECK(device_record(f->dev));
  run_dropout(f->dev, &a, &y);
  void *program = device_record_end(f->dev);
  for (*step = 0; *step < 3; ++*step) {
    device_replay(f->dev, program);
    device_sync(f->dev);
    expect_reference(f, run_dropout, &a, &y.t);
    EXPECT(!same_bits(&before, &y.t) && "another step, another draw");
    memcpy(before.data, y.t.data, tensor_bytes(&before));
  }
  device_forget(f->dev, program);
}
