// Catches concatenation and slices that move a channel to the wrong place.
//
// Both ops only move numbers: equal to the bit, on the CPU and on the GPU.
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/gpu.h"
#include "test/harness/op_fixture.h"

// Shapes for both: the reference against its definition, the kernels against the reference.
typedef struct ConcatCase {
  int n, h, w, rows, parts; // rows: valid
  int c[MAX_CONCAT];
} ConcatCase;

static const ConcatCase concat_cases[] = {
    {2, 3, 5, 2, 1, {5}},                 // one part is a copy
    {2, 3, 5, 1, 2, {8, 16}},             // whole vectors; a row past the count
    {1, 4, 3, 1, 3, {3, 7, 1}},           // parts that begin within a vector, two of them in one
    {3, 1, 1, 3, 2, {16, 5}},             // padding behind the last
    {1, 2, 2, 1, 3, {5, 8, 8}},           // padding between, which is no channel
    {1, 1, 2, 1, 2, {700, 900}},          // a pixel wider than a run of the reference
    {2, 28, 29, 2, 4, {64, 128, 32, 32}}, // inception 3a's
    {2, 2, 2, 2, 8, {1, 1, 1, 1, 1, 1, 1, 1}},
};

typedef struct ConcatArgs {
  int parts, first;
  const Tensor *x;
} ConcatArgs;
static void run_concat(Device *dev, void *context, const Dest *y) {
  const ConcatArgs *a = context;
  dev->ops->concat(dev, a->parts, a->x, y);
}
static void run_slice(Device *dev, void *context, const Dest *y) {
  const ConcatArgs *a = context;
  dev->ops->slice(dev, a->first, a->x, y);
}

// Whether part's channels are those of `whole` from `first` on.
static bool is_part(const Tensor *part, const Tensor *whole, int first) {
  bool same = true;
  for (int n = 0; n < valid_rows(whole); n++)
    for (int y = 0; y < whole->h; y++)
      for (int x = 0; x < whole->w; x++)
        for (int c = 0; c < part->c; c++) same &= get(part, n, y, x, c) == get(whole, n, y, x, first + c);
  return same;
}

static int make_parts(Fixture *f, const ConcatCase *k, Tensor *x) {
  int channels = 0;
  for (int i = 0; i < k->parts; i++) {
    x[i] = test_tensor(f->dev->real, k->n, k->h, k->w, k->c[i]);
    x[i].count = fixture_copy(f, sizeof k->rows, &k->rows);
    test_fill(&x[i], (uint64_t)i, -1, 1);
    channels += k->c[i];
  }
  return channels;
}

TEST_OP(concat_and_slice_move_channels) {
  for (int i = 0; i < COUNT(concat_cases); i++) {
    const ConcatCase *k = &concat_cases[i];
    Tensor x[MAX_CONCAT];
    Dest whole = {.t = test_tensor(f->dev->real, k->n, k->h, k->w, make_parts(f, k, x))};
    whole.t.count = x[0].count;
    run_op(f->dev, run_concat, &(ConcatArgs){.parts = k->parts, .x = x}, &whole);
    expect_padding_zero(&whole.t);
    for (int p = 0, first = 0; p < k->parts; first += k->c[p++]) {
      EXPECT(is_part(&x[p], &whole.t, first));
      Dest part = {.t = test_tensor_like(&x[p])};
      run_op(f->dev, run_slice, &(ConcatArgs){.first = first, .x = &whole.t}, &part);
      EXPECT(same_bits(&part.t, &x[p]));
      test_tensor_free(&part.t);
    }
    for (int p = 0; p < k->parts; p++) test_tensor_free(&x[p]);
    test_tensor_free(&whole.t);
  }
}

TEST_OP(concat_and_slice_honour_dest) {
  const int some[] = {1, 2, 5};
  for (int i = 0; i < COUNT(some); i++) {
    const ConcatCase *k = &concat_cases[some[i]];
    Tensor x[MAX_CONCAT], shape = tensor(f->dev->real, k->n, k->h, k->w, make_parts(f, k, x));
    shape.count = x[0].count;
    check_dests(f->dev, run_concat, &(ConcatArgs){.parts = k->parts, .x = x}, &shape, (uint64_t)i);
    Tensor whole = test_tensor_like(&shape);
    test_fill(&whole, 1, -1, 1);
    check_dests(f->dev, run_slice, &(ConcatArgs){.first = k->c[0], .x = &whole}, &x[1], (uint64_t)i);
    for (int p = 0; p < k->parts; p++) test_tensor_free(&x[p]);
    test_tensor_free(&whole);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

static const DType dtypes[] = {F32, BF16, F16};

typedef struct ConcatPairs {
  int parts, first;
  TensorPair x[MAX_CONCAT];
} ConcatPairs;
static void gpu_run_concat(Device *dev, bool gpu, void *context, const Dest *y) {
  ConcatPairs *a = context;
  Tensor x[MAX_CONCAT];
  for (int i = 0; i < a->parts; i++) x[i] = *pair_side(&a->x[i], gpu);
  dev->ops->concat(dev, a->parts, x, y);
}
static void gpu_run_slice(Device *dev, bool gpu, void *context, const Dest *y) {
  ConcatPairs *a = context;
  dev->ops->slice(dev, a->first, pair_side(&a->x[0], gpu), y);
}

static TensorPair counted(const ConcatCase *k, DType dtype, int c, uint64_t seed) {
  TensorPair t = pair_random(dtype, k->n, k->h, k->w, c, 1, seed);
  if (k->rows < k->n) pair_rows(&t, k->rows);
  return t;
}

TEST(cuda_concat_and_slice_equal_cpu) {
  if (!gpu_device()) return;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < COUNT(concat_cases); i++) {
      const ConcatCase *k = &concat_cases[i];
      ConcatPairs a = {.parts = k->parts};
      int channels = 0;
      for (int p = 0; p < k->parts; channels += k->c[p++]) a.x[p] = counted(k, dtypes[d], k->c[p], (uint64_t)p + 1);
      TensorPair whole = counted(k, dtypes[d], channels, 9);
      pair_check_dests(gpu_run_concat, &a, &whole, NULL, 0, 10);
      ConcatPairs cut = {.x = {whole}};
      for (int p = 0; p < k->parts; cut.first += k->c[p++]) pair_check_dests(gpu_run_slice, &cut, &a.x[p], NULL, 0, 20);
      for (int p = 0; p < k->parts; p++) {
        pair_check_guards(&a.x[p], true);
        pair_free(&a.x[p]);
      }
      pair_check_guards(&whole, true);
      pair_free(&whole);
    }
}
