// Proposals and detections: select → nms → boxes_merge, as nn/ops.h has them.
#include <stdlib.h>
#include "base/alloc.h"
#include "onnx/emit.h"

enum { NO_BOX = -1 }; // score of a slot without a box; those of boxes are probabilities

// The k largest, or smallest, along the last axis; equal ones in order.
static Name largest(Emit *e, Name x, Name k, bool smallest, Name *index) {
  Name out[2];
  onnx_node(&e->m, "TopK", ATTRS(attr_int("axis", -1), attr_int("largest", !smallest), attr_int("sorted", 1)),
            (const Name[]){x, k, NULL}, 2, out);
  *index = out[1];
  return out[0];
}

// x [n, t, …] at positions index [n, k]: [n, k, …].
static Name gathered(Emit *e, Name x, Name index) {
  OnnxModel *m = &e->m;
  return EMIT_WITH(m, "GatherND", ATTRS(attr_int("batch_dims", 1)), x, EMIT(m, "Unsqueeze", index, INTS(m, 2)));
}

static Name is_box(Emit *e, Name score) { return EMIT(&e->m, "GreaterOrEqual", score, onnx_float(&e->m, 0)); }

static Name score_if(Emit *e, Name condition, Name score) {
  return EMIT(&e->m, "Where", condition, score, onnx_float(&e->m, NO_BOX));
}

// [..., 1] without its last axis.
static Name column(Emit *e, Name x) { return EMIT(&e->m, "Squeeze", x, INTS(&e->m, -1)); }

// ---- proposals ------------------------------------------------------------------------------------------------------

// int64 [h], [w] of a map's grid.
static Name grid_side(Emit *e, Name map, int axis) { return emit_shape(e, map, 2 + axis, 3 + axis); }

// Canvas pixels between anchors along an axis: nominal, or the canvas's side / the grid's, rounded down.
static Name anchor_stride(Emit *e, const AnchorLevel *level, Name map, int axis) {
  OnnxModel *m = &e->m;
  if (!e->network->config.anchor_grid_stride) return onnx_float(m, axis ? level->stride_x : level->stride_y);
  Name side = EMIT(m, "Gather", e->canvas, INTS(m, axis));
  return emit_cast(e, EMIT(m, "Div", side, grid_side(e, map, axis)), ONNX_FLOAT);
}

// Anchors [n, k, 4] of a level by their numbers in it, [n, k]: level_anchor of exact/geometry.h.
static EmitCorners anchors_at(Emit *e, const Anchors *anchors, int l, Name map, Name index) {
  OnnxModel *m = &e->m;
  const AnchorLevel *level = &anchors->level[l];
  Name per = onnx_int(m, anchors->per_cell), last = INTS(m, 2), w = grid_side(e, map, 1);
  Name pixel = EMIT(m, "Div", index, per);
  Name x = emit_cast(e, EMIT(m, "Mod", pixel, w), ONNX_FLOAT), y = emit_cast(e, EMIT(m, "Div", pixel, w), ONNX_FLOAT);
  x = EMIT(m, "Unsqueeze", EMIT(m, "Mul", x, anchor_stride(e, level, map, 1)), last);
  y = EMIT(m, "Unsqueeze", EMIT(m, "Mul", y, anchor_stride(e, level, map, 0)), last);
  Name cells =
      onnx_tensor(m, onnx_name(m, "anchors.%d", l), ONNX_FLOAT, 2, (int64_t[]){anchors->per_cell, 4}, level->cell);
  const EmitCorners base =
      emit_corners(e, EMIT_WITH(m, "Gather", ATTRS(attr_int("axis", 0)), cells, EMIT(m, "Mod", index, per)));
  return (EmitCorners){EMIT(m, "Add", base.x1, x), EMIT(m, "Add", base.y1, y), EMIT(m, "Add", base.x2, x),
                       EMIT(m, "Add", base.y2, y)};
}

// [n, a, h, w] as [n, h·w·a], or with 4·a channels [n, h·w·a, 4].
static Name by_anchor(Emit *e, Name map, bool deltas) {
  OnnxModel *m = &e->m;
  Name last = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 3, 1)), map);
  return EMIT(m, "Reshape", last, deltas ? INTS(m, 0, -1, 4) : INTS(m, 0, -1));
}

// first: int64 [1], the number of the level's first anchor.
static EmitTable select_level(Emit *e, const RpnSelect *p, const Anchors *anchors, int l, const Tensor *logits,
                              const Tensor *deltas, int capacity, Name *first) {
  OnnxModel *m = &e->m;
  Name map = emit_value(e, logits), flat = by_anchor(e, map, false), total = emit_shape(e, flat, 1, 2), index;
  Name logit = largest(e, flat, EMIT(m, "Min", total, INTS(m, capacity)), false, &index);
  Name delta = gathered(e, by_anchor(e, emit_value(e, deltas), true), index);
  EmitCorners box = emit_decoded(e, &p->coder, anchors_at(e, anchors, l, map, index), delta);
  box = emit_clipped(e, box, EMIT(m, "Unsqueeze", e->sizes, INTS(m, 1)), p->coder.extra);
  Name score = emit_sigmoid(e, logit), keep = column(e, emit_reaches(e, box, p->min_size, p->coder.extra));
  if (p->min_score > 0) keep = EMIT(m, "And", keep, EMIT(m, "GreaterOrEqual", score, onnx_float(m, p->min_score)));
  const EmitTable t = {
      .box = emit_joined(e, &box), .score = score_if(e, keep, score), .index = EMIT(m, "Add", index, *first), .per = 1};
  *first = EMIT(m, "Add", *first, total);
  return t;
}

void emit_rpn_select(Device *dev, const RpnSelect *p, const Anchors *anchors, const ImageInfo *images,
                     const Tensor *logits, const Tensor *deltas, const Boxes *out) {
  Emit *e = emit_of(dev);
  (void)images;
  Name first = INTS(&e->m, 0);
  EmitBoxes *to = emit_new_boxes(e, out);
  to->tables = anchors->levels;
  for (int l = 0; l < anchors->levels; l++)
    to->table[l] = select_level(e, p, anchors, l, &logits[l], &deltas[l], out->capacity, &first);
}

// ---- suppression ----------------------------------------------------------------------------------------------------

// NonMaxSuppression has the order of ours: by score, ties by position.
static Name suppressed(Emit *e, const Nms *p, const EmitTable *t, int most) {
  OnnxModel *m = &e->m;
  const EmitCorners span = emit_span(e, emit_corners(e, t->box), p->extra);
  Name boxes = p->extra == 0 ? t->box : emit_joined(e, &span); // the operator does not ask which axis is which
  Name threshold = onnx_tensor(m, onnx_name(m, "%s/threshold_%zu", m->scope, m->count), ONNX_FLOAT, 1, (int64_t[]){1},
                               &p->threshold);
  Name least = onnx_tensor(m, onnx_name(m, "%s/least_%zu", m->scope, m->count), ONNX_FLOAT, 1, (int64_t[]){1},
                           &(float){NO_BOX / 2.f});
  Name chosen =
      EMIT(m, "NonMaxSuppression", boxes, EMIT(m, "Unsqueeze", t->score, INTS(m, 1)), INTS(m, most), threshold, least);
  Name rows = EMIT_WITH(m, "Gather", ATTRS(attr_int("axis", 1)), chosen, INTS(m, 0, 2));
  return EMIT(m, "ScatterND", emit_filled(e, emit_shape(e, t->score, 0, 2), NO_BOX), rows,
              EMIT(m, "GatherND", t->score, rows));
}

void emit_nms(Device *dev, const Nms *p, const Boxes *in, const Boxes *out) {
  Emit *e = emit_of(dev);
  EmitBoxes *to = emit_new_boxes(e, out);
  const EmitBoxes *from = emit_boxes(e, in);
  to->tables = from->tables;
  for (int i = 0; i < from->tables; i++) {
    to->table[i] = from->table[i];
    to->table[i].score = suppressed(e, p, &from->table[i], out->capacity);
  }
}

// ---- merging --------------------------------------------------------------------------------------------------------

// A table of `per` groups an image as one of one group, with the groups' first boxes in front, then the second …
static EmitTable interleaved(Emit *e, const EmitTable *t) {
  OnnxModel *m = &e->m;
  const int k = t->slots;
  Name score = EMIT(m, "Reshape", t->score, INTS(m, -1, t->per, k));
  Name box = EMIT(m, "Reshape", t->box, INTS(m, -1, t->per, k, 4));
  score = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1)), score);
  box = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1, 3)), box);
  return (EmitTable){.box = EMIT(m, "Reshape", box, INTS(m, -1, t->per * k, 4)),
                     .score = EMIT(m, "Reshape", score, INTS(m, -1, t->per * k)),
                     .per = 1};
}

// [n, …] of one value, n being that of `like`.
static Name padding(Emit *e, Name like, Name rest, float value) {
  Name n = emit_shape(e, like, 0, 1);
  return emit_filled(e, EMIT_WITH(&e->m, "Concat", ATTRS(attr_int("axis", 0)), n, rest), value);
}

static Name side_by_side(Emit *e, const Name *part) {
  return onnx_node(&e->m, "Concat", ATTRS(attr_int("axis", 1)), part, 1, NULL);
}

// The tables of all levels as one, by index, so that a sort by score leaves equal ones in that order.
static EmitTable levels_joined(Emit *e, const EmitBoxes *from) {
  OnnxModel *m = &e->m;
  Name box[MAX_LEVELS + 1] = {NULL}, score[MAX_LEVELS + 1] = {NULL}, index[MAX_LEVELS + 1] = {NULL}, order;
  for (int i = 0; i < from->tables; i++) {
    box[i] = from->table[i].box;
    score[i] = from->table[i].score;
    index[i] = from->table[i].index;
  }
  Name indices = side_by_side(e, index);
  largest(e, indices, emit_shape(e, indices, 1, 2), true, &order);
  return (EmitTable){.box = gathered(e, side_by_side(e, box), order),
                     .score = EMIT_WITH(m, "GatherElements", ATTRS(attr_int("axis", 1)), side_by_side(e, score), order),
                     .per = 1};
}

// As many slots without a box are appended as are asked for, so that there are enough.
void emit_merge(Device *dev, int per, const Boxes *in, const Boxes *out) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  EmitBoxes *to = emit_new_boxes(e, out);
  const EmitBoxes *from = emit_boxes(e, in);
  const bool classes = from->table[0].index == NULL;
  CHECK(per == (classes ? from->table[0].per : from->tables));
  const EmitTable t = classes ? interleaved(e, &from->table[0]) : levels_joined(e, from);
  Name score[] = {t.score, padding(e, t.score, INTS(m, out->capacity), NO_BOX), NULL};
  Name box[] = {t.box, padding(e, t.score, INTS(m, out->capacity, 4), 0), NULL}, order;
  Name best = largest(e, side_by_side(e, score), INTS(m, out->capacity), false, &order);
  to->tables = 1;
  to->table[0] = (EmitTable){.box = gathered(e, side_by_side(e, box), order), .score = best, .per = 1};
  if (classes) to->label = EMIT(m, "Add", EMIT(m, "Mod", order, onnx_int(m, per)), onnx_int(m, 1));
}

void emit_compact(Device *dev, const Boxes *in, const Rois *out) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  EmitBoxes *from = emit_boxes(e, in);
  EmitRois *to = emit_new_rois(e, out);
  from->slots = to->slots = emit_nonzero(e, is_box(e, from->table[0].score));
  to->slots_each = in->capacity;
  to->box = EMIT(m, "GatherND", from->table[0].box, to->slots);
  to->image = column(e, EMIT(m, "Slice", to->slots, INTS(m, 0), INTS(m, 1), INTS(m, 1)));
}

// ---- detections -----------------------------------------------------------------------------------------------------

// x [rois, …] back in the slots of their images, [n, slots, …]; `value` where there is no RoI. rest: […].
static Name in_slots(Emit *e, const EmitRois *rois, Name x, Name rest, float value) {
  OnnxModel *m = &e->m;
  Name shape = EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 0)), emit_shape(e, e->sizes, 0, 1),
                         INTS(m, rois->slots_each), rest);
  return EMIT(m, "ScatterND", emit_filled(e, shape, value), rois->slots, x);
}

void emit_detect_select(Device *dev, const Detect *p, const ImageInfo *images, int num_images, const Rois *rois,
                        const Tensor *logits, const Tensor *deltas, const Boxes *out) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  const int classes = logits->c;
  (void)images;
  (void)num_images;
  const EmitRois *from = emit_rois(e, rois);
  Name sizes = EMIT(m, "Unsqueeze", EMIT(m, "Gather", e->sizes, from->image), INTS(m, 1));
  Name one = INTS(m, 1), end = INTS(m, classes);
  Name probs = EMIT_WITH(m, "Softmax", ATTRS(attr_int("axis", -1)), emit_value(e, logits));
  Name score = EMIT(m, "Slice", probs, one, end, one); // without the background
  Name delta = EMIT(m, "Slice", EMIT(m, "Reshape", emit_value(e, deltas), INTS(m, -1, classes, 4)), one, end, one);
  const EmitCorners roi = emit_corners(e, EMIT(m, "Unsqueeze", from->box, INTS(m, 1)));
  const EmitCorners box = emit_clipped(e, emit_decoded(e, &p->coder, roi, delta), sizes, p->coder.extra);
  Name keep = EMIT(m, "And", EMIT(m, "Greater", score, onnx_float(m, p->min_score)),
                   column(e, emit_reaches(e, box, p->min_size, p->coder.extra)));
  score = in_slots(e, from, score_if(e, keep, score), INTS(m, classes - 1), NO_BOX);
  Name boxes = in_slots(e, from, emit_joined(e, &box), INTS(m, classes - 1, 4), 0);
  EmitBoxes *to = emit_new_boxes(e, out);
  to->tables = 1;
  score = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1)), score);
  boxes = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1, 3)), boxes);
  to->table[0] = (EmitTable){.box = EMIT(m, "Reshape", boxes, INTS(m, -1, from->slots_each, 4)),
                             .score = EMIT(m, "Reshape", score, INTS(m, -1, from->slots_each)),
                             .per = classes - 1,
                             .slots = from->slots_each};
}
