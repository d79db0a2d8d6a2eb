// Catches patches about sampled anchors, or their gradient, that are not what a 3 × 3 convolution sees, and losses of
// samples that are not those of maps.
//
// Against the definition: patches that overlap, that reach beyond the map, several anchors of one cell, images with no
// sample and with all, through what a Dest does.
#include "test/harness/loss_fixture.h"

typedef struct Case {
  int images, batch, levels, h, w, c, count;
} Case;
static const Case cases[] = {{2, 5, 2, 3, 4, 11, 5},
                             {1, 1, 1, 1, 1, 8, 1},
                             {3, 40, 3, 9, 7, 24, 37},
                             {2, 7, 2, 5, 5, 264, 0},
                             {1, 100, 5, 20, 33, 64, 100}};
enum { PER_CELL = 3 };

typedef struct Args {
  Anchors anchors;
  RpnTargets targets;
  Tensor x[MAX_LEVELS], dy;
} Args;

// Samples stand close together, in descending order, so that patches overlap.
static Args args_make(Fixture *f, const Case *k) {
  Args a = {.anchors = {.levels = k->levels, .per_cell = PER_CELL}};
  Draw d = draw_begin(k->batch);
  for (int l = 0, h = k->h, w = k->w; l < k->levels; l++, h = (h + 1) / 2, w = (w + 1) / 2) {
    a.anchors.level[l] = (AnchorLevel){.h = h, .w = w, .first = a.anchors.total};
    a.anchors.total += h * w * PER_CELL;
    a.x[l] = fixture_map(f, k->images, h, w, k->c);
    fill_normal(&d, &a.x[l], 1);
  }
  const int rows = k->images * k->batch;
  a.targets = (RpnTargets){.images = k->images,
                           .batch = k->batch,
                           .index = fixture_ints(f, rows),
                           .positives = fixture_ints(f, k->images),
                           .count = fixture_ints(f, k->images),
                           .delta = fixture_packed(f, rows, 4)};
  for (int n = 0; n < k->images; n++) {
    a.targets.count[n] = n == 1 ? k->count / 2 : k->count;
    a.targets.positives[n] = a.targets.count[n] / 3;
    for (int i = 0; i < k->batch; i++)
      a.targets.index[n * k->batch + i] =
          (a.anchors.total - 1 - i * (1 + n) % a.anchors.total + a.anchors.total) % a.anchors.total;
  }
  fill_normal(&d, &a.targets.delta, 0.5);
  a.dy = fixture_map(f, rows, 3, 3, k->c);
  fill_normal(&d, &a.dy, 1);
  return a;
}

// The cell of a row's anchor, by counting up to it; its level.
static int cell_of(const Args *a, int row, int *y, int *x) {
  int l = a->anchors.levels - 1;
  while (a->targets.index[row] < a->anchors.level[l].first) l--;
  const int cell = (a->targets.index[row] - a->anchors.level[l].first) / PER_CELL;
  *y = cell / a->anchors.level[l].w;
  *x = cell % a->anchors.level[l].w;
  return l;
}

static void check_patches(Fixture *f, const Args *a, const Case *k) {
  Tensor got = fixture_tensor(f, a->dy);
  RUN(f, rpn_patches, &a->anchors, &a->targets, a->x, &got);
  for (int row = 0; row < got.n; row++)
    for (int tap = 0; tap < 9; tap++)
      for (int c = 0; c < k->c; c++) {
        int y, x, n = row / k->batch, l = cell_of(a, row, &y, &x);
        const AnchorLevel *level = &a->anchors.level[l];
        y += tap / 3 - 1;
        x += tap % 3 - 1;
        const bool inside = row % k->batch < a->targets.count[n] && y >= 0 && y < level->h && x >= 0 && x < level->w;
        EXPECT(get(&got, row, tap / 3, tap % 3, c) == (inside ? get(&a->x[l], n, y, x, c) : 0));
      }
  expect_padding_zero(&got);
}

static void check_gradient(Fixture *f, const Args *a, const Case *k, int flags) {
  Tensor old[MAX_LEVELS], mask[MAX_LEVELS], want[MAX_LEVELS], bound[MAX_LEVELS];
  Dest dx[MAX_LEVELS];
  Draw d = draw_begin(flags);
  for (int l = 0; l < k->levels; l++) {
    const Tensor *t = &a->x[l];
    old[l] = fixture_tensor(f, *t);
    mask[l] = fixture_tensor(f, *t);
    want[l] = fixture_typed(f, F64, t->n, t->h, t->w, t->c);
    bound[l] = fixture_typed(f, F64, t->n, t->h, t->w, t->c);
    fill_normal(&d, &old[l], 1);
    fill_normal(&d, &mask[l], 1);
    dx[l] = (Dest){.t = fixture_tensor(f, *t), .accumulate = flags & 1, .mask = flags & 2 ? &mask[l] : NULL};
    for (size_t i = 0; i < tensor_elements(t); i++) set_at(&dx[l].t, i, get_at(&old[l], i));
    for (size_t i = 0; i < tensor_elements(&want[l]); i++) {
      const double before = flags & 1 ? get_at(&old[l], i) : 0;
      set_at(&want[l], i, before);
      set_at(&bound[l], i, fabs(before));
    }
  }
  for (int row = 0; row < a->dy.n; row++)
    for (int tap = 0; tap < 9 && row % k->batch < a->targets.count[row / k->batch]; tap++) {
      int y, x, n = row / k->batch, l = cell_of(a, row, &y, &x);
      y += tap / 3 - 1;
      x += tap % 3 - 1;
      for (int c = 0; c < k->c && y >= 0 && y < want[l].h && x >= 0 && x < want[l].w; c++) {
        const double term = get(&a->dy, row, tap / 3, tap % 3, c);
        put(&want[l], n, y, x, c, get(&want[l], n, y, x, c) + term);
        put(&bound[l], n, y, x, c, get(&bound[l], n, y, x, c) + fabs(term));
      }
    }
  f->dev->ops->rpn_patches_backward(f->dev, &a->anchors, &a->targets, &a->dy, dx);
  fixture_done(f);
  for (int l = 0; l < k->levels; l++) {
    for (size_t i = 0; i < tensor_elements(&want[l]); i++) {
      if ((int)(i % (size_t)want[l].ldc) >= k->c) continue;
      const double kept = flags & 2 && !(get_at(&mask[l], i) > 0) ? 0 : get_at(&want[l], i);
      EXPECT_NEAR(get_at(&dx[l].t, i), kept,
                  (k->batch + 2) * unit_roundoff(f->dev->real) * get_at(&bound[l], i) +
                      stored_rounding(dx[l].t.dtype, kept));
    }
    expect_padding_zero(&dx[l].t);
  }
}

TEST_TYPES(rpn_patches_equal_definition) {
  for (int i = 0; i < COUNT(cases); i++)
    for (int flags = 0; flags < 4; flags++) {
      const Case *k = &cases[i];
      const Args a = args_make(f, k);
      fixture_freeze(f);
      if (!flags) check_patches(f, &a, k);
      Dest dx[MAX_LEVELS];
      for (int l = 0; l < k->levels; l++) dx[l] = (Dest){.t = a.x[l]};
      fixture_measure(f);
      f->dev->ops->rpn_patches_backward(f->dev, &a.anchors, &a.targets, &a.dy, dx);
      fixture_ready(f);
      check_gradient(f, &a, k, flags);
      fixture_clear(f);
    }
}

// Losses and gradients of samples are those of maps, bit for bit.
TEST_TYPES(rpn_loss_of_samples) {
  const Case *k = &cases[2];
  const Args a = args_make(f, k);
  const int rows = k->images * k->batch;
  Tensor logits[MAX_LEVELS], deltas[MAX_LEVELS], dlogits[MAX_LEVELS], ddeltas[MAX_LEVELS];
  Tensor own = fixture_map(f, rows, 1, 1, PER_CELL), own_deltas = fixture_map(f, rows, 1, 1, 4 * PER_CELL);
  Draw d = draw_begin(9);
  fill_normal(&d, &own, 1);
  fill_normal(&d, &own_deltas, 1);
  for (int l = 0; l < k->levels; l++) {
    const Tensor *t = &a.x[l];
    logits[l] = fixture_map(f, t->n, t->h, t->w, PER_CELL);
    deltas[l] = fixture_map(f, t->n, t->h, t->w, 4 * PER_CELL);
    fill_normal(&d, &logits[l], 1);
    fill_normal(&d, &deltas[l], 1);
    dlogits[l] = fixture_tensor(f, logits[l]);
    ddeltas[l] = fixture_tensor(f, deltas[l]);
  }
  for (int row = 0; row < rows; row++) {
    int y, x, l = cell_of(&a, row, &y, &x), n = row / k->batch;
    for (int c = 0; c < PER_CELL; c++) put(&own, row, 0, 0, c, get(&logits[l], n, y, x, c));
    for (int c = 0; c < 4 * PER_CELL; c++) put(&own_deltas, row, 0, 0, c, get(&deltas[l], n, y, x, c));
  }
  const RpnLoss maps = {.beta = 1.f / 9}, samples = {.beta = 1.f / 9, .sampled = true};
  Tensor loss[2] = {fixture_packed(f, 1, 2), fixture_packed(f, 1, 2)};
  Tensor down = fixture_tensor(f, own), down_deltas = fixture_tensor(f, own_deltas);
  RUN(f, rpn_loss, &maps, &a.anchors, &a.targets, logits, deltas, &loss[0]);
  RUN(f, rpn_loss, &samples, &a.anchors, &a.targets, &own, &own_deltas, &loss[1]);
  for (int i = 0; i < 2; i++) EXPECT(get(&loss[0], 0, 0, 0, i) == get(&loss[1], 0, 0, 0, i));
  RUN(f, rpn_loss_backward, &maps, &a.anchors, &a.targets, logits, deltas, NULL, dlogits, ddeltas);
  RUN(f, rpn_loss_backward, &samples, &a.anchors, &a.targets, &own, &own_deltas, NULL, &down, &down_deltas);
  for (int row = 0; row < rows; row++) {
    int y, x, l = cell_of(&a, row, &y, &x), n = row / k->batch;
    const int anchor = (a.targets.index[row] - a.anchors.level[l].first) % PER_CELL;
    const bool valid = row % k->batch < a.targets.count[n];
    for (int c = 0; c < PER_CELL; c++)
      EXPECT(get(&down, row, 0, 0, c) == (valid && c == anchor ? get(&dlogits[l], n, y, x, c) : 0));
    for (int c = 0; c < 4 * PER_CELL; c++)
      EXPECT(get(&down_deltas, row, 0, 0, c) == (valid && c / 4 == anchor ? get(&ddeltas[l], n, y, x, c) : 0));
  }
}
