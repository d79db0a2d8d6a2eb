// Catches boxes kept or dropped that should not be, or in another order on the GPU than on the CPU.
//
// nms: whom the GPU keeps the CPU keeps, in the same order.
#include <float.h>
#include "base/alloc.h"
#include "exact/geometry.h"
#include "test/harness/gpu_boxes.h"

// Fills one group; returns how many boxes.
typedef int FillGroup(Draw *d, int capacity, float (*box)[4]);

static int fill_crowded(Draw *d, int capacity, float (*box)[4]) {
  for (int i = 0; i < capacity; i++) draw_box(d, 300, 400, .4f, box[i]);
  return capacity;
}
static int fill_some(Draw *d, int capacity, float (*box)[4]) {
  fill_crowded(d, capacity, box);
  return draw_below(d, capacity + 1);
}
static int fill_none(Draw *d, int capacity, float (*box)[4]) {
  (void)d;
  (void)capacity;
  (void)box;
  return 0;
}
static int fill_sparse(Draw *d, int capacity, float (*box)[4]) { // all survive
  for (int i = 0; i < capacity; i++) {
    draw_box(d, 8, 8, .5f, box[i]);
    for (int k = 0; k < 4; k++) box[i][k] += (float)(k % 2 ? i / 64 : i % 64) * 8;
  }
  return capacity;
}
static int fill_same(Draw *d, int capacity, float (*box)[4]) { // one survives
  (void)d;
  for (int i = 0; i < capacity; i++) memcpy(box[i], (float[]){1, 2, 30, 40}, sizeof *box);
  return capacity;
}
// Each overlaps its neighbours alone: every other survives, each known only when the one before it is.
static int fill_chain(Draw *d, int capacity, float (*box)[4]) {
  (void)d;
  for (int i = 0; i < capacity; i++) memcpy(box[i], (float[]){(float)i, 0, (float)i + 4, 4}, sizeof *box);
  return capacity;
}
static int fill_wild(Draw *d, int capacity, float (*box)[4]) {
  const float wild[] = {NAN, -NAN, INFINITY, -INFINITY, 0, -0.f, FLT_MAX};
  fill_crowded(d, capacity, box);
  for (int i = 0; i < capacity; i++)
    if (draw_below(d, 3) == 0) box[i][draw_below(d, 4)] = wild[draw_below(d, COUNT(wild))];
  return capacity;
}
static FillGroup *const fills[] = {fill_crowded, fill_some, fill_none,   fill_same,
                                   fill_chain,   fill_wild, fill_sparse, fill_some};

static void check_nms(int groups, int capacity, int out_capacity, float threshold) {
  char what[128];
  snprintf(what, sizeof what, "%d groups of %d to %d, IoU > %g", groups, capacity, out_capacity, (double)threshold);
  Draw d = draw_begin(groups + capacity + out_capacity);
  int rows = groups * capacity;
  float(*box)[4] = xcalloc((size_t)rows, sizeof *box), *score = xmalloc((size_t)rows * sizeof *score);
  int *index = xmalloc((size_t)rows * sizeof *index), *count = xmalloc((size_t)groups * sizeof *count);
  for (int g = 0; g < groups; g++) count[g] = fills[g % COUNT(fills)](&d, capacity, box + g * capacity);
  for (int i = 0; i < rows; i++) {
    score[i] = 1 - (float)(i % capacity) / (float)capacity;
    index[i] = draw_below(&d, 1 << 30);
  }
  TwinBoxes in = twin_boxes(groups, capacity, box[0], score, index, count);
  for (int run = 0; run < 3; run++) {
    Nms p = {.threshold = threshold, .extra = run == 2}; // first twice the same, then with legacy widths
    TwinBoxes out = twin_boxes(groups, out_capacity, NULL, NULL, NULL, NULL);
    cpu_device()->ops->nms(cpu_device(), &p, &in.cpu, &out.cpu);
    gpu_device()->ops->nms(gpu_device(), &p, &in.gpu, &out.gpu);
    twin_boxes_check(&out, what);
    twin_boxes_free(&out);
  }
  twin_boxes_check_unchanged(&in);
  twin_boxes_free(&in);
  free(box);
  free(score);
  free(index);
  free(count);
}

TEST(cuda_nms) {
  if (!gpu_device()) return;
  const int capacities[] = {1, 2, 31, 63, 64, 65, 127, 128, 129, 500};
  for (int i = 0; i < COUNT(capacities); i++) check_nms(8, capacities[i], capacities[i], .5f);
  check_nms(8, 300, 1, .5f); // cut at the capacity: within the first tile, at its end, behind it
  check_nms(8, 300, 64, .7f);
  check_nms(8, 300, 100, .7f);
  check_nms(8, 200, 200, 0);     // any overlap at all
  check_nms(8, 200, 200, 1);     // none is enough
  check_nms(360, 40, 30, .5f);   // as many groups as classes of four images
  check_nms(16, 1000, 100, .5f); // few of many: compared with survivors alone
  check_nms(16, 777, 194, .1f);
  check_nms(8, 260, 65, 1);
  check_nms(8, 4, 1, .5f);
}

TEST_TIER(cuda_nms_full_size, 1) {
  if (!gpu_device()) return;
  check_nms(20, 2000, 2000, .7f);
  check_nms(20, 2000, 1000, .7f);
  check_nms(8, 5000, 1024, .9f);
  check_nms(8, 10000, 9000, .5f); // a bitmask whose rows do not fit into shared memory
}

// The kernel looks at a pair from either side.
TEST(iou_is_symmetric) {
  Draw d = draw_begin(1);
  float box[2][4];
  for (int i = 0; i < 20000; i++) {
    if (i % 2)
      fill_wild(&d, 2, box);
    else
      fill_crowded(&d, 2, box);
    Box a = {box[0][0], box[0][1], box[0][2], box[0][3]}, b = {box[1][0], box[1][1], box[1][2], box[1][3]};
    real ab = box_iou(a, b), ba = box_iou(b, a);
    if (!EXPECT(!memcmp(&ab, &ba, sizeof ab))) break;
  }
}
