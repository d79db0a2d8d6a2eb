// Catches anchors and RoIs matched or sampled otherwise than torchvision does.
//
// rpn_match and roi_sample: the GPU samples the same anchors and RoIs as the CPU, in the same order. Of the regression
// targets x and y are equal too; w and h go through the two libraries' logarithms.
#include <float.h>
#include "base/alloc.h"
#include "models/anchors.h"
#include "test/harness/gpu_boxes.h"

enum { IMAGES = 4 }; // the third is an empty place

typedef struct TwinTruth {
  Truth cpu, gpu;
  Twin box;
  TwinArray label, count, images;
} TwinTruth;

// Whole-number boxes, some twice: equal overlaps.
static TwinTruth truth_random(Draw *d, int capacity, const int count[IMAGES], int h, int w) {
  int rows = IMAGES * capacity, *label = xmalloc((size_t)rows * sizeof *label);
  float(*box)[4] = xmalloc((size_t)rows * sizeof *box);
  for (int i = 0; i < rows; i++) {
    label[i] = 1 + draw_below(d, 90);
    draw_box(d, h, w, i % 5 ? .3f : 1, box[i]);
    for (int k = 0; k < 4; k++) box[i][k] = k < 2 ? floorf(box[i][k]) : ceilf(box[i][k]);
    if (i % 7 == 6) memcpy(box[i], box[i - 1], sizeof *box);
    if (i % 50 == 20) box[i][3] = NAN; // overlaps nothing
    if (i % capacity >= count[i / capacity]) box[i][0] = NAN;
  }
  ImageInfo info[IMAGES];
  for (int n = 0; n < IMAGES; n++)
    info[n] =
        n == 2 ? (ImageInfo){0} : (ImageInfo){.h = h, .w = w, .rh = h, .rw = w, .key = rng_key(d->key, (uint64_t)n)};
  TwinTruth t = {.box = twin_packed(rows, 4, box[0]),
                 .label = twin_ints(rows, label),
                 .count = twin_ints(IMAGES, count),
                 .images = twin_array(IMAGES, sizeof *info, info)};
  t.cpu = (Truth){.images = IMAGES, .capacity = capacity, .box = t.box.cpu, .label = t.label.cpu, .count = t.count.cpu};
  t.gpu = (Truth){.images = IMAGES, .capacity = capacity, .box = t.box.gpu, .label = t.label.gpu, .count = t.count.gpu};
  free(label);
  free(box);
  return t;
}
static void truth_finish(TwinTruth *t) {
  twin_check_guards(&t->box, true);
  twin_ints_check_unchanged(&t->label);
  twin_ints_check_unchanged(&t->count);
  twin_array_check_equal(&t->images, IMAGES);
  twin_free(&t->box);
  twin_array_free(&t->label);
  twin_array_free(&t->count);
  twin_array_free(&t->images);
}

// The first n elements; the first difference is told.
static void check_ints(const TwinArray *a, int first, int n, const char *name, const char *what) {
  int *got = gpu_fetch(a->gpu, a->n * a->size), i = first;
  const int *want = a->cpu;
  while (i < first + n && got[i] == want[i]) i++;
  if (!EXPECT(i == first + n))
    printf("  %s: %s[%d + %d] of %d is %d, should be %d\n", what, name, first, i - first, n, got[i], want[i]);
  free(got);
}
// Two logarithms of up to an ulp each, and a product: four roundings of the value.
static void check_deltas(const Twin *t, int first, int n, const char *what) {
  float *got = gpu_fetch(t->gpu.data, tensor_bytes(&t->gpu));
  const float *want = t->cpu.data;
  int wrong = 0, at = 0;
  for (int i = 4 * first; i < 4 * (first + n); i++) {
    bool alike = i % 4 < 2
                     ? !memcmp(&got[i], &want[i], sizeof *got) || (isnan(got[i]) && isnan(want[i]))
                     : fabsf(got[i] - want[i]) <= 4 * FLT_EPSILON * fabsf(want[i]) || (isnan(got[i]) && isnan(want[i]));
    if (!alike && !wrong++) at = i;
  }
  if (!EXPECT(wrong == 0))
    printf("  %s: %d deltas differ; the first is row %d, number %d: %a, should be %a\n", what, wrong, at / 4, at % 4,
           (double)got[at], (double)want[at]);
  free(got);
}

// ---- anchors --------------------------------------------------------------------------------------------------------

static void check_rpn(int levels, int h0, int w0, int capacity, const int count[IMAGES], const RpnMatch *p) {
  char what[160];
  snprintf(what, sizeof what, "%d levels from %d x %d, up to %d objects, batch %d, low quality %d, inside %d", levels,
           h0, w0, capacity, p->batch, p->low_quality, p->inside);
  Draw d = draw_begin(h0 + capacity + p->batch);
  int h[MAX_LEVELS], w[MAX_LEVELS];
  AnchorShapes shapes = {.sizes = 1, .ratios = 3, .ratio = {.5f, 1, 2}};
  for (int l = 0; l < levels; l++) {
    h[l] = (h0 + (1 << l) - 1) >> l;
    w[l] = (w0 + (1 << l) - 1) >> l;
    shapes.size[l][0] = (float)(32 << l);
  }
  Anchors anchors;
  anchors_init(&anchors, &shapes, levels, h, w, 4 * h0, 4 * w0);
  TwinTruth truth = truth_random(&d, capacity, count, 4 * h0, 4 * w0);
  for (int run = 0; run < 2; run++) {
    TwinArray index = twin_ints(IMAGES * p->batch, NULL), positives = twin_ints(IMAGES, NULL);
    TwinArray sampled = twin_ints(IMAGES, NULL);
    Twin delta = twin_packed(IMAGES * p->batch, 4, NULL);
    RpnTargets cpu = {IMAGES, p->batch, index.cpu, positives.cpu, sampled.cpu, delta.cpu};
    RpnTargets gpu = {IMAGES, p->batch, index.gpu, positives.gpu, sampled.gpu, delta.gpu};
    cpu_device()->ops->rpn_match(cpu_device(), p, &anchors, truth.images.cpu, &truth.cpu, &cpu);
    gpu_device()->ops->rpn_match(gpu_device(), p, &anchors, truth.images.gpu, &truth.gpu, &gpu);
    check_ints(&positives, 0, IMAGES, "positives", what);
    check_ints(&sampled, 0, IMAGES, "count", what);
    for (int n = 0; n < IMAGES; n++) {
      check_ints(&index, n * p->batch, cpu.count[n], "index", what);
      check_deltas(&delta, n * p->batch, cpu.positives[n], what);
    }
    twin_check_guards(&delta, false);
    TwinArray *arrays[] = {&index, &positives, &sampled};
    for (int i = 0; i < COUNT(arrays); i++) {
      twin_ints_check_guards(arrays[i]);
      twin_array_free(arrays[i]);
    }
    twin_free(&delta);
  }
  truth_finish(&truth);
}

static const RpnMatch torchvision_match = {
    .high = .7f, .low = .3f, .low_quality = true, .batch = 256, .positive = .5f, .coder = {.weight = {1, 1, 1, 1}}};

TEST(cuda_rpn_match) {
  if (!gpu_device()) return;
  const int few[] = {5, 0, 3, 1}, many[] = {300, 257, 9, 256}; // objects past a tile of the kernel's
  for (int low_quality = 0; low_quality < 2; low_quality++) {
    RpnMatch p = torchvision_match;
    p.low_quality = low_quality;
    check_rpn(1, 1, 1, 8, few, &p);
    check_rpn(3, 21, 33, 8, few, &p);
    check_rpn(5, 50, 70, 300, many, &p);
    p.coder.extra = 1;
    p.inside = true;
    check_rpn(3, 21, 33, 8, few, &p);
    check_rpn(5, 50, 70, 300, many, &p);
    p = torchvision_match;
    p.low_quality = low_quality;
    p.high = .3f;
    p.low = .2f;
    p.batch = 31; // more objects than are wanted
    check_rpn(3, 21, 33, 8, few, &p);
    p.batch = 4096; // more than there is background
    check_rpn(2, 11, 13, 8, few, &p);
    p.positive = 0;
    check_rpn(2, 11, 13, 8, few, &p);
    p.batch = 1;
    p.positive = 1;
    p.coder.weight[2] = 5;
    check_rpn(2, 11, 13, 8, few, &p);
  }
}

TEST_TIER(cuda_rpn_match_full_size, 1) {
  if (!gpu_device()) return;
  const int count[] = {20, 0, 3, 100};
  check_rpn(5, 200, 336, 100, count, &torchvision_match);
  RpnMatch all = torchvision_match;
  all.high = 0;
  all.low = 0; // every anchor is an object
  check_rpn(5, 200, 336, 100, count, &all);
}

// ---- RoIs -----------------------------------------------------------------------------------------------------------

static TwinBoxes proposals_random(Draw *d, const TwinTruth *truth, int capacity, bool empty) {
  int rows = IMAGES * capacity, count[IMAGES], *index = xcalloc((size_t)rows, sizeof *index);
  float(*box)[4] = xmalloc((size_t)rows * sizeof *box), *score = xcalloc((size_t)rows, sizeof *score);
  for (int n = 0; n < IMAGES; n++) {
    count[n] = empty ? 0 : n == 0 ? capacity : draw_below(d, capacity + 1);
    for (int i = 0; i < capacity; i++) {
      float *b = box[n * capacity + i];
      draw_box(d, 200, 300, .5f, b);
      if (i % 3 || truth->cpu.count[n] == 0) continue; // near an object
      int g = n * truth->cpu.capacity + draw_below(d, truth->cpu.count[n]);
      memcpy(b, (float *)truth->cpu.box.data + 4 * g, sizeof *box);
      b[draw_below(d, 4)] += draw(d, -20, 20);
    }
  }
  TwinBoxes t = twin_boxes(IMAGES, capacity, box[0], score, index, count);
  free(index);
  free(box);
  free(score);
  return t;
}

static void check_rois(int capacity, int objects, const int count[IMAGES], const RoiSample *p, bool empty) {
  char what[160];
  snprintf(what, sizeof what, "%d proposals, up to %d objects, batch %d, positive %g, low %g%s", capacity, objects,
           p->batch, (double)p->positive, (double)p->low, empty ? ", no proposals" : "");
  Draw d = draw_begin(capacity + objects + p->batch);
  TwinTruth truth = truth_random(&d, objects, count, 200, 300);
  TwinBoxes proposals = proposals_random(&d, &truth, capacity, empty);
  int rows = IMAGES * p->batch, most = IMAGES * MAX((int)((float)p->batch * p->positive), 1);
  for (int run = 0; run < 2; run++) {
    Twin box = twin_packed(rows, 4, NULL), delta = twin_packed(rows, 4, NULL), object_box = twin_packed(most, 4, NULL);
    TwinArray image = twin_ints(rows, NULL), sampled = twin_ints(1, NULL), label = twin_ints(rows, NULL);
    TwinArray object_image = twin_ints(most, NULL), found = twin_ints(1, NULL);
    TwinArray object_label = twin_ints(most, NULL), object_truth = twin_ints(most, NULL);
    RoiTargets cpu = {{rows, box.cpu, image.cpu, sampled.cpu},
                      label.cpu,
                      delta.cpu,
                      {most, object_box.cpu, object_image.cpu, found.cpu},
                      object_label.cpu,
                      object_truth.cpu};
    RoiTargets gpu = {{rows, box.gpu, image.gpu, sampled.gpu},
                      label.gpu,
                      delta.gpu,
                      {most, object_box.gpu, object_image.gpu, found.gpu},
                      object_label.gpu,
                      object_truth.gpu};
    cpu_device()->ops->roi_sample(cpu_device(), p, truth.images.cpu, &proposals.cpu, &truth.cpu, &cpu);
    gpu_device()->ops->roi_sample(gpu_device(), p, truth.images.gpu, &proposals.gpu, &truth.gpu, &gpu);
    check_ints(&sampled, 0, 1, "rois.count", what);
    check_ints(&found, 0, 1, "objects.count", what);
    check_ints(&image, 0, *cpu.rois.count, "rois.image", what);
    check_ints(&label, 0, *cpu.rois.count, "label", what);
    check_ints(&object_image, 0, *cpu.objects.count, "objects.image", what);
    check_ints(&object_label, 0, *cpu.objects.count, "object_label", what);
    check_ints(&object_truth, 0, *cpu.objects.count, "object_truth", what);
    TwinArray bits = {.cpu = box.cpu.data, .gpu = box.gpu.data, .n = (size_t)rows, .size = 4 * sizeof(float)};
    twin_array_check_equal(&bits, (size_t)*cpu.rois.count);
    bits = (TwinArray){object_box.cpu.data, object_box.gpu.data, (size_t)most, 4 * sizeof(float)};
    twin_array_check_equal(&bits, (size_t)*cpu.objects.count);
    for (int i = 0; i < *cpu.rois.count; i++)
      if (cpu.label[i] > 0) check_deltas(&delta, i, 1, what);
    Twin *twins[] = {&box, &delta, &object_box};
    for (int i = 0; i < COUNT(twins); i++) {
      twin_check_guards(twins[i], false);
      twin_free(twins[i]);
    }
    TwinArray *arrays[] = {&image, &sampled, &label, &object_image, &found, &object_label, &object_truth};
    for (int i = 0; i < COUNT(arrays); i++) {
      twin_ints_check_guards(arrays[i]);
      twin_array_free(arrays[i]);
    }
  }
  twin_boxes_check_unchanged(&proposals);
  twin_boxes_free(&proposals);
  truth_finish(&truth);
}

TEST(cuda_roi_sample) {
  if (!gpu_device()) return;
  const int few[] = {5, 0, 3, 8}, many[] = {100, 7, 0, 93}, none[] = {0, 0, 0, 0};
  RoiSample p = {.high = .5f, .low = .5f, .batch = 512, .positive = .25f, .coder = {.weight = {10, 10, 5, 5}}};
  check_rois(2000, 100, many, &p, false);
  check_rois(2000, 100, none, &p, false);
  p.coder.extra = 1;
  check_rois(2000, 100, many, &p, false);
  p.coder.extra = 0;
  check_rois(60, 8, few, &p, false); // fewer than the batch
  check_rois(60, 8, few, &p, true);  // the ground truth alone
  check_rois(60, 8, none, &p, true);
  p.low = .25f;
  p.batch = 16; // some ignored; more objects than wanted
  check_rois(300, 8, few, &p, false);
  p.positive = 0;
  check_rois(300, 8, few, &p, false);
  p.positive = 1;
  p.batch = 3;
  check_rois(1, 8, few, &p, false);
  p.positive = .25f;
  p.batch = 512;
  p.high = p.low = 0; // every candidate is an object
  check_rois(300, 8, few, &p, false);
}
