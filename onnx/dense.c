// Convolutions, norms, pooling: the ops of the contract's first part.
#include <stdlib.h>
#include "base/alloc.h"
#include "onnx/emit.h"

// A filter bank [k, r, s, c] in torch's order, [k, c, r, s]; flat: [k, c·r·s].
static Name filter(Emit *e, const Tensor *w, bool flat) {
  float *values = xmalloc((size_t)w->n * (size_t)w->c * (size_t)w->h * (size_t)w->w * sizeof *values), *to = values;
  for (int k = 0; k < w->n; k++)
    for (int c = 0; c < w->c; c++)
      for (int r = 0; r < w->h; r++)
        for (int s = 0; s < w->w; s++)
          *to++ = ((const float *)
                       w->data)[(((size_t)k * (size_t)w->h + (size_t)r) * (size_t)w->w + (size_t)s) * (size_t)w->ldc +
                                (size_t)c];
  const int64_t dims[] = {w->n, w->c, w->h, w->w}, rows[] = {w->n, (int64_t)w->c * w->h * w->w};
  Name name = onnx_tensor(&e->m, onnx_name(&e->m, "%s.weight", e->node->name), ONNX_FLOAT, flat ? 2 : 4,
                          flat ? rows : dims, values);
  free(values);
  return name;
}

static Name vector(Emit *e, const char *what, const void *values, int n) {
  return onnx_tensor(&e->m, onnx_name(&e->m, "%s.%s", e->node->name, what), ONNX_FLOAT, 1, (int64_t[]){n}, values);
}

// Whether the node's filter is torch's [k, c·r·s].
static bool is_connected(const Emit *e) { return e->node->use[0].p->ndim == 2; }

void emit_conv_forward(Device *dev, const Conv *conv, int pairs, const Tensor *x, const Tensor *w, const Dest *y) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  const bool flat = is_connected(e);
  Name weight = filter(e, w, flat), bias = y[0].bias ? vector(e, "bias", y[0].bias, w->n) : "";
  for (int i = 0; i < pairs; i++) {
    Name from = emit_value(e, &x[i]), to;
    if (flat)
      to = EMIT_WITH(m, "Gemm", ATTRS(attr_int("transB", 1)), EMIT_WITH(m, "Flatten", ATTRS(attr_int("axis", 1)), from),
                     weight, bias);
    else
      to = EMIT_WITH(m, "Conv",
                     ATTRS(ATTR_INTS("kernel_shape", w->h, w->w), ATTR_INTS("strides", conv->stride, conv->stride),
                           ATTR_INTS("pads", conv->pad, conv->pad, conv->pad, conv->pad)),
                     from, weight, bias);
    emit_dest(e, &y[i], to);
  }
}

void emit_conv_dgrad(Device *dev, const Conv *conv, int pairs, const Tensor *dy, const Tensor *w, const Dest *dx) {
  Emit *e = emit_of(dev);
  CHECK(pairs == 1 && conv->pad == 0);
  Name weight = filter(e, w, false), bias = dx->bias ? vector(e, "bias", dx->bias, w->c) : "";
  emit_dest(e, dx,
            EMIT_WITH(&e->m, "ConvTranspose",
                      ATTRS(ATTR_INTS("kernel_shape", w->h, w->w), ATTR_INTS("strides", conv->stride, conv->stride)),
                      emit_value(e, dy), weight, bias));
}

// ---- norms ----------------------------------------------------------------------------------------------------------

static Name mean_over(Emit *e, Name x, int axis) {
  return EMIT_WITH(&e->m, "ReduceMean", ATTRS(attr_int("keepdims", 1)), x, INTS(&e->m, axis));
}

// The mean of each group, of x [n, groups, rows, w]: of rows first, so that no sum in float is long.
static Name group_mean(Emit *e, Name x) { return mean_over(e, mean_over(e, x, 3), 2); }

// Not the operators GroupNormalization and InstanceNormalization: over large maps onnxruntime's lose digits.
void emit_group_norm(Device *dev, int groups, float eps, const Tensor *x, const void *gamma, const void *beta,
                     void *stats, const Dest *y) {
  Emit *e = emit_of(dev);
  OnnxModel *m = &e->m;
  (void)stats;
  const int64_t dims[] = {x->c, 1, 1}, by_group[] = {groups, x->c / groups, 1, 1};
  Name from = emit_value(e, x);
  Name shape = EMIT_WITH(m, "Concat", ATTRS(attr_int("axis", 0)), INTS(m, 0, groups, -1), emit_shape(e, from, 3, 4));
  Name grouped = EMIT(m, "Reshape", from, shape);
  Name off = EMIT(m, "Sub", grouped, group_mean(e, grouped)), variance = group_mean(e, EMIT(m, "Mul", off, off));
  Name deviation = EMIT(m, "Sqrt", EMIT(m, "Add", variance, onnx_float(m, eps))); // [n, groups, 1, 1]
  Name weight = onnx_tensor(m, onnx_name(m, "%s.weight", e->node->name), ONNX_FLOAT, 4, by_group, gamma);
  Name scale = EMIT(m, "Div", weight, EMIT(m, "Unsqueeze", deviation, INTS(m, 2))); // [n, groups, c / groups, 1, 1]
  scale = EMIT(m, "Reshape", scale, INTS(m, 0, x->c, 1, 1));
  Name shift = onnx_tensor(m, onnx_name(m, "%s.bias", e->node->name), ONNX_FLOAT, 3, dims, beta);
  Name whole = EMIT(m, "Reshape", off, emit_shape(e, from, 0, 4));
  emit_dest(e, y, EMIT(m, "Add", EMIT(m, "Mul", whole, scale), shift));
}

void emit_batch_norm(Device *dev, float eps, const Tensor *x, const void *gamma, const void *beta, const void *mean,
                     const void *var, void *stats, const Dest *y) {
  Emit *e = emit_of(dev);
  (void)stats;
  emit_dest(e, y,
            EMIT_WITH(&e->m, "BatchNormalization", ATTRS(attr_float("epsilon", eps)), emit_value(e, x),
                      vector(e, "weight", gamma, x->c), vector(e, "bias", beta, x->c),
                      vector(e, "running_mean", mean, x->c), vector(e, "running_var", var, x->c)));
}

// ---- pooling, concatenation -----------------------------------------------------------------------------------------

void emit_max_pool(Device *dev, const Pool *pool, const Tensor *x, const Dest *y) {
  Emit *e = emit_of(dev);
  const bool ceil = y->t.h != pool_extent(pool, x->h, false) || y->t.w != pool_extent(pool, x->w, false);
  emit_dest(e, y,
            EMIT_WITH(&e->m, "MaxPool",
                      ATTRS(ATTR_INTS("kernel_shape", pool->size, pool->size),
                            ATTR_INTS("strides", pool->stride, pool->stride),
                            ATTR_INTS("pads", pool->pad, pool->pad, pool->pad, pool->pad), attr_int("ceil_mode", ceil)),
                      emit_value(e, x)));
}

// [o, extent]: row i has the mean of positions ⌊i·extent / o⌋ … ⌈(i + 1)·extent / o⌉ - 1.
static Name adaptive_windows(Emit *e, Name extent, int o) {
  OnnxModel *m = &e->m;
  Name row = EMIT(m, "Unsqueeze", emit_range(e, INTS(m, o), ONNX_INT64), INTS(m, 1)), windows = onnx_int(m, o);
  Name at = emit_range(e, extent, ONNX_INT64), one = onnx_int(m, 1);
  Name first = EMIT(m, "Div", EMIT(m, "Mul", row, extent), windows);
  Name beyond = EMIT(m, "Add", EMIT(m, "Mul", EMIT(m, "Add", row, one), extent), onnx_int(m, o - 1));
  Name end = EMIT(m, "Div", beyond, windows);
  Name inside = EMIT(m, "And", EMIT(m, "GreaterOrEqual", at, first), EMIT(m, "Less", at, end));
  return EMIT(m, "Div", emit_cast(e, inside, ONNX_FLOAT), emit_cast(e, EMIT(m, "Sub", end, first), ONNX_FLOAT));
}

static Name adaptive_means(Emit *e, Name x, int h, int w) {
  OnnxModel *m = &e->m;
  if (h == 1 && w == 1) return EMIT(m, "GlobalAveragePool", x);
  Name rows = adaptive_windows(e, emit_shape(e, x, 2, 3), h), columns = adaptive_windows(e, emit_shape(e, x, 3, 4), w);
  return EMIT(m, "MatMul", rows,
              EMIT(m, "MatMul", x, EMIT_WITH(m, "Transpose", ATTRS(ATTR_INTS("perm", 1, 0)), columns)));
}

void emit_avg_pool(Device *dev, const AvgPool *pool, const Tensor *x, const Dest *y) {
  Emit *e = emit_of(dev);
  const Pool *p = &pool->window;
  Name from = emit_value(e, x);
  if (!p->size) return emit_dest(e, y, adaptive_means(e, from, y->t.h, y->t.w));
  const bool ceil = y->t.h != pool_extent(p, x->h, false) || y->t.w != pool_extent(p, x->w, false);
  emit_dest(e, y,
            EMIT_WITH(&e->m, "AveragePool",
                      ATTRS(ATTR_INTS("kernel_shape", p->size, p->size), ATTR_INTS("strides", p->stride, p->stride),
                            ATTR_INTS("pads", p->pad, p->pad, p->pad, p->pad), attr_int("ceil_mode", ceil),
                            attr_int("count_include_pad", pool->count_pad)),
                      from));
}

void emit_concat(Device *dev, int parts, const Tensor *x, const Dest *y) {
  Emit *e = emit_of(dev);
  Name in[MAX_CONCAT + 1] = {NULL};
  for (int i = 0; i < parts; i++) in[i] = emit_value(e, &x[i]);
  emit_dest(e, y, onnx_node(&e->m, "Concat", ATTRS(attr_int("axis", 1)), in, 1, NULL));
}

void emit_class_probs(Device *dev, const Tensor *logits, const Tensor *probs) {
  Emit *e = emit_of(dev);
  Name from = emit_value(e, logits);
  onnx_alias(&e->m, from, "logits");
  emit_bind(e, probs, EMIT_WITH(&e->m, "Softmax", ATTRS(attr_int("axis", -1)), from));
}
