// A detector's inputs: what the network reads, or pictures as they are decoded, which are then resized and normalised.
#include "data/batches/canvas.h"
#include "onnx/emit.h"

enum { MULTIPLE = CANVAS_MULTIPLE }; // of the input's sides

Name emit_side(Emit *e, Name sizes, int axis) { // [n]
  return EMIT_WITH(&e->m, "Gather", ATTRS(attr_int("axis", 1)), sizes, onnx_int(&e->m, axis));
}

// The input `sizes`, int64 [n, 2]; `images` has its height at axis `first`. ONNX knows no assertion: a picture without
// pixels, or one that leaves its image, makes an index that no Gather finds, so that the model ends with an error that
// names this node.
static Name checked_sizes(Emit *e, int first) {
  OnnxModel *m = &e->m;
  const char *scope = m->scope;
  m->scope = "sizes_are_at_most_those_of_images";
  Name inside = EMIT(m, "LessOrEqual", "sizes", emit_shape(e, "images", first, first + 2));
  Name right = EMIT(m, "And", inside, EMIT(m, "Greater", "sizes", onnx_int(m, 0)));
  Name none = EMIT(m, "Gather", INTS(m, 0), emit_cast(e, EMIT(m, "Not", right), ONNX_INT64));
  Name sizes = EMIT(m, "Add", "sizes", none);
  m->scope = scope;
  return sizes;
}

// RGB becomes the network's order.
Name emit_ordered(Emit *e, const Preprocess *p, Name x) {
  return p->bgr ? EMIT_WITH(&e->m, "Gather", ATTRS(attr_int("axis", 1)), x, INTS(&e->m, 2, 1, 0)) : x;
}

// ---- a tensor that is preprocessed already --------------------------------------------------------------------------

static void normalised_input(Emit *e, const Preprocess *p, const Tensor *y) {
  OnnxModel *m = &e->m;
  onnx_input(m, "images", ONNX_FLOAT, "N,3,H,W",
             "RGB, resized and normalised, zeros outside of each picture; H and W of any size");
  onnx_input(m, "sizes", ONNX_INT64, "N,2", "height and width of each resized picture, without its padding");
  Name sides = emit_shape(e, "images", 2, 4);
  e->canvas = emit_padded_to(e, sides, MULTIPLE);
  Name pads =
      EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 0)), INTS(m, 0, 0, 0, 0, 0, 0), EMIT(m, "Sub", e->canvas, sides));
  e->sizes = emit_cast(e, checked_sizes(e, 2), ONNX_FLOAT);
  emit_bind(e, y, emit_ordered(e, p, EMIT(m, "Pad", "images", pads)));
}

// ---- pictures -------------------------------------------------------------------------------------------------------

// Heights and widths [n] in double, as data/batches/canvas.c computes them: rounded towards zero, at least 1.
static Name whole(Emit *e, Name x) { return EMIT(&e->m, "Max", EMIT(&e->m, "Floor", x), onnx_double(&e->m, 1)); }

static void resized(Emit *e, Name h, Name w, Name *rh, Name *rw) {
  OnnxModel *m = &e->m;
  const ModelConfig *c = &e->network->config;
  Name size = onnx_double(m, c->size), most = onnx_double(m, c->max_size);
  Name shorter = EMIT(m, "Min", h, w), longer = EMIT(m, "Max", h, w);
  if (c->resize_rule == RESIZE_TORCHVISION) {
    Name scale = EMIT(m, "Min", EMIT(m, "Div", size, shorter), EMIT(m, "Div", most, longer));
    *rh = whole(e, EMIT(m, "Mul", h, scale));
    *rw = whole(e, EMIT(m, "Mul", w, scale));
  } else if (c->resize_rule == RESIZE_DETECTRON2) {
    Name scale = EMIT(m, "Div", size, shorter), upright = EMIT(m, "Less", h, w), half = onnx_double(m, 0.5);
    Name high = EMIT(m, "Where", upright, size, EMIT(m, "Mul", scale, h));
    Name wide = EMIT(m, "Where", upright, EMIT(m, "Mul", scale, w), size), long_side = EMIT(m, "Max", high, wide);
    Name shrink =
        EMIT(m, "Where", EMIT(m, "Greater", long_side, most), EMIT(m, "Div", most, long_side), onnx_double(m, 1));
    *rh = whole(e, EMIT(m, "Add", EMIT(m, "Mul", high, shrink), half));
    *rw = whole(e, EMIT(m, "Add", EMIT(m, "Mul", wide, shrink), half));
  } else {
    Name over = EMIT(m, "Greater", EMIT(m, "Mul", EMIT(m, "Div", longer, shorter), size), most);
    Name less = EMIT(m, "Round", EMIT(m, "Div", EMIT(m, "Mul", most, shorter), longer));
    Name side = EMIT(m, "Where", over, less, size), narrow = EMIT(m, "Less", w, h);
    *rh = whole(e, EMIT(m, "Where", narrow, EMIT(m, "Div", EMIT(m, "Mul", side, h), w), side));
    *rw = whole(e, EMIT(m, "Where", narrow, side, EMIT(m, "Div", EMIT(m, "Mul", side, w), h)));
  }
}

typedef struct EmitAxis { // of a batch of pictures
  Name from, to;          // double [n, 1, 1]: pixels before and after resizing
  Name in, out;           // double [1, 1, in], [1, out, 1]: their positions in the batch's tensors
} EmitAxis;

static EmitAxis axis_of(Emit *e, Name from, Name to, Name in, Name out) {
  OnnxModel *m = &e->m;
  Name columns = INTS(m, 1, 2);
  return (EmitAxis){.from = EMIT(m, "Unsqueeze", from, columns),
                    .to = EMIT(m, "Unsqueeze", to, columns),
                    .in = EMIT(m, "Unsqueeze", emit_range(e, in, ONNX_DOUBLE), INTS(m, 0, 1)),
                    .out = EMIT(m, "Unsqueeze", emit_range(e, out, ONNX_DOUBLE), INTS(m, 0, 2))};
}

// float [n, out, in]: the weights of the two pixels between which a position lies: tap_resized of exact/tap.h.
static Name linear(Emit *e, const EmitAxis *a) {
  OnnxModel *m = &e->m;
  Name half = onnx_float(m, 0.5f), one = onnx_double(m, 1);
  Name scale = EMIT(m, "Div", emit_cast(e, a->from, ONNX_FLOAT), emit_cast(e, a->to, ONNX_FLOAT));
  Name at = EMIT(m, "Sub", EMIT(m, "Mul", scale, EMIT(m, "Add", emit_cast(e, a->out, ONNX_FLOAT), half)), half);
  at = EMIT(m, "Max", at, onnx_float(m, 0));
  Name floor = EMIT(m, "Floor", at), fraction = EMIT(m, "Sub", at, floor);
  Name low = emit_cast(e, floor, ONNX_DOUBLE), last = EMIT(m, "Sub", a->from, one);
  Name high = EMIT(m, "Min", EMIT(m, "Add", low, one), last), none = onnx_float(m, 0);
  Name near = EMIT(m, "Where", EMIT(m, "Equal", a->in, low), EMIT(m, "Sub", onnx_float(m, 1), fraction), none);
  return EMIT(m, "Add", near, EMIT(m, "Where", EMIT(m, "Equal", a->in, high), fraction, none));
}

// double [n, out, in]: Pillow's triangle in fixed point, 22 bits: exact/resample.h.
static Name triangle(Emit *e, const EmitAxis *a) {
  OnnxModel *m = &e->m;
  Name half = onnx_double(m, 0.5), one = onnx_double(m, 1), zero = onnx_double(m, 0);
  Name scale = EMIT(m, "Div", a->from, a->to), support = EMIT(m, "Max", scale, one);
  Name centre = EMIT(m, "Mul", EMIT(m, "Add", a->out, half), scale);
  Name first = EMIT(m, "Floor", EMIT(m, "Max", EMIT(m, "Add", EMIT(m, "Sub", centre, support), half), zero));
  Name end = EMIT(m, "Min", EMIT(m, "Floor", EMIT(m, "Add", EMIT(m, "Add", centre, support), half)), a->from);
  Name inside = EMIT(m, "And", EMIT(m, "GreaterOrEqual", a->in, first), EMIT(m, "Less", a->in, end));
  Name off = EMIT(m, "Abs", EMIT(m, "Div", EMIT(m, "Add", EMIT(m, "Sub", a->in, centre), half), support));
  Name weight = EMIT(m, "Where", inside, EMIT(m, "Max", EMIT(m, "Sub", one, off), zero), zero);
  Name total = EMIT_WITH(m, "ReduceSum", ATTRS(attr_int("keepdims", 1)), weight, INTS(m, 2));
  Name share = EMIT(m, "Div", weight, EMIT(m, "Max", total, onnx_double(m, 1e-9)));
  return EMIT(m, "Floor", EMIT(m, "Add", EMIT(m, "Mul", share, onnx_double(m, 1 << 22)), half));
}

// A fixed-point sum as a byte.
static Name byte_of(Emit *e, Name sum) {
  OnnxModel *m = &e->m;
  Name rounded = EMIT(m, "Floor", EMIT(m, "Add", EMIT(m, "Div", sum, onnx_double(m, 1 << 22)), onnx_double(m, 0.5)));
  return EMIT(m, "Min", rounded, onnx_double(m, 255));
}

// x [n, 3, h, w] by columns and then by rows.
static Name resampled(Emit *e, const Preprocess *p, Name x, const EmitAxis *rows, const EmitAxis *columns) {
  OnnxModel *m = &e->m;
  Name one = INTS(m, 1);
  Name across = p->antialias ? triangle(e, columns) : linear(e, columns);
  Name down = EMIT(m, "Unsqueeze", p->antialias ? triangle(e, rows) : linear(e, rows), one);
  across = EMIT(m, "Unsqueeze", EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1)), across), one);
  x = EMIT(m, "MatMul", emit_cast(e, x, p->antialias ? ONNX_DOUBLE : ONNX_FLOAT), across);
  if (!p->antialias) return EMIT(m, "MatMul", down, x);
  return emit_cast(e, byte_of(e, EMIT(m, "MatMul", down, byte_of(e, x))), ONNX_FLOAT);
}

Name emit_normalised(Emit *e, const Preprocess *p, Name x, int channels) {
  OnnxModel *m = &e->m;
  const int64_t dims[] = {channels, 1, 1};
  Name mean = onnx_tensor(m, onnx_name(m, "mean"), ONNX_FLOAT, 3, dims, p->mean);
  Name std = onnx_tensor(m, onnx_name(m, "std"), ONNX_FLOAT, 3, dims, p->std);
  return EMIT(m, "Div", EMIT(m, "Sub", EMIT(m, "Div", x, onnx_float(m, p->unit)), mean), std);
}

// 1 where there is picture, 0 in the padding: float [n, 1, out, out].
static Name covered(Emit *e, const EmitAxis *rows, const EmitAxis *columns) {
  OnnxModel *m = &e->m;
  Name column = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1)), columns->out);
  Name inside = EMIT(m, "And", EMIT(m, "Less", rows->out, rows->to), EMIT(m, "Less", column, columns->to));
  return EMIT(m, "Unsqueeze", emit_cast(e, inside, ONNX_FLOAT), INTS(m, 1));
}

// float [n, 2] of two columns [n].
static Name columns_of(Emit *e, Name a, Name b) {
  OnnxModel *m = &e->m;
  Name last = INTS(m, 1);
  return emit_cast(
      e,
      EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 1)), EMIT(m, "Unsqueeze", a, last), EMIT(m, "Unsqueeze", b, last)),
      ONNX_FLOAT);
}

static Name canvas_side(Emit *e, Name sides) { // int64 [1]
  OnnxModel *m = &e->m;
  Name longest = EMIT_WITH(m, "ReduceMax", ATTRS(attr_int("keepdims", 1)), sides, INTS(m, 0));
  return emit_padded_to(e, emit_cast(e, longest, ONNX_INT64), MULTIPLE);
}

static void picture_input(Emit *e, const Preprocess *p, const Tensor *y) {
  OnnxModel *m = &e->m;
  onnx_input(m, "images", ONNX_UINT8, "N,H,W,3", "RGB as decoded; anything beside and below each picture");
  onnx_input(m, "sizes", ONNX_INT64, "N,2", "height and width of each picture, without what stands beside and below");
  Name sizes = emit_cast(e, checked_sizes(e, 1), ONNX_DOUBLE), h = emit_side(e, sizes, 0), w = emit_side(e, sizes, 1),
       rh, rw;
  resized(e, h, w, &rh, &rw);
  e->sizes = columns_of(e, rh, rw);
  Name ratio = columns_of(e, EMIT(m, "Div", w, rw), EMIT(m, "Div", h, rh));
  e->ratio = EMIT(m, "Unsqueeze", EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 1)), ratio, ratio), INTS(m, 1));
  Name high = canvas_side(e, rh), wide = canvas_side(e, rw);
  e->canvas = EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 0)), high, wide);
  const EmitAxis rows = axis_of(e, h, rh, emit_shape(e, "images", 1, 2), high);
  const EmitAxis columns = axis_of(e, w, rw, emit_shape(e, "images", 2, 3), wide);
  Name x = resampled(e, p, EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 3, 1, 2)), "images"), &rows, &columns);
  x = emit_normalised(e, p, emit_ordered(e, p, x), 3);
  emit_bind(e, y, EMIT(m, "Mul", x, covered(e, &rows, &columns)));
}

void emit_preprocess(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes, const Tensor *y) {
  (void)images;
  (void)bytes;
  Emit *e = emit_of(dev);
  (e->bytes ? picture_input : normalised_input)(e, p, y);
}
