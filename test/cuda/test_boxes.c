// Catches proposals and detections that are wrong, lost, or in another order on the GPU than on the CPU.
//
// rpn_select, boxes_merge, rois_compact and detect_select: the GPU's boxes, scores and indices are the CPU's, bit for
// bit. (Sixteen-bit maps are rounded on both sides alike, so this holds for every type.)
#include "base/alloc.h"
#include "models/anchors.h"
#include "test/harness/gpu_boxes.h"

enum { IMAGES = 3 }; // the second is an empty place

// ---- proposals ------------------------------------------------------------------------------------------------------

typedef enum ScorePattern { NORMAL, TIES, ALL_EQUAL, SATURATED, WILD, PATTERNS } ScorePattern;
static const char *const pattern_names[] = {"normal", "ties", "all equal", "saturated", "NaN and infinite"};

static float draw_logit(Draw *d, ScorePattern pattern) {
  switch (pattern) {
  case TIES: return (float)draw_below(d, 9) / 4 - 1; // -0 and 0 are the same
  case ALL_EQUAL: return -.5f;
  case SATURATED: return draw(d, 10, 60); // different logits, equal scores
  case WILD: {
    const float wild[] = {NAN, -NAN, INFINITY, -INFINITY, -0.f, 0, 1e-40f, 1e30f};
    int i = draw_below(d, 3 * COUNT(wild));
    return i < COUNT(wild) ? wild[i] : draw(d, -3, 3);
  }
  default: return draw(d, -4, 1) + draw(d, -4, 1);
  }
}

static void check_rpn(DType dtype, int levels, const int *h, const int *w, int capacity, ScorePattern pattern) {
  char what[128];
  snprintf(what, sizeof what, "dtype %d, %d levels from %d x %d, best %d, %s", (int)dtype, levels, h[0], w[0], capacity,
           pattern_names[pattern]);
  Draw d = draw_begin(levels * 1000 + capacity + (int)pattern);
  int canvas_h = 4 * h[0], canvas_w = 4 * w[0];
  Anchors anchors;
  AnchorShapes shapes = {.sizes = 1, .ratios = 3, .ratio = {.5f, 1, 2}};
  for (int l = 0; l < levels; l++) shapes.size[l][0] = (float)(32 << l);
  anchors_init(&anchors, &shapes, levels, h, w, canvas_h, canvas_w);
  ImageInfo info[IMAGES] = {{.h = 90, .w = 120, .rh = canvas_h, .rw = canvas_w - 1}, {0}, {.h = 7, .w = 5}};
  info[2].rh = MAX(canvas_h / 2, 1);
  info[2].rw = MAX(canvas_w / 2, 1);
  TwinArray images = twin_array(IMAGES, sizeof *info, info);
  Twin map[2 * MAX_LEVELS];
  Tensor cpu[2 * MAX_LEVELS], gpu[2 * MAX_LEVELS];
  for (int l = 0; l < levels; l++)
    for (int kind = 0; kind < 2; kind++) { // logits, deltas
      int c = kind ? 12 : 3, i = kind * MAX_LEVELS + l;
      size_t n = (size_t)IMAGES * (size_t)h[l] * (size_t)w[l] * (size_t)c;
      float *values = xmalloc(n * sizeof *values);
      for (size_t k = 0; k < n; k++) values[k] = kind ? draw(&d, -1.5f, 1.5f) : draw_logit(&d, pattern);
      if (kind && pattern == WILD)
        for (size_t k = 0; k < n; k += 1 + (size_t)draw_below(&d, 40))
          values[k] = (const float[]){NAN, INFINITY, -INFINITY, 100}[draw_below(&d, 4)];
      map[i] = twin_values(dtype, IMAGES, h[l], w[l], c, values);
      cpu[i] = map[i].cpu;
      gpu[i] = map[i].gpu;
      free(values);
    }
  RpnSelect p = {.coder = {.weight = {1, 1, 1, 1}, .clamp = logf(1000.f / 16)}, .min_size = 1, .min_score = .05f};
  for (int run = 0; run < 3; run++) { // twice the same, then with legacy widths
    p.coder.extra = run == 2;
    TwinBoxes out = twin_boxes(IMAGES * levels, capacity, NULL, NULL, NULL, NULL);
    cpu_device()->ops->rpn_select(cpu_device(), &p, &anchors, images.cpu, cpu, cpu + MAX_LEVELS, &out.cpu);
    gpu_device()->ops->rpn_select(gpu_device(), &p, &anchors, images.gpu, gpu, gpu + MAX_LEVELS, &out.gpu);
    twin_boxes_check(&out, what);
    twin_boxes_free(&out);
  }
  for (int l = 0; l < levels; l++)
    for (int kind = 0; kind < 2; kind++) {
      twin_check_guards(&map[kind * MAX_LEVELS + l], true);
      twin_free(&map[kind * MAX_LEVELS + l]);
    }
  twin_array_check_equal(&images, IMAGES);
  twin_array_free(&images);
}

TEST(cuda_rpn_select) {
  if (!gpu_device()) return;
  const int one[] = {1}, h[] = {37, 19, 10, 5, 3}, w[] = {53, 27, 14, 7, 4}, capacities[] = {1, 37, 1000, 2000};
  for (DType dtype = 0; dtype < DTYPES; dtype++) {
    if (dtype == F64) continue;
    check_rpn(dtype, 1, one, one, 5, NORMAL);
    for (ScorePattern pattern = 0; pattern < PATTERNS; pattern++)
      check_rpn(dtype, 5, h, w, capacities[pattern % COUNT(capacities)], pattern);
  }
  check_rpn(F32, 5, h, w, 6000, TIES); // more than there are; and more than 48 KB to sort
}

TEST_TIER(cuda_rpn_select_full_size, 1) {
  if (!gpu_device()) return;
  const int h[] = {200, 100, 50, 25, 13}, w[] = {336, 168, 84, 42, 21};
  check_rpn(BF16, 5, h, w, 2000, NORMAL);
  check_rpn(F32, 5, h, w, 2000, NORMAL);
  check_rpn(F32, 5, h, w, 2000, ALL_EQUAL); // nothing is thrown out before the last block: the slowest case
  check_rpn(F32, 5, h, w, 2000, WILD);
}

// ---- merging --------------------------------------------------------------------------------------------------------

// `steps` different scores; sorted within each group as an op would leave them, or not at all.
static TwinBoxes scored_boxes(Draw *d, int groups, int capacity, int steps, bool sorted, bool empty) {
  size_t rows = (size_t)groups * (size_t)capacity;
  float *box = xmalloc(rows * 4 * sizeof *box), *score = xmalloc(rows * sizeof *score);
  int *index = xmalloc(rows * sizeof *index), *count = xmalloc((size_t)groups * sizeof *count);
  for (size_t i = 0; i < rows; i++) index[i] = (int)i;
  for (size_t i = rows; i-- > 1;) { // any order
    size_t k = (size_t)draw_below(d, (int)i + 1);
    int t = index[i];
    index[i] = index[k];
    index[k] = t;
  }
  for (int g = 0; g < groups; g++) {
    count[g] = empty ? 0 : g % 4 == 3 ? capacity : draw_below(d, capacity + 1);
    for (int i = 0; i < capacity; i++) {
      size_t row = (size_t)(g * capacity + i);
      int step = sorted ? steps - 1 - (int)((int64_t)i * steps / capacity) : draw_below(d, steps);
      score[row] = i < count[g] ? (float)step / (float)steps : NAN;
      draw_box(d, 600, 800, .5f, box + 4 * row);
    }
  }
  TwinBoxes t = twin_boxes(groups, capacity, box, score, index, count);
  free(box);
  free(score);
  free(index);
  free(count);
  return t;
}

static void check_merge(int groups, int per, int capacity, int out_capacity, int steps, bool sorted, bool empty) {
  char what[128];
  snprintf(what, sizeof what, "%d groups of %d x %d to %d, %d scores", groups, per, capacity, out_capacity, steps);
  Draw d = draw_begin(groups * per + capacity + steps);
  TwinBoxes in = scored_boxes(&d, groups * per, capacity, steps, sorted, empty);
  for (int run = 0; run < 2; run++) {
    TwinBoxes out = twin_boxes(groups, out_capacity, NULL, NULL, NULL, NULL);
    cpu_device()->ops->boxes_merge(cpu_device(), per, &in.cpu, &out.cpu);
    gpu_device()->ops->boxes_merge(gpu_device(), per, &in.gpu, &out.gpu);
    twin_boxes_check(&out, what);
    twin_boxes_free(&out);
  }
  twin_boxes_check_unchanged(&in);
  twin_boxes_free(&in);
}

TEST(cuda_boxes_merge) {
  if (!gpu_device()) return;
  check_merge(4, 5, 2000, 2000, 1 << 20, true, false); // proposals
  check_merge(4, 90, 100, 100, 5000, true, false);     // detections
  check_merge(2, 5, 2000, 2000, 7, true, false);       // mostly ties
  check_merge(2, 5, 2000, 2000, 1, true, false);
  check_merge(3, 4, 30, 1, 50, false, false);
  check_merge(3, 7, 11, 77, 50, false, false); // all fit
  check_merge(1, 1, 1, 1, 1, true, false);
  check_merge(3, 5, 40, 20, 9, true, true);
  check_merge(4, 5, 2000, 4000, 1 << 20, true, false);  // 48 KB to sort, besides the kernel's own
  check_merge(2, 5, 2000, 5000, 1 << 20, false, false); // more than 48 KB to sort
  check_merge(2, 5, 5000, 1000, 1 << 20, false, false); // lists that do not fit into shared memory
}

// Groups sorted by score, as merging leaves them; of `steps` different scores.
static void check_cut(int groups, int capacity, int steps, int limit, bool empty) {
  Draw d = draw_begin(groups + capacity + limit);
  TwinBoxes b = scored_boxes(&d, groups, capacity, steps, true, empty);
  cpu_device()->ops->boxes_cut(cpu_device(), limit, &b.cpu);
  gpu_device()->ops->boxes_cut(gpu_device(), limit, &b.gpu);
  twin_array_check_equal(&b.count, (size_t)groups);
  int kept = 0;
  for (int g = 0; g < groups; g++) kept += b.cpu.count[g];
  EXPECT(kept <= limit);
  twin_check_guards(&b.box, true);
  twin_check_guards(&b.score, true);
  twin_boxes_free(&b);
}

TEST(cuda_boxes_cut) {
  if (!gpu_device()) return;
  check_cut(2, 2000, 1 << 20, 2000, false);
  check_cut(16, 2000, 500, 16000, false); // mostly ties
  check_cut(40, 300, 1, 5000, false);     // more groups than warps or lanes; all scores equal
  check_cut(3, 50, 20, 7, false);
  check_cut(3, 50, 20, 0, false);
  check_cut(3, 50, 20, 1000, false); // all stay
  check_cut(1, 30, 30, 11, false);
  check_cut(5, 30, 30, 11, true);
}

TEST(cuda_rois_compact) {
  if (!gpu_device()) return;
  for (int groups = 1; groups <= 40; groups += 13) {
    Draw d = draw_begin(groups);
    int capacity = groups == 1 ? 1000 : 70;
    TwinBoxes in = scored_boxes(&d, groups, capacity, 50, true, groups == 27);
    int rows = groups * capacity;
    Twin box = twin_packed(rows, 4, NULL);
    TwinArray image = twin_ints(rows, NULL), count = twin_ints(1, NULL);
    Rois cpu = {rows, box.cpu, image.cpu, count.cpu}, gpu = {rows, box.gpu, image.gpu, count.gpu};
    cpu_device()->ops->rois_compact(cpu_device(), &in.cpu, &cpu);
    gpu_device()->ops->rois_compact(gpu_device(), &in.gpu, &gpu);
    twin_array_check_equal(&count, 1);
    twin_array_check_equal(&image, (size_t)*cpu.count);
    float *got = gpu_fetch(box.gpu.data, tensor_bytes(&box.gpu));
    EXPECT(!memcmp(got, box.cpu.data, (size_t)*cpu.count * 4 * sizeof *got));
    free(got);
    twin_check_guards(&box, false);
    twin_ints_check_guards(&image);
    twin_ints_check_guards(&count);
    twin_boxes_check_unchanged(&in);
    twin_boxes_free(&in);
    twin_free(&box);
    twin_array_free(&image);
    twin_array_free(&count);
  }
}

// ---- detections -----------------------------------------------------------------------------------------------------

// Logits in steps, rows in runs of three alike: equal probabilities. Every class but the first is likely now and then.
static Twin class_logits(DType dtype, Draw *d, int rois, int classes, bool wild) {
  float *values = xmalloc((size_t)rois * (size_t)classes * sizeof *values);
  for (int i = 0; i < rois; i++)
    for (int c = 0; c < classes; c++) {
      float *v = values + i * classes + c;
      *v = i % 3 ? v[-classes] : (float)draw_below(d, 60) / 8 + (draw_below(d, classes) == 0 ? 6 : 0);
      if (wild && draw_below(d, 300) == 0) *v = (const float[]){NAN, INFINITY, -INFINITY}[draw_below(d, 3)];
    }
  Twin t = twin_values(dtype, rois, 1, 1, classes, values);
  free(values);
  return t;
}

static void check_detect(DType dtype, int count, int classes, int capacity, float min_score, bool wild) {
  char what[128];
  snprintf(what, sizeof what, "dtype %d, %d RoIs, %d classes, best %d, score > %g", (int)dtype, count, classes,
           capacity, (double)min_score);
  Draw d = draw_begin(count + classes + capacity);
  int rois = count + 7;
  const ImageInfo info[IMAGES] = {
      {.h = 60, .w = 70, .rh = 120, .rw = 140}, {0}, {.h = 50, .w = 50, .rh = 99, .rw = 90}};
  TwinArray images = twin_array(IMAGES, sizeof *info, info);
  float *boxes = xmalloc((size_t)rois * 4 * sizeof *boxes);
  int *of_image = xmalloc((size_t)rois * sizeof *of_image);
  for (int i = 0; i < rois; i++) {
    draw_box(&d, 99, 90, .9f, boxes + 4 * i);
    of_image[i] = i < count / 3 ? 0 : 2;
  }
  Twin box = twin_packed(rois, 4, boxes), logits = class_logits(dtype, &d, rois, classes, wild);
  Twin deltas = twin_random(dtype, rois, 1, 1, 4 * classes, 3, d.key);
  TwinArray image = twin_ints(rois, of_image), valid = twin_ints(1, &count);
  Rois cpu = {rois, box.cpu, image.cpu, valid.cpu}, gpu = {rois, box.gpu, image.gpu, valid.gpu};
  Detect p = {.coder = {.weight = {10, 10, 5, 5}, .clamp = logf(1000.f / 16)}, .min_score = min_score, .min_size = 3};
  for (int run = 0; run < 3; run++) { // twice the same, then with legacy widths
    p.coder.extra = run == 2;
    TwinBoxes out = twin_boxes(IMAGES * (classes - 1), capacity, NULL, NULL, NULL, NULL);
    cpu_device()->ops->detect_select(cpu_device(), &p, images.cpu, IMAGES, &cpu, &logits.cpu, &deltas.cpu, &out.cpu);
    gpu_device()->ops->detect_select(gpu_device(), &p, images.gpu, IMAGES, &gpu, &logits.gpu, &deltas.gpu, &out.gpu);
    twin_boxes_check(&out, what);
    twin_boxes_free(&out);
  }
  Twin *inputs[] = {&box, &logits, &deltas};
  for (int i = 0; i < COUNT(inputs); i++) {
    twin_check_guards(inputs[i], true);
    twin_free(inputs[i]);
  }
  twin_ints_check_unchanged(&image);
  twin_ints_check_unchanged(&valid);
  twin_array_free(&image);
  twin_array_free(&valid);
  twin_array_free(&images);
  free(boxes);
  free(of_image);
}

TEST(cuda_detect_select) {
  if (!gpu_device()) return;
  for (DType dtype = 0; dtype < DTYPES; dtype++) {
    if (dtype == F64) continue;
    check_detect(dtype, 500, 91, 500, .02f, false);
    check_detect(dtype, 500, 91, 507, .02f, true);
  }
  check_detect(F32, 700, 3, 700, .1f, false);
  check_detect(F32, 700, 3, 5, .1f, false);  // the best five of many
  check_detect(F32, 700, 33, 300, 0, false); // nearly everything passes
  check_detect(F32, 1, 2, 1, .1f, false);
  check_detect(F32, 0, 7, 4, .1f, false);
}
