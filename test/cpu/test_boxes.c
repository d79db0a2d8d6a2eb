// Catches proposals and detections that are wrong, lost, or in another order on the GPU than on the CPU.
//
// Proposals, detections and their merging, each against its definition.
#include <omp.h>
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
    EXPECT_NEAR(get(&out->score, row), want[i].score, 16 * epsilon(f));
    for (int k = 0; k < 4; k++) EXPECT_NEAR(get(&out->box, 4 * row + k), want[i].box[k], 10 * 512 * epsilon(f));
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
  ImageInfo images[IMAGES];
  Tensor logits[LEVELS], deltas[LEVELS];
  RpnSelect p;
} RpnOutputs;

// Logits in few steps, so that many are equal; some NaN, some infinite; deltas that leave the image; an empty place.
static void rpn_random(RpnOutputs *rpn, Fixture *f, int seed) {
  const int h[] = {16, 8, 4}, w[] = {20, 10, 5};
  Random r = random_begin(seed);
  AnchorShapes shapes = {.sizes = 1, .size = {{8}, {16}, {32}}, .ratios = 3, .ratio = {.5f, 1, 2}};
  anchors_init(&rpn->anchors, &shapes, LEVELS, h, w, 64, 80);
  rpn->images[0] = (ImageInfo){.h = 100, .w = 150, .rh = 52, .rw = 78};
  rpn->images[1] = (ImageInfo){0};
  rpn->images[2] = (ImageInfo){.h = 64, .w = 80, .rh = 64, .rw = 80};
  rpn->p = (RpnSelect){.coder = {.weight = {1, 1, 1, 1}, .clamp = 4.135f}, .min_size = 2, .min_score = .2f};
  for (int l = 0; l < LEVELS; l++) {
    rpn->logits[l] = fixture_map(f, IMAGES, h[l], w[l], 3);
    rpn->deltas[l] = fixture_map(f, IMAGES, h[l], w[l], 12);
    fill_random(&r, &rpn->deltas[l], -1.5, 1.5);
    for (size_t i = 0; i < tensor_elements(&rpn->logits[l]); i++) {
      int kind = below(&r, 40);
      set(&rpn->logits[l], i, kind == 0 ? NAN : kind == 1 ? -INFINITY : kind == 2 ? -0. : below(&r, 17) / 4. - 2);
      if (kind == 3) set(&rpn->deltas[l], i * 2, NAN);
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
          delta[k] = get(&rpn->deltas[l], pixel(&rpn->deltas[l], n, y, x) + 4 * a + k);
        }
        Candidate *c = &out[total++];
        c->score = get(&rpn->logits[l], pixel(&rpn->logits[l], n, y, x) + a);
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

TEST(rpn_select_random) {
  static Candidate want[16 * 20 * 3];
  const int capacities[] = {1, 37, 150, 2000}; // the last holds every anchor
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int c = 0; c < COUNT(capacities); c++) {
      Fixture f = fixture_open(detect_devices[d]);
      RpnOutputs rpn;
      rpn_random(&rpn, &f, c);
      Boxes out = fixture_boxes(&f, IMAGES * LEVELS, capacities[c]);
      RUN(&f, rpn_select, &rpn.p, &rpn.anchors, rpn.images, rpn.logits, rpn.deltas, &out);
      for (int g = 0; g < out.groups; g++)
        expect_group(&f, &out, g, want, naive_rpn_select(&rpn, g / LEVELS, g % LEVELS, capacities[c], want));
      fixture_close(&f);
    }
}

TEST(rpn_select_threads) {
  Fixture f = fixture_open("cpu");
  RpnOutputs rpn;
  rpn_random(&rpn, &f, 9);
  Boxes out[3];
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    out[t] = fixture_boxes(&f, IMAGES * LEVELS, 60);
    RUN(&f, rpn_select, &rpn.p, &rpn.anchors, rpn.images, rpn.logits, rpn.deltas, &out[t]);
    if (t) expect_same(&out[0], &out[t]);
  }
  omp_set_num_threads(before);
  fixture_close(&f);
}

// ---- merging --------------------------------------------------------------------------------------------------------

TEST(boxes_merge_random) {
  enum { GROUPS = 3, PER = 4, CAPACITY = 30 };
  const int capacities[] = {1, 25, GROUPS * PER * CAPACITY};
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int c = 0; c < COUNT(capacities); c++) {
      Fixture f = fixture_open(detect_devices[d]);
      Random r = random_begin(20 + c);
      Boxes in = fixture_boxes(&f, GROUPS * PER, CAPACITY), out = fixture_boxes(&f, GROUPS, capacities[c]);
      for (int g = 0; g < in.groups; g++) {
        in.count[g] = g / PER == 1 ? 0 : below(&r, CAPACITY + 1); // an image without any
        for (int i = 0, score = 64; i < in.count[g]; i++) {
          int row = g * CAPACITY + i;
          score -= below(&r, 3); // few steps: equal scores within and between groups
          set(&in.score, row, score / 64.);
          in.index[row] = row * 7919 % 10007; // distinct, in no order
          for (int k = 0; k < 4; k++) set(&in.box, 4 * row + k, row + k / 4.);
        }
      }
      RUN(&f, boxes_merge, PER, &in, &out);
      for (int group = 0; group < GROUPS; group++) {
        Candidate want[PER * CAPACITY];
        int n = 0;
        for (int g = group * PER; g < (group + 1) * PER; g++)
          for (int i = 0; i < in.count[g]; i++, n++) {
            int row = g * CAPACITY + i;
            want[n] = (Candidate){.score = get(&in.score, row), .index = in.index[row]};
            get_box(&in.box, row, want[n].box);
          }
        naive_sort(want, n);
        expect_group(&f, &out, group, want, MIN(n, capacities[c]));
      }
      fixture_close(&f);
    }
}

TEST(boxes_cut_by_hand) {
  // In order: .9 .8' .5 .5' .5" .4" .3" .2" .1 (' second, " third group); equal scores by group.
  const double score[3][4] = {{.9, .5, .1}, {.8, .5}, {.5, .4, .3, .2}};
  const int count[3] = {3, 2, 4}, limits[] = {0, 1, 3, 4, 5, 8, 9, 100};
  const int want[][3] = {{0, 0, 0}, {1, 0, 0}, {2, 1, 0}, {2, 2, 0}, {2, 2, 1}, {2, 2, 4}, {3, 2, 4}, {3, 2, 4}};
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int i = 0; i < COUNT(limits); i++) {
      Fixture f = fixture_open(detect_devices[d]);
      Boxes b = fixture_boxes(&f, 3, 4);
      for (int g = 0; g < 3; g++) {
        b.count[g] = count[g];
        for (int k = 0; k < count[g]; k++) set(&b.score, (size_t)(4 * g + k), score[g][k]);
      }
      f.dev->measuring = true;
      f.dev->ops->boxes_cut(f.dev, limits[i], &b);
      f.dev->measuring = false;
      CHECK(device_reserve_workspace(f.dev, NULL));
      f.dev->ops->boxes_cut(f.dev, limits[i], &b);
      for (int g = 0; g < 3; g++) EXPECT_INT(b.count[g], want[i][g]);
      fixture_close(&f);
    }
}

TEST(rois_compact_keeps_order) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Boxes in = fixture_boxes(&f, 4, 3);
    Rois out = fixture_rois(&f, 12);
    const int counts[] = {2, 0, 3, 0};
    for (int i = 0; i < 12; i++) set_box(&in.box, i, i, i + .25, i + .5, i + .75);
    memcpy(in.count, counts, sizeof counts);
    RUN(&f, rois_compact, &in, &out);
    const int rows[] = {0, 1, 6, 7, 8}, images[] = {0, 0, 2, 2, 2};
    EXPECT_INT(*out.count, 5);
    for (int i = 0; i < 5; i++) {
      EXPECT_INT(out.image[i], images[i]);
      for (int k = 0; k < 4; k++) EXPECT_NEAR(get(&out.box, 4 * i + k), rows[i] + k / 4., 0);
    }
    memset(in.count, 0, sizeof counts);
    RUN(&f, rois_compact, &in, &out);
    EXPECT_INT(*out.count, 0);
    fixture_close(&f);
  }
}

// ---- detections -----------------------------------------------------------------------------------------------------

typedef struct Head {
  ImageInfo images[IMAGES];
  Rois rois;
  Tensor logits, deltas;
  Detect p;
} Head;

static void head_random(Head *h, Fixture *f, int seed, int classes, int count) {
  Random r = random_begin(seed);
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
      set(&h->logits, at, i % 3 ? get(&h->logits, at - h->logits.ldc) : uniform(&r, -3, 3));
      if (i % 3 == 0 && below(&r, 60) == 0) set(&h->logits, at, NAN);
    }
    for (int k = 0; k < 4 * classes; k++)
      set(&h->deltas, pixel(&h->deltas, i, 0, 0) + k, below(&r, 100) ? uniform(&r, -8, 4) : NAN);
  }
}

static int naive_detect(const Head *h, int n, int class, int capacity, Candidate *out) {
  int classes = h->logits.c, kept = 0;
  for (int i = 0; i < *h->rois.count; i++) {
    if (h->rois.image[i] != n) continue;
    double sum = 0, delta[4], from[4];
    for (int c = 0; c < classes; c++) sum += exp(get(&h->logits, pixel(&h->logits, i, 0, 0) + c));
    for (int k = 0; k < 4; k++) delta[k] = get(&h->deltas, pixel(&h->deltas, i, 0, 0) + 4 * class + k);
    get_box(&h->rois.box, i, from);
    Candidate c = {.score = exp(get(&h->logits, pixel(&h->logits, i, 0, 0) + class)) / sum,
                   .index = i * classes + class};
    naive_decode(&h->p.coder, from, delta, &h->images[n], c.box);
    bool large = c.box[2] - c.box[0] >= h->p.min_size && c.box[3] - c.box[1] >= h->p.min_size;
    if (c.score > h->p.min_score && large) out[kept++] = c;
  }
  naive_sort(out, kept);
  return MIN(kept, capacity);
}

TEST(detect_select_random) {
  enum { ROIS = 120 };
  const int capacities[] = {ROIS, 7};
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int c = 0; c < COUNT(capacities); c++)
      for (int classes = 2; classes <= 7; classes += 5) {
        Fixture f = fixture_open(detect_devices[d]);
        Head h;
        head_random(&h, &f, 40 + c, classes, ROIS);
        Boxes out = fixture_boxes(&f, IMAGES * (classes - 1), capacities[c]);
        RUN(&f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
        int total = 0;
        for (int g = 0; g < out.groups; g++) {
          Candidate want[ROIS];
          int n = naive_detect(&h, g / (classes - 1), g % (classes - 1) + 1, capacities[c], want);
          expect_group(&f, &out, g, want, n);
          total += n;
        }
        EXPECT(total > 10); // the test would prove nothing on an empty set
        fixture_close(&f);
      }
}

// A probability equal to the threshold is not enough, and one that is no number is none.
TEST(detect_select_threshold) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Head h;
    head_random(&h, &f, 52, 2, 3);
    h.p.min_score = .5f;
    const double logits[3] = {1, 1 + 1. / 64, NAN}; // against 1: exactly a half, a little more, NaN
    for (int i = 0; i < 3; i++) {
      h.rois.image[i] = 0;
      set_box(&h.rois.box, i, 10, 10, 50, 50);
      for (int k = 0; k < 8; k++) set(&h.deltas, pixel(&h.deltas, i, 0, 0) + k, 0);
      set(&h.logits, pixel(&h.logits, i, 0, 0), 1);
      set(&h.logits, pixel(&h.logits, i, 0, 0) + 1, logits[i]);
    }
    Boxes out = fixture_boxes(&f, IMAGES, 3);
    RUN(&f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
    EXPECT_INT(out.count[0], 1);
    EXPECT_INT(out.index[0], 1 * 2 + 1);
    fixture_close(&f);
  }
}

TEST(detect_select_no_rois) {
  Fixture f = fixture_open("cpu");
  Head h;
  head_random(&h, &f, 50, 3, 0);
  Boxes out = fixture_boxes(&f, IMAGES * 2, 4);
  RUN(&f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out);
  for (int g = 0; g < out.groups; g++) EXPECT_INT(out.count[g], 0);
  fixture_close(&f);
}

TEST(detect_select_threads) {
  Fixture f = fixture_open("cpu");
  Head h;
  head_random(&h, &f, 51, 7, 90);
  Boxes out[3], merged[3];
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    out[t] = fixture_boxes(&f, IMAGES * 6, 40);
    merged[t] = fixture_boxes(&f, IMAGES, 25);
    RUN(&f, detect_select, &h.p, h.images, IMAGES, &h.rois, &h.logits, &h.deltas, &out[t]);
    RUN(&f, boxes_merge, 6, &out[t], &merged[t]);
    if (t) expect_same(&out[0], &out[t]);
    if (t) expect_same(&merged[0], &merged[t]);
  }
  omp_set_num_threads(before);
  fixture_close(&f);
}
