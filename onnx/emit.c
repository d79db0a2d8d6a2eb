#include "onnx/emit.h"
#include "base/alloc.h"

// ---- what ops read and write ----------------------------------------------------------------------------------------

// Values share memory: what was written last at an address is what stands there.
Name emit_value(Emit *e, const Tensor *t) {
  OnnxModel *m = &e->m;
  for (size_t i = e->values; i-- > 0;) {
    const EmitValue *v = &e->value[i];
    if (!tensor_has_channels(&v->t, t)) continue;
    if (t->c == v->t.c) return v->name;
    const int64_t first = ((const char *)t->data - (const char *)v->t.data) / (int64_t)dtype_size(t->dtype);
    return EMIT(m, "Slice", v->name, INTS(m, first), INTS(m, first + t->c), INTS(m, 1));
  }
  CHECK(!"an op reads what no op has written");
  return NULL;
}

void emit_bind(Emit *e, const Tensor *t, Name name) {
  array_reserve((void **)&e->value, &e->cap_values, e->values + 1, sizeof *e->value);
  e->value[e->values++] = (EmitValue){*t, name};
}

// The input is padded to a multiple of 32 pixels, so that what stands for four pixels does so everywhere.
static Name upsampled(Emit *e, Name x) {
  OnnxModel *m = &e->m;
  const float twice[] = {1, 1, 2, 2};
  Name scales = onnx_tensor(m, onnx_name(m, "%s/scales", m->scope), ONNX_FLOAT, 1, (int64_t[]){4}, twice);
  return EMIT_WITH(m, "Resize",
                   ATTRS(attr_text("mode", "nearest"), attr_text("coordinate_transformation_mode", "asymmetric"),
                         attr_text("nearest_mode", "floor")),
                   x, "", scales);
}

void emit_dest(Emit *e, const Dest *y, Name v) {
  OnnxModel *m = &e->m;
  CHECK(!y->accumulate && !y->mask && !y->moments && !y->pool);
  if (y->addend) {
    Name addend = emit_value(e, y->addend);
    v = EMIT(m, "Add", v, y->addend->h == y->t.h ? addend : upsampled(e, addend));
  }
  emit_bind(e, &y->t, y->relu ? EMIT(m, "Relu", v) : v);
}

EmitBoxes *emit_boxes(Emit *e, const Boxes *b) {
  for (size_t i = e->num_boxes; i-- > 0;)
    if (e->boxes[i].key == b->box.data) return &e->boxes[i];
  CHECK(!"an op reads boxes that no op has written");
  return NULL;
}

EmitBoxes *emit_new_boxes(Emit *e, const Boxes *b) {
  array_reserve((void **)&e->boxes, &e->cap_boxes, e->num_boxes + 1, sizeof *e->boxes);
  EmitBoxes *made = &e->boxes[e->num_boxes++];
  *made = (EmitBoxes){.key = b->box.data};
  return made;
}

const EmitRois *emit_rois(Emit *e, const Rois *r) {
  for (size_t i = e->num_rois; i-- > 0;)
    if (e->rois[i].key == r->box.data) return &e->rois[i];
  CHECK(!"an op reads RoIs that no op has written");
  return NULL;
}

EmitRois *emit_new_rois(Emit *e, const Rois *r) {
  array_reserve((void **)&e->rois, &e->cap_rois, e->num_rois + 1, sizeof *e->rois);
  EmitRois *made = &e->rois[e->num_rois++];
  *made = (EmitRois){.key = r->box.data};
  return made;
}

// ---- formulas -------------------------------------------------------------------------------------------------------

Name emit_shape(Emit *e, Name x, int first, int end) {
  return EMIT_WITH(&e->m, "Shape", ATTRS(attr_int("start", first), attr_int("end", end)), x);
}

Name emit_cast(Emit *e, Name x, OnnxType type) { return EMIT_WITH(&e->m, "Cast", ATTRS(attr_int("to", type)), x); }

Name emit_filled(Emit *e, Name shape, float value) { return EMIT(&e->m, "Expand", onnx_float(&e->m, value), shape); }

// Not the operator Sigmoid: onnxruntime's is approximate, and constant below -18, where scores still have to differ.
Name emit_sigmoid(Emit *e, Name x) {
  OnnxModel *m = &e->m;
  Name one = onnx_float(m, 1);
  return EMIT(m, "Div", one, EMIT(m, "Add", one, EMIT(m, "Exp", EMIT(m, "Neg", x))));
}

Name emit_nonzero(Emit *e, Name condition) {
  return EMIT_WITH(&e->m, "Transpose", ATTRS(ATTR_INTS("perm", 1, 0)), EMIT(&e->m, "NonZero", condition));
}

Name emit_padded_to(Emit *e, Name extent, int multiple) {
  OnnxModel *m = &e->m;
  Name by = onnx_int(m, multiple);
  return EMIT(m, "Mul", EMIT(m, "Div", EMIT(m, "Add", extent, onnx_int(m, multiple - 1)), by), by);
}

Name emit_range(Emit *e, Name count, OnnxType type) {
  OnnxModel *m = &e->m;
  Name scalar = EMIT(m, "Squeeze", count);
  return emit_cast(e, EMIT(m, "Range", onnx_int(m, 0), scalar, onnx_int(m, 1)), type);
}

Name emit_add(Emit *e, Name x, float constant) {
  return constant == 0 ? x : EMIT(&e->m, "Add", x, onnx_float(&e->m, constant));
}

// ---- boxes ----------------------------------------------------------------------------------------------------------

EmitCorners emit_corners(Emit *e, Name boxes) {
  Name part[4];
  onnx_node(&e->m, "Split", ATTRS(attr_int("axis", -1), attr_int("num_outputs", 4)), (const Name[]){boxes, NULL}, 4,
            part);
  return (EmitCorners){part[0], part[1], part[2], part[3]};
}

Name emit_joined(Emit *e, const EmitCorners *c) {
  return EMIT_WITH(&e->m, "Concat", ATTRS(attr_int("axis", -1)), c->x1, c->y1, c->x2, c->y2);
}

EmitCorners emit_span(Emit *e, EmitCorners b, float extra) {
  b.x2 = emit_add(e, b.x2, extra);
  b.y2 = emit_add(e, b.y2, extra);
  return b;
}

// One axis of box_decode: its ends.
static void decode_axis(Emit *e, const BoxCoder *coder, int axis, Name low, Name high, Name shift, Name growth,
                        Name *first, Name *last) {
  OnnxModel *m = &e->m;
  Name half = onnx_float(m, 0.5f), side = EMIT(m, "Sub", high, low);
  Name from = EMIT(m, "Add", low, EMIT(m, "Mul", half, side));
  Name step = EMIT(m, "Mul", EMIT(m, "Div", shift, onnx_float(m, coder->weight[axis])), side);
  Name grown = EMIT(m, "Div", growth, onnx_float(m, coder->weight[axis + 2]));
  Name factor = EMIT(m, "Exp", EMIT(m, "Min", grown, onnx_float(m, coder->clamp)));
  Name centre = EMIT(m, "Add", step, from), reach = EMIT(m, "Mul", half, EMIT(m, "Mul", factor, side));
  *first = EMIT(m, "Sub", centre, reach);
  *last = emit_add(e, EMIT(m, "Add", centre, reach), -coder->extra);
}

EmitCorners emit_decoded(Emit *e, const BoxCoder *coder, EmitCorners from, Name delta) {
  const EmitCorners d = emit_corners(e, delta);
  EmitCorners box;
  from = emit_span(e, from, coder->extra);
  decode_axis(e, coder, 0, from.x1, from.x2, d.x1, d.x2, &box.x1, &box.x2);
  decode_axis(e, coder, 1, from.y1, from.y2, d.y1, d.y2, &box.y1, &box.y2);
  return box;
}

EmitCorners emit_clipped(Emit *e, EmitCorners b, Name sizes, float extra) {
  OnnxModel *m = &e->m;
  Name side[2], zero = onnx_float(m, 0);
  onnx_node(m, "Split", ATTRS(attr_int("axis", -1), attr_int("num_outputs", 2)), (const Name[]){sizes, NULL}, 2, side);
  Name bottom = emit_add(e, side[0], -extra), right = emit_add(e, side[1], -extra);
  return (EmitCorners){
      EMIT(m, "Min", EMIT(m, "Max", b.x1, zero), right), EMIT(m, "Min", EMIT(m, "Max", b.y1, zero), bottom),
      EMIT(m, "Min", EMIT(m, "Max", b.x2, zero), right), EMIT(m, "Min", EMIT(m, "Max", b.y2, zero), bottom)};
}

Name emit_reaches(Emit *e, EmitCorners b, float side, float extra) {
  OnnxModel *m = &e->m;
  const EmitCorners span = emit_span(e, b, extra);
  Name least = onnx_float(m, side);
  return EMIT(m, "And", EMIT(m, "GreaterOrEqual", EMIT(m, "Sub", span.x2, span.x1), least),
              EMIT(m, "GreaterOrEqual", EMIT(m, "Sub", span.y2, span.y1), least));
}
