// RoIAlign over a pyramid, and the masks of detections.
#include "exact/roi_bins.h"
#include "onnx/emit.h"

// The level of every RoI, int64 [rois]: how many of the limits its side reaches.
static Name levels_of(Emit *e, const RoiAlign *p, Name boxes) {
  OnnxModel *m = &e->m;
  float limit[MAX_LEVELS];
  roi_level_limits(p, limit);
  const EmitCorners b = emit_span(e, emit_corners(e, boxes), p->extra);
  Name area = EMIT(m, "Mul", EMIT(m, "Sub", b.x2, b.x1), EMIT(m, "Sub", b.y2, b.y1)), last = INTS(m, -1);
  Name side = EMIT(m, "Squeeze", EMIT(m, "Sqrt", area), last), level = NULL;
  for (int l = 1; l < p->levels; l++) {
    Name reached = emit_cast(e, EMIT(m, "GreaterOrEqual", side, onnx_float(m, limit[l])), ONNX_INT64);
    level = level ? EMIT(m, "Add", level, reached) : reached;
  }
  return level;
}

// The inverse of a permutation of 0 … n - 1.
static Name inverse(Emit *e, Name permutation) {
  Name out[2];
  onnx_node(&e->m, "TopK", ATTRS(attr_int("axis", 0), attr_int("largest", 0), attr_int("sorted", 1)),
            (const Name[]){permutation, emit_shape(e, permutation, 0, 1), NULL}, 2, out);
  return out[1];
}

void emit_roi_align(Device *dev, const RoiAlign *p, const Rois *rois, const Tensor *x, const Tensor *y) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  const EmitRois *from = emit_rois(e, rois);
  Name level = levels_of(e, p, from->box), pooled[MAX_LEVELS + 1] = {NULL}, rows[MAX_LEVELS + 1] = {NULL};
  for (int l = 0; l < p->levels; l++) {
    Name here = EMIT(m, "Equal", level, onnx_int(m, l));
    rows[l] = EMIT(m, "Reshape", EMIT(m, "NonZero", here), INTS(m, -1));
    pooled[l] =
        EMIT_WITH(m, "RoiAlign",
                  ATTRS(attr_text("coordinate_transformation_mode", p->aligned ? "half_pixel" : "output_half_pixel"),
                        attr_text("mode", "avg"), attr_int("output_height", p->size), attr_int("output_width", p->size),
                        attr_int("sampling_ratio", p->sampling), attr_float("spatial_scale", p->scale[l])),
                  emit_value(e, &x[l]), EMIT(m, "Gather", from->box, rows[l]), EMIT(m, "Gather", from->image, rows[l]));
  }
  Name all = onnx_node(m, "Concat", ATTRS(attr_int("axis", 0)), pooled, 1, NULL);
  Name order = onnx_node(m, "Concat", ATTRS(attr_int("axis", 0)), rows, 1, NULL);
  emit_bind(e, y, EMIT(m, "Gather", all, inverse(e, order)));
}

// The detections' masks in their slots, [n, slots, m, m].
void emit_mask_select(Device *dev, const Boxes *detections, const Tensor *logits, const Tensor *probs) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  const EmitBoxes *from = emit_boxes(e, detections);
  Name label = EMIT(m, "Unsqueeze", EMIT(m, "GatherND", from->label, from->slots), INTS(m, 1));
  Name own = EMIT_WITH(m, "GatherND", ATTRS(attr_int("batch_dims", 1)), emit_value(e, logits), label);
  Name shape = EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 0)), emit_shape(e, e->sizes, 0, 1),
                         INTS(m, detections->capacity, probs->h, probs->w));
  emit_bind(e, probs, EMIT(m, "ScatterND", emit_filled(e, shape, 0), from->slots, emit_sigmoid(e, own)));
}
