// A model that pastes masks into a picture: mask_paste of nn/ops.h as two products of interpolation matrices.
#include "onnx/emit.h"
#include "onnx/export.h"

// One axis of a mask over pixels of the picture: exact/mask_bins.h, paste_axis.
typedef struct PasteAxis {
  Name first, end, start, scale; // float [d, 1, 1]
} PasteAxis;

static Name truncated(Emit *e, Name x) { return emit_cast(e, emit_cast(e, x, ONNX_INT64), ONNX_FLOAT); }

static PasteAxis paste_axis(Emit *e, bool exact, int mask, Name low, Name high) {
  OnnxModel *m = &e->m;
  Name one = onnx_float(m, 1), half_of = onnx_float(m, 0.5f), side = EMIT(m, "Sub", high, low);
  Name reach = EMIT(m, "Mul", EMIT(m, "Mul", side, half_of), onnx_float(m, (float)((double)(mask + 2) / mask)));
  Name centre = EMIT(m, "Mul", EMIT(m, "Add", high, low), half_of);
  Name first = EMIT(m, "Sub", centre, reach), last = EMIT(m, "Add", centre, reach);
  PasteAxis a;
  if (exact) {
    a.first = EMIT(m, "Floor", first);
    a.scale = EMIT(m, "Div", onnx_float(m, (float)mask), side);
    a.start = EMIT(m, "Sub", low, EMIT(m, "Div", one, a.scale));
    a.end = EMIT(m, "Where", EMIT(m, "Greater", side, onnx_float(m, 0)), EMIT(m, "Add", EMIT(m, "Floor", last), one),
                 a.first);
  } else {
    a.first = a.start = truncated(e, first);
    Name length = EMIT(m, "Max", EMIT(m, "Add", EMIT(m, "Sub", truncated(e, last), a.first), one), one);
    a.scale = EMIT(m, "Div", onnx_float(m, (float)(mask + 2)), length);
    a.end = EMIT(m, "Add", a.first, length);
  }
  return a;
}

// [d, pixels, mask]: how much of each mask pixel a picture's pixel shows. The border of zeros is left out.
static Name weights(Emit *e, bool exact, int mask, Name low, Name high, Name pixels) {
  OnnxModel *m = &e->m;
  const PasteAxis a =
      paste_axis(e, exact, mask, EMIT(m, "Unsqueeze", low, INTS(m, 2)), EMIT(m, "Unsqueeze", high, INTS(m, 2)));
  Name half = onnx_float(m, 0.5f), zero = onnx_float(m, 0), one = onnx_float(m, 1),
       last = onnx_float(m, (float)(mask + 1));
  Name pixel = EMIT(m, "Unsqueeze", emit_range(e, pixels, ONNX_FLOAT), INTS(m, 0, 2)); // [1, pixels, 1]
  Name at = EMIT(m, "Sub", EMIT(m, "Mul", a.scale, EMIT(m, "Sub", EMIT(m, "Add", pixel, half), a.start)), half);
  at = EMIT(m, "Max", at, zero);
  Name low_pixel = EMIT(m, "Min", EMIT(m, "Floor", at), last), fraction = EMIT(m, "Sub", at, low_pixel);
  Name high_pixel = EMIT(m, "Min", EMIT(m, "Add", low_pixel, one), last);
  Name to = EMIT(m, "Add", EMIT(m, "Unsqueeze", emit_range(e, INTS(m, mask), ONNX_FLOAT), INTS(m, 0, 1)), one);
  Name inside = EMIT(m, "And", EMIT(m, "GreaterOrEqual", pixel, a.first), EMIT(m, "Less", pixel, a.end));
  Name near = EMIT(m, "Where", EMIT(m, "Equal", low_pixel, to), EMIT(m, "Sub", one, fraction), zero);
  Name far = EMIT(m, "Where", EMIT(m, "Equal", high_pixel, to), fraction, zero);
  return EMIT(m, "Where", inside, EMIT(m, "Add", near, far), zero);
}

bool onnx_export_paste(const ModelConfig *c, float threshold, const char *path, Err *err) {
  Emit e = {0};
  OnnxModel *m = &e.m;
  char dims[64];
  const int mask = 2 * c->mask_pool;
  const bool exact = c->mask_paste_exact;
  m->scope = "paste";
  snprintf(dims, sizeof dims, "D,%d,%d", mask, mask);
  onnx_input(m, "boxes", ONNX_FLOAT, "D,4", "x1 y1 x2 y2 in pixels of the picture");
  onnx_input(m, "masks", ONNX_FLOAT, dims, "probabilities over the box");
  onnx_input(m, "size", ONNX_INT64, "2", "height and width of the picture");
  const EmitCorners box = emit_corners(&e, "boxes");
  Name h = EMIT(m, "Gather", "size", INTS(m, 0)), w = EMIT(m, "Gather", "size", INTS(m, 1));
  Name down = weights(&e, exact, mask, box.y1, box.y2, h), across = weights(&e, exact, mask, box.x1, box.x2, w);
  across = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1)), across);
  Name pasted = EMIT(m, "MatMul", down, EMIT(m, "MatMul", "masks", across));
  onnx_alias(m, EMIT(m, "GreaterOrEqual", pasted, onnx_float(m, threshold)), "pasted");
  onnx_output(m, "pasted", ONNX_BOOL, "D,H,W", "whether a pixel belongs to the detection");
  return onnx_write(m, path, "paste", err);
}
