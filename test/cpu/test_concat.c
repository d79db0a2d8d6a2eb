// Catches concatenation and slices that move a channel to the wrong place.
//
// Concatenation and slice, which only move numbers: equal to the bit.
#include "test/harness/concat_cases.h"
#include "test/harness/op.h"

static const char *const devices[] = {"cpu", "cpu64"};

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

static int make_parts(DType type, const ConcatCase *k, Tensor *x) {
  int channels = 0;
  for (int i = 0; i < k->parts; i++) {
    x[i] = test_tensor(type, k->n, k->h, k->w, k->c[i]);
    x[i].count = &k->rows;
    test_fill(&x[i], (uint64_t)i, -1, 1);
    channels += k->c[i];
  }
  return channels;
}

TEST(concat_and_slice_move_channels) {
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(concat_cases); i++) {
      const ConcatCase *k = &concat_cases[i];
      Tensor x[MAX_CONCAT];
      Dest whole = {.t = test_tensor(dev->real, k->n, k->h, k->w, make_parts(dev->real, k, x))};
      whole.t.count = &k->rows;
      run_op(dev, run_concat, &(ConcatArgs){.parts = k->parts, .x = x}, &whole);
      expect_padding_zero(&whole.t);
      for (int p = 0, first = 0; p < k->parts; first += k->c[p++]) {
        EXPECT(is_part(&x[p], &whole.t, first));
        Dest part = {.t = test_tensor_like(&x[p])};
        run_op(dev, run_slice, &(ConcatArgs){.first = first, .x = &whole.t}, &part);
        EXPECT(same_bits(&part.t, &x[p]));
        test_tensor_free(&part.t);
      }
      for (int p = 0; p < k->parts; p++) test_tensor_free(&x[p]);
      test_tensor_free(&whole.t);
    }
    device_close(dev);
  }
}

TEST(concat_and_slice_honour_dest) {
  const int some[] = {1, 2, 5};
  for (int d = 0; d < COUNT(devices); d++) {
    Device *dev = device_open(devices[d], NULL);
    for (int i = 0; i < COUNT(some); i++) {
      const ConcatCase *k = &concat_cases[some[i]];
      Tensor x[MAX_CONCAT], shape = tensor(dev->real, k->n, k->h, k->w, make_parts(dev->real, k, x));
      shape.count = &k->rows;
      check_dests(dev, run_concat, &(ConcatArgs){.parts = k->parts, .x = x}, &shape, (uint64_t)i);
      Tensor whole = test_tensor_like(&shape);
      test_fill(&whole, 1, -1, 1);
      check_dests(dev, run_slice, &(ConcatArgs){.first = k->c[0], .x = &whole}, &x[1], (uint64_t)i);
      for (int p = 0; p < k->parts; p++) test_tensor_free(&x[p]);
      test_tensor_free(&whole);
    }
    device_close(dev);
  }
}
