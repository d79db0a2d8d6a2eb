// Catches proposals and detections that are wrong, lost, or in another order on the GPU than on the CPU.
//
// Compares proposals, detections and their merging with their definitions; and at the sizes of real models the GPU's
// boxes, scores and indices with the CPU's, bit for bit. (Sixteen-bit maps are rounded on both sides alike, so this
// holds for every type.)
#include <omp.h>
#include "base/alloc.h"
#include "models/anchors.h"
#include "test/harness/detect.h"

// ---- the definition of selecting: rank by counting who comes before -------------------------------------------------

typedef struct Candidate {
  double score, box[4];
  int index;
} Candidate;

static bool before(const Candidate *a, const Candidate *b) {
  return a->score > b->score || (a->score == b->score && a->index < b->index);
}

// Sorts by insertion, best first.
static void naive_sort(Candidate *c, int n) {
  for (int i = 1; i < n; i++)
    for (int k = i; k > 0 && before(&c[k], &c[k - 1]); k--) {
      Candidate t = c[k];
      c[k] = c[k - 1];
      c[k - 1] = t;
    }
}

static void naive_decode(const BoxCoder *coder, const double from[4], const double delta[4], const ImageInfo *info,
                         double box[4]) {
  for (int k = 0; k < 2; k++) {
    double size = from[k + 2] - from[k], centre = from[k] + size / 2, limit = k ? info->rh : info->rw;
    double at = delta[k] / coder->weight[k] * size + centre;
    double half = exp(fmin(delta[k + 2] / coder->weight[k + 2], coder->clamp)) * size / 2;
    box[k] = fmin(fmax(at - half, 0), limit);
    box[k + 2] = fmin(fmax(at + half, 0), limit);
    if (isnan(at) || isnan(delta[k + 2])) box[k] = box[k + 2] = NAN; // fmin and fmax would lose it
  }
}

static void expect_group(const Fixture *f, const Boxes *out, int group, const Candidate *want, int n) {
  if (!EXPECT_INT(out->count[group], n)) return;
  for (int i = 0; i < n; i++) {
    size_t row = (size_t)group * out->capacity + i;
    EXPECT_INT(out->index[row], want[i].index);
    // Probabilities: the exponential's ulp, the sum, the division. Boxes: ten roundings on values below 512.
    EXPECT_NEAR(get_at(&out->score, row), want[i].score, 16 * epsilon(f));
    for (int k = 0; k < 4; k++) EXPECT_NEAR(get_at(&out->box, 4 * row + k), want[i].box[k], 10 * 512 * epsilon(f));
  }
}

static void expect_same(const Boxes *a, const Boxes *b) {
  EXPECT(!memcmp(a->index, b->index, (size_t)a->groups * a->capacity * sizeof(int)));
  EXPECT(!memcmp(a->count, b->count, (size_t)a->groups * sizeof(int)));
  EXPECT(!memcmp(a->box.data, b->box.data, tensor_bytes(&a->box)));
  EXPECT(!memcmp(a->score.data, b->score.data, tensor_bytes(&a->score)));
}

// ---- proposals ------------------------------------------------------------------------------------------------------

enum { IMAGES = 3, LEVELS = 3 };

typedef struct RpnOutputs {
  Anchors anchors;
  ImageInfo *images; // [IMAGES]
  Tensor logits[LEVELS], deltas[LEVELS];
  RpnSelect p;
} RpnOutputs;

// Logits in few steps, so that many are equal; some NaN, some infinite; deltas that leave the image; an empty place.
static void rpn_random(RpnOutputs *rpn, Fixture *f, int seed) {
  const int h[] = {16, 8, 4}, w[] = {20, 10, 5};
  Draw r = draw_begin(seed);
  AnchorShapes shapes = {.sizes = 1, .size = {{8}, {16}, {32}}, .ratios = 3, .ratio = {.5f, 1, 2}};
  anchors_init(&rpn->anchors, &shapes, LEVELS, h, w, 64, 80);
  rpn->images = fixture_alloc(f, IMAGES * sizeof *rpn->images);
  rpn->images[0] = (ImageInfo){.h = 100, .w = 150, .rh = 52, .rw = 78};
  rpn->images[1] = (ImageInfo){0};
  rpn->images[2] = (ImageInfo){.h = 64, .w = 80, .rh = 64, .rw = 80};
  rpn->p = (RpnSelect){.coder = {.weight = {1, 1, 1, 1}, .clamp = 4.135f}, .min_size = 2, .min_score = .2f};
  for (int l = 0; l < LEVELS; l++) {
    rpn->logits[l] = fixture_map(f, IMAGES, h[l], w[l], 3);
    rpn->deltas[l] = fixture_map(f, IMAGES, h[l], w[l], 12);
    fill_random(&r, &rpn->deltas[l], -1.5, 1.5);
    for (size_t i = 0; i < tensor_elements(&rpn->logits[l]); i++) {
      int type = below(&r, 40);
      set_at(&rpn->logits[l], i, type == 0 ? NAN : type == 1 ? -INFINITY : type == 2 ? -0. : below(&r, 17) / 4. - 2);
      if (type == 3) set_at(&rpn->deltas[l], i * 2, NAN);
    }
  }
}

static int naive_rpn_select(const RpnOutputs *rpn, int n, int l, int capacity, Candidate *out) {
  const AnchorLevel *level = &rpn->anchors.level[l];
  const ImageInfo *info = &rpn->images[n];
  int total = 0, kept = 0;
  for (int y = 0; y < level->h && info->h; y++)
    for (int x = 0; x < level->w; x++)
      for (int a = 0; a < 3; a++) {
        double from[4], delta[4];
        for (int k = 0; k < 4; k++) {
          from[k] = level->cell[a][k] + (k % 2 ? y * level->stride_y : x * level->stride_x);
          delta[k] = get_at(&rpn->deltas[l], pixel(&rpn->deltas[l], n, y, x) + 4 * a + k);
        }
        Candidate *c = &out[total++];
        c->score = get_at(&rpn->logits[l], pixel(&rpn->logits[l], n, y, x) + a);
        if (isnan(c->score)) c->score = -INFINITY;
        c->index = level->first + (y * level->w + x) * 3 + a;
        naive_decode(&rpn->p.coder, from, delta, info, c->box);
      }
  naive_sort(out, total);
  for (int i = 0; i < MIN(total, capacity); i++) {
    Candidate c = out[i];
    c.score = 1 / (1 + exp(-c.score));
    bool large = c.box[2] - c.box[0] >= rpn->p.min_size && c.box[3] - c.box[1] >= rpn->p.min_size;
    if (large && c.score >= rpn->p.min_score) out[kept++] = c;
  }
  return kept;
}

TEST_OP(rpn_select_random) {
  static Candidate want[16 * 20 * 3];
  const int capacities[] = {1, 37, 150, 2000}; // the last holds every anchor
  for (int c = 0; c < COUNT(capacities); c++) {
    RpnOutputs rpn;
    rpn_random(&rpn, f, c);
    Boxes out = fixture_boxes(f, IMAGES * LEVELS, capacities[c]);
    RUN(f, rpn_select, &rpn.p, &rpn.anchors, rpn.images, rpn.logits, rpn.deltas, &out);
    for (int g = 0; g < out.groups; g++)
      expect_group(f, &out, g, want, naive_rpn_select(&rpn, g / LEVELS, g % LEVELS, capacities[c], want));
    fixture_clear(f);
  }
}

TEST_OP(rpn_select_threads) {
  RpnOutputs rpn;
  rpn_random(&rpn, f, 9);
  Boxes out[3];
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    out[t] = fixture_boxes(f, IMAGES * LEVELS, 60);
    RUN(f, rpn_select, &rpn.p, &rpn.anchors, rpn.images, rpn.logits, rpn.deltas, &out[t]);
    if (t) expect_same(&out[0], &out[t]);
  }
  omp_set_num_threads(before);
}

typedef enum ScorePattern { NORMAL, TIES, ALL_EQUAL, SATURATED, WILD, PATTERNS } ScorePattern;
static const char *const pattern_names[] = {"normal", "ties", "all equal", "saturated", "NaN and infinite"};

static double draw_logit(Draw *d, ScorePattern pattern) {
  switch (pattern) {
  case TIES: return below(d, 9) / 4. - 1; // -0 and 0 are the same
  case ALL_EQUAL: return -.5;
  case SATURATED: return uniform(d, 10, 60); // different logits, equal scores
  case WILD: {
    const double wild[] = {NAN, -NAN, INFINITY, -INFINITY, -0., 0, 1e-40, 1e30};
    int i = below(d, 3 * COUNT(wild));
    return i < COUNT(wild) ? wild[i] : uniform(d, -3, 3);
  }
  default: return uniform(d, -4, 1) + uniform(d, -4, 1);
  }
}

static void check_rpn(Fixture *f, DType dtype, int levels, const int *h, const int *w, int capacity,
                      ScorePattern pattern) {
  char what[128];
  snprintf(what, sizeof what, "dtype %d, %d levels from %d x %d, best %d, %s", (int)dtype, levels, h[0], w[0], capacity,
           pattern_names[pattern]);
  Draw d = draw_begin(levels * 1000 + capacity + (int)pattern);
  int canvas_h = 4 * h[0], canvas_w = 4 * w[0];
  Anchors anchors;
  AnchorShapes shapes = {.sizes = 1, .ratios = 3, .ratio = {.5f, 1, 2}};
  for (int l = 0; l < levels; l++) shapes.size[l][0] = (float)(32 << l);
  anchors_init(&anchors, &shapes, levels, h, w, canvas_h, canvas_w);
  const ImageInfo info[IMAGES] = {{.h = 90, .w = 120, .rh = canvas_h, .rw = canvas_w - 1},
                                  {0},
                                  {.h = 7, .w = 5, .rh = MAX(canvas_h / 2, 1), .rw = MAX(canvas_w / 2, 1)}};
  ImageInfo *images = fixture_copy(f, sizeof info, info);
  Tensor map[2][MAX_LEVELS], floats[2][MAX_LEVELS]; // logits, deltas
  for (int l = 0; l < levels; l++)
    for (int type = 0; type < 2; type++) {
      Tensor *t = &map[type][l];
      *t = fixture_typed(f, dtype, IMAGES, h[l], w[l], type ? 12 : 3);
      for (size_t i = 0; i < tensor_elements(t); i++) {
        double v = !type ? draw_logit(&d, pattern)
                   : pattern == WILD && below(&d, 40) == 0
                       ? (const double[]){NAN, INFINITY, -INFINITY, 100}[below(&d, 4)]
                       : uniform(&d, -1.5, 1.5);
        set_at(t, i, (int)(i % (size_t)t->ldc) < t->c ? v : 0);
      }
      floats[type][l] = fixture_floats(f, t);
    }
  fixture_freeze(f);
  RpnSelect p = {.coder = {.weight = {1, 1, 1, 1}, .clamp = logf(1000.f / 16)}, .min_size = 1, .min_score = .05f};
  for (int run = 0; run < 3; run++) { // twice the same, then with legacy widths
    p.coder.extra = run == 2;
    Boxes out = fixture_boxes(f, IMAGES * levels, capacity), want = fixture_boxes(f, IMAGES * levels, capacity);
    RUN(f, rpn_select, &p, &anchors, images, map[0], map[1], &out);
    REFERENCE(rpn_select, &p, &anchors, images, floats[0], floats[1], &want);
    EXPECT(same_boxes(&out, &want, what));
  }
  fixture_clear(f);
}

TEST_GPU(cuda_rpn_select) {
  const int one[] = {1}, h[] = {37, 19, 10, 5, 3}, w[] = {53, 27, 14, 7, 4}, capacities[] = {1, 37, 1000, 2000};
  for (DType dtype = 0; dtype < DTYPES; dtype++) {
    if (dtype == F64) continue;
    check_rpn(f, dtype, 1, one, one, 5, NORMAL);
    for (ScorePattern pattern = 0; pattern < PATTERNS; pattern++)
      check_rpn(f, dtype, 5, h, w, capacities[pattern % COUNT(capacities)], pattern);
  }
  check_rpn(f, F32, 5, h, w, 6000, TIES); // more than there are; and more than 48 KB to sort
}

TEST_GPU_TIER(cuda_rpn_select_full_size, 1) {
  const int h[] = {200, 100, 50, 25, 13}, w[] = {336, 168, 84, 42, 21};
  check_rpn(f, BF16, 5, h, w, 2000, NORMAL);
  check_rpn(f, F32, 5, h, w, 2000, NORMAL);
  check_rpn(f, F32, 5, h, w, 2000, ALL_EQUAL); // nothing is thrown out before the last block: the slowest case
  check_rpn(f, F32, 5, h, w, 2000, WILD);
}

// ---- merging --------------------------------------------------------------------------------------------------------

TEST_OP(boxes_merge_random) {
  enum { GROUPS = 3, PER = 4, CAPACITY = 30 };
  const int capacities[] = {1, 25, GROUPS * PER * CAPACITY};
  for (int c = 0; c < COUNT(capacities); c++) {
    Draw r = draw_begin(20 + c);
    Boxes in = fixture_boxes(f, GROUPS * PER, CAPACITY), out = fixture_boxes(f, GROUPS, capacities[c]);
    for (int g = 0; g < in.groups; g++) {
      in.count[g] = g / PER == 1 ? 0 : below(&r, CAPACITY + 1); // an image without any
      for (int i = 0, score = 64; i < in.count[g]; i++) {
        int row = g * CAPACITY + i;
        score -= below(&r, 3); // few steps: equal scores within and between groups
        set_at(&in.score, row, score / 64.);
        in.index[row] = row * 7919 % 10007; // distinct, in no order
        for (int k = 0; k < 4; k++) set_at(&in.box, 4 * row + k, row + k / 4.);
      }
    }
    RUN(f, boxes_merge, PER, &in, &out);
    for (int group = 0; group < GROUPS; group++) {
      Candidate want[PER * CAPACITY];
      int n = 0;
      for (int g = group * PER; g < (group + 1) * PER; g++)
        for (int i = 0; i < in.count[g]; i++, n++) {
          int row = g * CAPACITY + i;
          want[n] = (Candidate){.score = get_at(&in.score, row), .index = in.index[row]};
          get_box(&in.box, row, want[n].box);
        }
      naive_sort(want, n);
      expect_group(f, &out, group, want, MIN(n, capacities[c]));
    }
    fixture_clear(f);
  }
}

TEST_OP(boxes_cut_by_hand) {
  // In order: .9 .8' .5 .5' .5" .4" .3" .2" .1 (' second, " third group); equal scores by group.
  const double score[3][4] = {{.9, .5, .1}, {.8, .5}, {.5, .4, .3, .2}};
  const int count[3] = {3, 2, 4}, limits[] = {0, 1, 3, 4, 5, 8, 9, 100};
  const int want[][3] = {{0, 0, 0}, {1, 0, 0}, {2, 1, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 4}, {3, 2, 4}, {3, 2, 4}};
  for (int i = 0; i < COUNT(limits); i++) {
    Boxes b = fixture_boxes(f, 3, 4);
    for (int g = 0; g < 3; g++) {
      b.count[g] = count[g];
      for (int k = 0; k < count[g]; k++) set_at(&b.score, (size_t)(4 * g + k), score[g][k]);
    }
    RUN(f, boxes_cut, limits[i], &b);
    for (int g = 0; g < 3; g++) EXPECT_INT(b.count[g], want[i][g]);
    fixture_clear(f);
  }
}

TEST_OP(rois_compact_keeps_order) {
  Boxes in = fixture_boxes(f, 4, 3);
  Rois out = fixture_rois(f, 12);
  const int counts[] = {2, 0, 3, 0};
  for (int i = 0; i < 12; i++) set_box(&in.box, i, i, i + .25, i + .5, i + .75);
  memcpy(in.count, counts, sizeof counts);
  RUN(f, rois_compact, &in, &out);
  const int rows[] = {0, 1, 6, 7, 8}, images[] = {0, 0, 2, 2, 2};
  EXPECT_INT(*out.count, 5);
  for (int i = 0; i < 5; i++) {
    EXPECT_INT(out.image[i], images[i]);
    for (int k = 0; k < 4; k++) EXPECT_NEAR(get_at(&out.box, 4 * i + k), rows[i] + k / 4., 0);
  }
  memset(in.count, 0, sizeof counts);
  RUN(f, rois_compact, &in, &out);
  EXPECT_INT(*out.count, 0);
}

// `steps` different scores; sorted within each group as an op would leave them, or not at all.
static Boxes scored_boxes(Fixture *f, Draw *d, int groups, int capacity, int steps, bool sorted, bool empty) {
  Boxes b = fixture_boxes(f, groups, capacity);
  int rows = groups * capacity;
  for (int i = 0; i < rows; i++) b.index[i] = i;
  for (int i = rows; i-- > 1;) { // any order
    int k = below(d, i + 1), t = b.index[i];
    b.index[i] = b.index[k];
    b.index[k] = t;
  }
  for (int g = 0; g < groups; g++) {
    b.count[g] = empty ? 0 : g % 4 == 3 ? capacity : below(d, capacity + 1);
    for (int i = 0; i < capacity; i++) {
      int row = g * capacity + i;
      int step = sorted ? steps - 1 - (int)((int64_t)i * steps / capacity) : below(d, steps);
      double box[4];
      set_at(&b.score, (size_t)row, i < b.count[g] ? (double)step / steps : NAN);
      draw_box(d, 600, 800, .5, box);
      set_box(&b.box, row, box[0], box[1], box[2], box[3]);
    }
  }
  return b;
}

static void check_merge(Fixture *f, int groups, int per, int capacity, int out_capacity, int steps, bool sorted,
                        bool empty) {
  char what[128];
  snprintf(what, sizeof what, "%d groups of %d x %d to %d, %d scores", groups, per, capacity, out_capacity, steps);
  Draw d = draw_begin(groups * per + capacity + steps);
  Boxes in = scored_boxes(f, &d, groups * per, capacity, steps, sorted, empty);
  fixture_freeze(f);
  for (int run = 0; run < 2; run++) {
    Boxes out = fixture_boxes(f, groups, out_capacity), want = fixture_boxes(f, groups, out_capacity);
    RUN(f, boxes_merge, per, &in, &out);
    REFERENCE(boxes_merge, per, &in, &want);
    EXPECT(same_boxes(&out, &want, what));
  }
  fixture_clear(f);
}

TEST_GPU(cuda_boxes_merge) {
  check_merge(f, 4, 5, 2000, 2000, 1 << 20, true, false); // proposals
  check_merge(f, 4, 90, 100, 100, 5000, true, false);     // detections
  check_merge(f, 2, 5, 2000, 2000, 7, true, false);       // mostly ties
  check_merge(f, 2, 5, 2000, 2000, 1, true, false);
  check_merge(f, 3, 4, 30, 1, 50, false, false);
  check_merge(f, 3, 7, 11, 77, 50, false, false); // all fit
  check_merge(f, 1, 1, 1, 1, 1, true, false);
  check_merge(f, 3, 5, 40, 20, 9, true, true);
  check_merge(f, 4, 8, 2000, 2000, 1 << 20, true, false); // the most that are counted rather than sorted
  check_merge(f, 2, 8, 2048, 9000, 1 << 20, false, false);
  check_merge(f, 4, 9, 1112, 4000, 1 << 20, true, false);  // 48 KB to sort, besides the kernel's own
  check_merge(f, 2, 9, 1112, 5000, 1 << 20, false, false); // more than 48 KB to sort
  check_merge(f, 2, 5, 5000, 1000, 1 << 20, false, false); // lists that do not fit into shared memory
}

// Groups sorted by score, as merging leaves them; of `steps` different scores.
static void check_cut(Fixture *f, int groups, int capacity, int steps, int limit, bool empty) {
  Draw d = draw_begin(groups + capacity + limit);
  Boxes b = scored_boxes(f, &d, groups, capacity, steps, true, empty), want = b;
  fixture_freeze(f); // all but the counts
  b.count = fixture_copy(f, (size_t)groups * sizeof *b.count, want.count);
  want.count = fixture_copy(f, (size_t)groups * sizeof *b.count, want.count);
  RUN(f, boxes_cut, limit, &b);
  REFERENCE(boxes_cut, limit, &want);
  EXPECT(!memcmp(b.count, want.count, (size_t)groups * sizeof *b.count));
  int kept = 0;
  for (int g = 0; g < groups; g++) kept += b.count[g];
  EXPECT(kept <= limit);
  fixture_clear(f);
}

TEST_GPU(cuda_boxes_cut) {
  check_cut(f, 2, 2000, 1 << 20, 2000, false);
  check_cut(f, 16, 2000, 500, 16000, false); // mostly ties
  check_cut(f, 40, 300, 1, 5000, false);     // more groups than warps or lanes; all scores equal
  check_cut(f, 3, 50, 20, 7, false);
  check_cut(f, 3, 50, 20, 0, false);
  check_cut(f, 3, 50, 20, 1000, false); // all stay
  check_cut(f, 1, 30, 30, 11, false);
  check_cut(f, 5, 30, 30, 11, true);
}

TEST_GPU(cuda_rois_compact) {
  for (int groups = 1; groups <= 40; groups += 13) {
    Draw d = draw_begin(groups);
    int capacity = groups == 1 ? 1000 : 70;
    Boxes in = scored_boxes(f, &d, groups, capacity, 50, true, groups == 27);
    fixture_freeze(f);
    Rois out = fixture_rois(f, groups * capacity), want = fixture_rois(f, groups * capacity);
    RUN(f, rois_compact, &in, &out);
    REFERENCE(rois_compact, &in, &want);
    if (EXPECT_INT(*out.count, *want.count)) {
      EXPECT(!memcmp(out.image, want.image, (size_t)*want.count * sizeof *want.image));
      EXPECT(!memcmp(out.box.data, want.box.data, (size_t)*want.count * 4 * sizeof(float)));
    }
    fixture_clear(f);
  }
}

// ---- detections -----------------------------------------------------------------------------------------------------

typedef struct Head {
  ImageInfo *images; // [IMAGES]
  Rois rois;
  Tensor logits, deltas;
  Detect p;
} Head;

static void head_random(Head *h, Fixture *f, int seed, int classes, int count) {
  Draw r = draw_begin(seed);
  h->images = fixture_alloc(f, IMAGES * sizeof *h->images);
  h->images[0] = (ImageInfo){.h = 60, .w = 70, .rh = 120, .rw = 140};
  h->images[1] = (ImageInfo){0};
  h->images[2] = (ImageInfo){.h = 50, .w = 50, .rh = 100, .rw = 90};
  h->p = (Detect){.coder = {.weight = {10, 10, 5, 5}, .clamp = 4.135f}, .min_score = .05f, .min_size = 3};
  h->rois = fixture_rois(f, count + 5);
  h->logits = fixture_map(f, count + 5, 1, 1, classes);
  h->deltas = fixture_map(f, count + 5, 1, 1, 4 * classes);
  *h->rois.count = count;
  for (int i = 0; i < count; i++) {
    double box[4];
    random_box(&r, 100, 90, 0, box);
    set_box(&h->rois.box, i, box[0], box[1], box[2], box[3]);
    h->rois.image[i] = i < count / 2 ? 0 : 2; // none in the empty place
    // Equal rows in runs of three: equal probabilities, to be ordered by RoI.
    for (int c = 0; c < classes; c++) {
      size_t at = pixel(&h->logits, i, 0, 0) + c;
      set_at(&h->logits, at, i % 3 ? get_at(&h->logits, at - h->logits.ldc) : uniform(&r, -3, 3));
      if (i % 3 == 0 && below(&r, 60) == 0) set_at(&h->logits, at, NAN);
    }
    for (int k = 0; k < 4 * classes; k++)
      set_at(&h->deltas, pixel(&h->deltas, i, 0, 0) + k, below(&r, 100) ? uniform(&r, -8, 4) : NAN);
  }
}

static int naive_detect(const Head *h, int n, int class, int capacity, Candidate *out) {
  int classes = h->logits.c, kept = 0;
  for (int i = 0; i < *h->rois.count; i++) {
    if (h->rois.image[i] != n) continue;
    double sum = 0, delta[4], from[4];
    for (int c = 0; c < classes; c++) sum += exp(get_at(&h->logits, pixel(&h->logits, i, 0, 0) + c));
    for (int k = 0; k < 4; k++) delta[k] = get_at(&h->deltas, pixel(&h->deltas, i, 0, 0) + 4 * class + k);
    get_box(&h->rois.box, i, from);
    Candidate c = {.score = exp(get_at(&h->logits, pixel(&h->logits, i, 0, 0) + class)) / sum,
                   .index = i * classes + class};
    naive_decode(&h->p.coder, from, delta, &h->images[n], c.box);
    bool large = c.box[2] - c.box[0] >= h->p.min_size && c.box[3] - c.box[1] >= h->p.min_size;
    if (c.score > h->p.min_score && large) out[kept++] = c;
  }
  naive_sort(out, kept);
  return MIN(kept, capacity);
}

TEST_OP(detect_select_random) {
  enum { ROIS = 120 };
  const int capacities[] = {ROIS, 7};
  for (int c = 0; c < COUNT(capacities); c++)
    for (int classes = 2; classes <= 7; classes += 5) {
      Head h;
      head_random(&h, f, 40 + c, classes, ROIS);
      Boxes out = fixture_boxes(f, IMAGES * (classes - 1), capacities[c]);
      RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
      int total = 0;
      for (int g = 0; g < out.groups; g++) {
        Candidate want[ROIS];
        int n = naive_detect(&h, g / (classes - 1), g % (classes - 1) + 1, capacities[c], want);
        expect_group(f, &out, g, want, n);
        total += n;
      }
      EXPECT(total > 10); // the test would prove nothing on an empty set
      fixture_clear(f);
    }
}

// A probability equal to the threshold is not enough, and one that is no number is none.
TEST_OP(detect_select_threshold) {
  Head h;
  head_random(&h, f, 52, 2, 3);
  h.p.min_score = .5f;
  const double logits[3] = {1, 1 + 1. / 64, NAN}; // against 1: exactly a half, a little more, NaN
  for (int i = 0; i < 3; i++) {
    h.rois.image[i] = 0;
    set_box(&h.rois.box, i, 10, 10, 50, 50);
    for (int k = 0; k < 8; k++) set_at(&h.deltas, pixel(&h.deltas, i, 0, 0) + k, 0);
    set_at(&h.logits, pixel(&h.logits, i, 0, 0), 1);
    set_at(&h.logits, pixel(&h.logits, i, 0, 0) + 1, logits[i]);
  }
  Boxes out = fixture_boxes(f, IMAGES, 3);
  RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
  EXPECT_INT(out.count[0], 1);
  EXPECT_INT(out.index[0], 1 * 2 + 1);
}

TEST_OP(detect_select_no_rois) {
  Head h;
  head_random(&h, f, 50, 3, 0);
  Boxes out = fixture_boxes(f, IMAGES * 2, 4);
  RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
  for (int g = 0; g < out.groups; g++) EXPECT_INT(out.count[g], 0);
}

TEST_OP(detect_select_threads) {
  Head h;
  head_random(&h, f, 51, 7, 90);
  Boxes out[3], merged[3];
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    out[t] = fixture_boxes(f, IMAGES * 6, 40);
    merged[t] = fixture_boxes(f, IMAGES, 25);
    RUN(f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out[t]);
    RUN(f, boxes_merge, 6, &out[t], &merged[t]);
    if (t) expect_same(&out[0], &out[t]);
    if (t) expect_same(&merged[0], &merged[t]);
  }
  omp_set_num_threads(before);
}

// Logits in steps, rows in runs of three alike: equal probabilities. Every class but the first is likely now and then.
static void fill_logits(Draw *d, const Tensor *t, bool wild) {
  for (int i = 0; i < t->n; i++)
    for (int c = 0; c < t->ldc; c++) {
      size_t at = pixel(t, i, 0, 0) + (size_t)c;
      double v = i % 3 ? get_at(t, at - (size_t)t->ldc) : below(d, 60) / 8. + (below(d, t->c) == 0 ? 6 : 0);
      if (wild && below(d, 300) == 0) v = (const double[]){NAN, INFINITY, -INFINITY}[below(d, 3)];
      set_at(t, at, c < t->c ? v : 0);
    }
}

static void check_detect(Fixture *f, DType dtype, int count, int classes, int capacity, float min_score, bool wild) {
  char what[128];
  snprintf(what, sizeof what, "dtype %d, %d RoIs, %d classes, best %d, score > %g", (int)dtype, count, classes,
           capacity, (double)min_score);
  Draw d = draw_begin(count + classes + capacity);
  const ImageInfo info[IMAGES] = {
      {.h = 60, .w = 70, .rh = 120, .rw = 140}, {0}, {.h = 50, .w = 50, .rh = 99, .rw = 90}};
  ImageInfo *images = fixture_copy(f, sizeof info, info);
  Rois rois = fixture_rois(f, count + 7);
  *rois.count = count;
  for (int i = 0; i < rois.capacity; i++) {
    double box[4];
    draw_box(&d, 99, 90, .9, box);
    set_box(&rois.box, i, box[0], box[1], box[2], box[3]);
    rois.image[i] = i < count / 3 ? 0 : 2;
  }
  Tensor logits = fixture_typed(f, dtype, rois.capacity, 1, 1, classes);
  Tensor deltas = fixture_typed(f, dtype, rois.capacity, 1, 1, 4 * classes);
  fill_logits(&d, &logits, wild);
  fill_normal(&d, &deltas, 3);
  Tensor float_logits = fixture_floats(f, &logits), float_deltas = fixture_floats(f, &deltas);
  fixture_freeze(f);
  Detect p = {.coder = {.weight = {10, 10, 5, 5}, .clamp = logf(1000.f / 16)}, .min_score = min_score, .min_size = 3};
  for (int run = 0; run < 3; run++) { // twice the same, then with legacy widths
    p.coder.extra = run == 2;
    Boxes out = fixture_boxes(f, IMAGES * (classes - 1), capacity),
          want = fixture_boxes(f, IMAGES * (classes - 1), capacity);
    RUN(f, detect_select, &p, images, IMAGES, &rois, &logits, &deltas, &out);
    REFERENCE(detect_select, &p, images, IMAGES, &rois, &float_logits, &float_deltas, &want);
    EXPECT(same_boxes(&out, &want, what));
  }
  fixture_clear(f);
}

TEST_GPU(cuda_detect_select) {
  for (DType dtype = 0; dtype < DTYPES; dtype++) {
    if (dtype == F64) continue;
    check_detect(f, dtype, 500, 91, 500, .02f, false);
    check_detect(f, dtype, 500, 91, 507, .02f, true);
  }
  check_detect(f, F32, 700, 3, 700, .1f, false);
  check_detect(f, F32, 700, 3, 5, .1f, false);  // the best five of many
  check_detect(f, F32, 700, 33, 300, 0, false); // nearly everything passes
  check_detect(f, F32, 1, 2, 1, .1f, false);
  check_detect(f, F32, 0, 7, 4, .1f, false);
}
