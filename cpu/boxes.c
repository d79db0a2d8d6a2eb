// From network outputs to scored boxes: the RPN's proposals, the box head's detections, and the merging of their groups
// after NMS. A group (image and level, or image and class) is selected by one heap, groups in parallel. Ren et al.,
// "Faster R-CNN", 2015; torchvision's filter_proposals and postprocess_detections.
#include <string.h>
#include "cpu/reference.h"
#include "cpu/softmax.h"
#include "cpu/topk.h"
#include "exact/geometry.h"

// ---- groups ---------------------------------------------------------------------------------------------------------

static void boxes_put(const Boxes *out, int group, int i, Box box, double score, int index) {
  size_t row = (size_t)group * out->capacity + i;
  box_rows(&out->box)[row] = box;
  ((real *)out->score.data)[row] = (real)score;
  out->index[row] = index;
}

// Each group has a part of the workspace, so that groups are selected in parallel.
static TopK group_topk(TopKItem *workspace, const Boxes *out, int group) {
  return (TopK){.items = workspace + (size_t)group * out->capacity, .k = out->capacity};
}

// ---- proposals ------------------------------------------------------------------------------------------------------

typedef struct RpnLevel { // one level of one image
  const AnchorLevel *anchors;
  int per_cell, n;
  const Tensor *logits, *deltas;
} RpnLevel;

// The objectness logit of anchor i of the level: anchors of a cell are channels, cells follow one another.
static real level_logit(const RpnLevel *l, int i) {
  return at(l->logits, l->n, 0, 0)[(size_t)(i / l->per_cell) * l->logits->ldc + i % l->per_cell];
}

// Anchor i of the level, moved and scaled by its regression deltas.
static Box level_box(const RpnLevel *l, const BoxCoder *coder, int i) {
  const real *delta = at(l->deltas, l->n, 0, 0) + (size_t)(i / l->per_cell) * l->deltas->ldc + 4 * (i % l->per_cell);
  return box_decode(coder, level_anchor(l->anchors, l->per_cell, i), delta);
}

// Top-k by logit before decoding, so that only the k best are decoded; then the size and score filters.
static void select_level(const RpnSelect *p, const RpnLevel *l, const ImageInfo *info, TopK best, const Boxes *out,
                         int group) {
  int total = info->h > 0 ? l->anchors->h * l->anchors->w * l->per_cell : 0;
  for (int i = 0; i < total; i++) {
    double logit = level_logit(l, i);
    topk_offer(&best, (TopKItem){.score = isnan(logit) ? -INFINITY : logit, .index = i});
  }
  topk_sort(&best);
  int n = 0;
  for (int i = 0; i < best.n; i++) {
    real score = sigmoid((real)best.items[i].score);
    Box box = box_clip(level_box(l, &p->coder, best.items[i].index), info->rh, info->rw, p->coder.extra);
    if (!box_reaches(box, p->min_size, p->coder.extra) || !(score >= p->min_score)) continue;
    boxes_put(out, group, n++, box, score, l->anchors->first + best.items[i].index);
  }
  out->count[group] = n;
}

void OP(rpn_select)(Device *dev, const RpnSelect *p, const Anchors *anchors, const ImageInfo *images,
                    const Tensor *logits, const Tensor *deltas, const Boxes *out) {
  TopKItem *workspace = device_workspace(dev, (size_t)out->groups * out->capacity * sizeof *workspace);
  if (!workspace) return;
  CHECK(out->groups == logits[0].n * anchors->levels);
#pragma omp parallel for schedule(dynamic)
  for (int group = 0; group < out->groups; group++) {
    int n = group / anchors->levels, l = group % anchors->levels;
    RpnLevel level = {.anchors = &anchors->level[l],
                      .per_cell = anchors->per_cell,
                      .n = n,
                      .logits = &logits[l],
                      .deltas = &deltas[l]};
    select_level(p, &level, &images[n], group_topk(workspace, out, group), out, group);
  }
}

// ---- merging --------------------------------------------------------------------------------------------------------

// Offers the boxes of `per` sorted groups to the heap of the image.
void OP(boxes_merge)(Device *dev, int per, const Boxes *in, const Boxes *out) {
  TopKItem *workspace = device_workspace(dev, (size_t)out->groups * out->capacity * sizeof *workspace);
  if (!workspace) return;
  CHECK(in->groups == out->groups * per);
  const real *score = in->score.data;
#pragma omp parallel for schedule(dynamic)
  for (int group = 0; group < out->groups; group++) {
    TopK best = group_topk(workspace, out, group);
    for (int g = group * per; g < (group + 1) * per; g++)
      for (int row = g * in->capacity; row < g * in->capacity + in->count[g]; row++)
        topk_offer(&best, (TopKItem){.score = score[row], .index = in->index[row], .row = row});
    topk_sort(&best);
    for (int i = 0; i < best.n; i++)
      boxes_put(out, group, i, box_rows(&in->box)[best.items[i].row], best.items[i].score, best.items[i].index);
    out->count[group] = best.n;
  }
}

// How many boxes of the other groups rank before box i of this one.
static int boxes_before(const Boxes *b, const int *count, int group, int i) {
  const real *score = b->score.data, mine = score[(size_t)group * b->capacity + i];
  int before = 0;
  for (int g = 0; g < b->groups; g++)
    for (int j = 0; g != group && j < count[g]; j++) {
      real other = score[(size_t)g * b->capacity + j];
      if (!(other > mine || (other == mine && g < group))) break; // sorted: none that follows does
      before++;
    }
  return before;
}

// A group's own ranks ascend: the first box whose rank among all groups reaches the limit ends the group.
void OP(boxes_cut)(Device *dev, int limit, const Boxes *boxes) {
  int *count = device_workspace(dev, (size_t)boxes->groups * sizeof *count);
  if (!count) return;
  memcpy(count, boxes->count, (size_t)boxes->groups * sizeof *count);
  for (int g = 0; g < boxes->groups; g++)
    for (int i = 0; i < count[g]; i++)
      if (i + boxes_before(boxes, count, g, i) >= limit) {
        boxes->count[g] = i;
        break;
      }
}

void OP(rois_compact)(Device *dev, const Boxes *in, const Rois *out) {
  if (dev->measuring) return;
  CHECK(out->capacity >= in->groups * in->capacity);
  int n = 0;
  for (int group = 0; group < in->groups; group++)
    for (int i = 0; i < in->count[group]; i++, n++) {
      box_rows(&out->box)[n] = box_rows(&in->box)[(size_t)group * in->capacity + i];
      out->image[n] = group;
    }
  *out->count = n;
}

// ---- detections -----------------------------------------------------------------------------------------------------

typedef struct DetectGroup { // the inputs of one group of detections: a class in an image
  const Rois *rois;
  const Tensor *logits, *deltas;
  const Softmax *softmax; // [rois]
  int image, class;
} DetectGroup;

// The RoI, regressed by the deltas of the group's class and clipped to the image.
static Box detection_box(const Detect *p, const DetectGroup *head, const ImageInfo *info, int roi) {
  const real *delta = at(head->deltas, roi, 0, 0) + 4 * head->class;
  return box_clip(box_decode(&p->coder, box_rows(&head->rois->box)[roi], delta), info->rh, info->rw, p->coder.extra);
}

// The score threshold comes before decoding: of a hundred classes hardly any passes, so hardly any box is decoded.
static void select_class(const Detect *p, const DetectGroup *head, const ImageInfo *info, TopK best, const Boxes *out,
                         int group) {
  for (int roi = 0; roi < *head->rois->count; roi++) {
    if (head->rois->image[roi] != head->image) continue;
    real score = softmax_prob(head->softmax[roi], at(head->logits, roi, 0, 0)[head->class]);
    if (!(score > p->min_score) || !box_reaches(detection_box(p, head, info, roi), p->min_size, p->coder.extra))
      continue;
    topk_offer(&best, (TopKItem){.score = score, .index = roi});
  }
  topk_sort(&best);
  for (int i = 0; i < best.n; i++) {
    int roi = best.items[i].index;
    boxes_put(out, group, i, detection_box(p, head, info, roi), best.items[i].score,
              roi * head->logits->c + head->class);
  }
  out->count[group] = best.n;
}

void OP(detect_select)(Device *dev, const Detect *p, const ImageInfo *images, int num_images, const Rois *rois,
                       const Tensor *logits, const Tensor *deltas, const Boxes *out) {
  size_t ranked_bytes = (size_t)out->groups * out->capacity * sizeof(TopKItem);
  char *workspace = device_workspace(dev, ranked_bytes + (size_t)rois->capacity * sizeof(Softmax));
  if (!workspace) return;
  int classes = logits->c;
  CHECK(out->groups == num_images * (classes - 1) && deltas->c == 4 * classes);
  Softmax *softmax = (Softmax *)(workspace + ranked_bytes);
#pragma omp parallel for
  for (int roi = 0; roi < *rois->count; roi++) softmax[roi] = softmax_of(at(logits, roi, 0, 0), classes);
#pragma omp parallel for schedule(dynamic)
  for (int group = 0; group < out->groups; group++) {
    DetectGroup head = {.rois = rois,
                        .logits = logits,
                        .deltas = deltas,
                        .softmax = softmax,
                        .image = group / (classes - 1),
                        .class = group % (classes - 1) + 1};
    select_class(p, &head, &images[head.image], group_topk((TopKItem *)workspace, out, group), out, group);
  }
}
