// A classifier's inputs: what the network reads, or pictures as they are decoded, of which it sees the middle.
#include "exact/affine.h"
#include "onnx/emit.h"

static void normalised_input(Emit *e, const Preprocess *p, const Tensor *y) {
  char dims[64];
  const int size = e->network->config.size;
  if (e->any_size)
    snprintf(dims, sizeof dims, "N,%d,H,W", y->c);
  else
    snprintf(dims, sizeof dims, "N,%d,%d,%d", y->c, size, size);
  onnx_input(&e->m, "images", ONNX_FLOAT, dims, y->c == 1 ? "brightness, normalised" : "RGB, normalised");
  emit_bind(e, y, emit_ordered(e, p, "images"));
}

// Luminance as Pillow rounds it (exact/affine.h): x float [n, 3, h, w] of whole numbers.
static Name luminance(Emit *e, Name x) {
  OnnxModel *m = &e->m;
  const float weights[] = {19595, 38470, 7471}, half = 0x8000;
  Name filter = onnx_tensor(m, onnx_name(m, "luminance"), ONNX_FLOAT, 4, (int64_t[]){1, 3, 1, 1}, weights);
  Name bias = onnx_tensor(m, onnx_name(m, "luminance.half"), ONNX_FLOAT, 1, (int64_t[]){1}, &half);
  return EMIT(m, "Floor", EMIT(m, "Div", EMIT(m, "Conv", x, filter, bias), onnx_float(m, 0x10000)));
}

// [n, size, extent]: the weight of an axis's pixels in each of the canvas's; preprocess_affine without rotation.
// scale, from: float [n], the picture's pixels per canvas pixel and before the first; samples: float [n], per pixel.
static Name view_weights(Emit *e, Name scale, Name from, Name samples, Name extent) {
  OnnxModel *m = &e->m;
  const int size = e->network->config.size;
  Name axes = INTS(m, 1, 2, 3), half = onnx_float(m, 0.5f), one = onnx_float(m, 1), zero = onnx_float(m, 0);
  Name sample = EMIT(m, "Unsqueeze", emit_range(e, INTS(m, AFFINE_MOST_SAMPLES), ONNX_FLOAT), INTS(m, 0, 1, 3));
  Name canvas = EMIT(m, "Unsqueeze", emit_range(e, INTS(m, size), ONNX_FLOAT), INTS(m, 0, 2, 3));
  Name pixel = EMIT(m, "Unsqueeze", emit_range(e, extent, ONNX_FLOAT), INTS(m, 0, 1, 2));
  Name count = EMIT(m, "Unsqueeze", samples, axes);
  Name at = EMIT(m, "Add", canvas, EMIT(m, "Div", EMIT(m, "Add", sample, half), count));
  at = EMIT(m, "Add", EMIT(m, "Mul", EMIT(m, "Unsqueeze", scale, axes), at), EMIT(m, "Unsqueeze", from, axes));
  Name off = EMIT(m, "Abs", EMIT(m, "Sub", EMIT(m, "Sub", at, half), pixel));
  Name weight = EMIT(m, "Max", EMIT(m, "Sub", one, off), zero);
  weight = EMIT(m, "Where", EMIT(m, "Less", sample, count), weight, zero);
  Name sum = EMIT_WITH(m, "ReduceSum", ATTRS(attr_int("keepdims", 0)), weight, INTS(m, 2));
  return EMIT(m, "Div", sum, EMIT(m, "Unsqueeze", samples, INTS(m, 1, 2)));
}

// The picture's pixels before the window that the canvas shows, float [n].
static Name window_begin(Emit *e, Name side, Name scale) {
  OnnxModel *m = &e->m;
  Name window = EMIT(m, "Mul", scale, onnx_double(m, e->network->config.size));
  return emit_cast(e, EMIT(m, "Mul", EMIT(m, "Sub", side, window), onnx_double(m, 0.5)), ONNX_FLOAT);
}

static void picture_input(Emit *e, const Preprocess *p, const Tensor *y) {
  OnnxModel *m = &e->m;
  const ModelConfig *c = &e->network->config;
  onnx_input(m, "images", ONNX_UINT8, "N,H,W,3", "RGB as decoded; zeros beside and below each picture");
  onnx_input(m, "sizes", ONNX_INT64, "N,2", "height and width of each picture, without what stands beside and below");
  Name sizes = emit_cast(e, "sizes", ONNX_DOUBLE), h = emit_side(e, sizes, 0), w = emit_side(e, sizes, 1);
  Name scale = EMIT(m, "Div", EMIT(m, "Min", h, w), onnx_double(m, c->size));
  scale = EMIT(m, "Mul", scale, onnx_double(m, (double)c->view));
  Name step = emit_cast(e, scale, ONNX_FLOAT), samples = onnx_float(m, 1);
  if (p->antialias) samples = EMIT(m, "Floor", EMIT(m, "Add", step, onnx_float(m, 0.75f)));
  samples = EMIT(m, "Min", EMIT(m, "Max", samples, onnx_float(m, 1)), onnx_float(m, AFFINE_MOST_SAMPLES));
  samples = EMIT(m, "Expand", samples, emit_shape(e, step, 0, 1));
  Name x = EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 3, 1, 2)), emit_cast(e, "images", ONNX_FLOAT));
  if (y->c == 1) x = luminance(e, x);
  Name down = view_weights(e, step, window_begin(e, h, scale), samples, emit_shape(e, "images", 1, 2));
  Name across = view_weights(e, step, window_begin(e, w, scale), samples, emit_shape(e, "images", 2, 3));
  across = EMIT(m, "Unsqueeze", EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 0, 2, 1)), across), INTS(m, 1));
  x = EMIT(m, "MatMul", EMIT(m, "Unsqueeze", down, INTS(m, 1)), EMIT(m, "MatMul", x, across));
  emit_bind(e, y, emit_normalised(e, p, y->c == 1 ? x : emit_ordered(e, p, x), y->c));
}

void emit_preprocess_affine(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                            const Tensor *y) {
  (void)images;
  (void)bytes;
  Emit *e = emit_of(dev);
  (e->bytes ? picture_input : normalised_input)(e, p, y);
}
