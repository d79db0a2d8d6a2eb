// Catches proposals that are wrong, lost, or in another order on the GPU than on the CPU.
//
// Compares with the definition; and at the sizes of real models the GPU's boxes, scores and indices with the CPU's, bit
// for bit. (Sixteen-bit maps are rounded on both sides alike, so this holds for every type.)
#include <omp.h>
#include "models/anchors.h"
#include "test/harness/select_fixture.h"

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
