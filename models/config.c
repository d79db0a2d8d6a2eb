#include "models/config.h"
#include <assert.h>
#include <float.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const norm_names[] = {"frozen-bn", "bn", "gn", NULL};
const char *const recipe_names[] = {"torchvision", "detectron2", "mlperf", NULL};
static const char *const resize_names[] = {"torchvision", "detectron2", "maskrcnn-benchmark", NULL};
static const char *const anchor_names[] = {"rounded", "exact", "legacy", NULL};
static const char *const mask_names[] = {"soft", "bitmap", "polygon", NULL};

// clang-format off
static const ModelConfig torchvision = {
    .size = 800, .max_size = 1333, .train_size_min = 800, .train_sizes = 1,
    .resize_rule = RESIZE_TORCHVISION, .antialias = false, .pixel_unit = 255, .bgr = false,
    .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f},
    .depth = 50, .width = 64, .norm = NORM_FROZEN_BN, .norm_groups = 32, .norm_eps = 1e-5f, .trainable_layers = 3,
    .fpn_channels = 256,
    .anchor_size = {32, 64, 128, 256, 512}, .anchor_ratio = {0.5f, 1, 2}, .anchor_kind = ANCHORS_ROUNDED,
    .anchor_grid_stride = true,
    .rpn_high = 0.7f, .rpn_low = 0.3f, .rpn_low_quality = true, .rpn_batch = 256, .rpn_positive = 0.5f,
    .rpn_pre_nms_train = 2000, .rpn_pre_nms_test = 1000, .rpn_post_nms_train = 2000, .rpn_post_nms_test = 1000,
    .rpn_nms = 0.7f, .rpn_min_size = 1e-3f, .rpn_min_score = 0, .rpn_beta = 1 / 9.f,
    .box_pool = 7, .box_dim = 1024, .roi_high = 0.5f, .roi_low = 0.5f, .roi_batch = 512, .roi_positive = 0.25f,
    .box_beta = 1 / 9.f, .box_weight = {10, 10, 5, 5}, .roi_sampling = 2, .roi_aligned = false, .roi_level_eps = 1e-6f,
    .roi_canonical_size = 224,
    .mask_pool = 14, .mask_dim = 256, .mask_layers = 4, .mask_source = MASK_SOFT,
    .min_score = 0.05f, .min_size = 1e-2f, .nms = 0.5f, .detections = 100,
    .classes = 91,
};
// clang-format on

// About 0.9 million parameters for images of 128 to 256 pixels on a CPU; everything scaled down by about four.
static void make_tiny(ModelConfig *c) {
  c->size = c->train_size_min = 128, c->max_size = 256;
  c->depth = 10, c->width = 24, c->norm = NORM_GN, c->norm_groups = 8, c->trainable_layers = 5;
  c->fpn_channels = 48;
  for (int i = 0; i < MAX_LEVELS; i++) c->anchor_size[i] = (float)(12 << i);
  c->rpn_batch = 128;
  c->rpn_pre_nms_train = c->rpn_pre_nms_test = 200, c->rpn_post_nms_train = 200, c->rpn_post_nms_test = 100;
  c->box_dim = 192, c->roi_batch = 48, c->roi_canonical_size = 56;
  c->mask_dim = 48, c->mask_layers = 2;
}

bool config_init(ModelConfig *c, const char *model, Err *err) {
  static const struct {
    const char *name;
    int depth;
  } models[] = {{"maskrcnn-r18-fpn", 18},
                {"maskrcnn-r34-fpn", 34},
                {"maskrcnn-r50-fpn", 50},
                {"maskrcnn-r101-fpn", 101},
                {"maskrcnn-r152-fpn", 152}};
  *c = torchvision;
  if (!strcmp(model, "tiny")) {
    make_tiny(c);
    return true;
  }
  for (int i = 0; i < COUNT(models); i++)
    if (!strcmp(model, models[i].name)) {
      c->depth = models[i].depth;
      return true;
    }
  return err_set(err, "--model %s: unknown; choose tiny or maskrcnn-r{18,34,50,101,152}-fpn", model);
}

void config_resize(ModelConfig *c, int size) {
  c->train_size_min = c->train_size_min * size / c->size;
  c->size = size;
  c->max_size = size * 5 / 3;
}

// ---- recipes ----------------------------------------------------------------------------------------------------

static void set_floats(float out[3], float a, float b, float c) { out[0] = a, out[1] = b, out[2] = c; }

// https://github.com/pytorch/vision, v0.26, maskrcnn_resnet50_fpn: what the table above has.
static void set_torchvision(ModelConfig *c) {
  const ModelConfig *t = &torchvision;
  c->train_size_min = c->size, c->train_sizes = t->train_sizes;
  c->resize_rule = t->resize_rule, c->antialias = t->antialias;
  c->pixel_unit = t->pixel_unit, c->bgr = t->bgr;
  memcpy(c->mean, t->mean, sizeof c->mean);
  memcpy(c->std, t->std, sizeof c->std);
  c->norm_eps = t->norm_eps;
  c->box_extra = t->box_extra;
  c->stride_in_1x1 = t->stride_in_1x1;
  c->anchor_kind = t->anchor_kind, c->anchor_grid_stride = t->anchor_grid_stride;
  c->rpn_inside = t->rpn_inside;
  c->rpn_post_nms_train = 2 * c->rpn_post_nms_test, c->rpn_post_nms_by_batch = t->rpn_post_nms_by_batch;
  c->rpn_min_size = t->rpn_min_size, c->rpn_beta = t->rpn_beta, c->rpn_loss_by_batch = t->rpn_loss_by_batch;
  c->box_beta = t->box_beta;
  c->roi_sampling = t->roi_sampling, c->roi_aligned = t->roi_aligned;
  c->roi_size_eps = t->roi_size_eps, c->roi_level_eps = t->roi_level_eps;
  c->mask_source = t->mask_source, c->mask_least_side = t->mask_least_side, c->mask_paste_exact = t->mask_paste_exact;
  c->min_size = t->min_size;
}

// What detectron2 and maskrcnn-benchmark share: the input of Caffe2's ResNets, whose stride is in the 1×1, and masks.
static void set_caffe2(ModelConfig *c) {
  c->antialias = true;
  c->pixel_unit = 1, c->bgr = true;
  set_floats(c->std, 1, 1, 1);
  c->stride_in_1x1 = true;
  c->anchor_grid_stride = false;
  c->rpn_post_nms_train = c->rpn_post_nms_test;
  c->roi_level_eps = 0;
  c->mask_source = MASK_POLYGON;
  c->min_size = 0;
}

// https://github.com/facebookresearch/detectron2, configs/Base-RCNN-FPN.yaml over its defaults.
static void set_detectron2(ModelConfig *c) {
  set_caffe2(c);
  c->train_size_min = c->size * 4 / 5, c->train_sizes = 6; // 640, 672, … 800
  c->resize_rule = RESIZE_DETECTRON2;
  set_floats(c->mean, 103.53f, 116.28f, 123.675f);
  c->anchor_kind = ANCHORS_EXACT;
  c->rpn_min_size = FLT_MIN; // any side at all
  c->rpn_beta = c->box_beta = 0;
  c->rpn_loss_by_batch = true;
  c->roi_sampling = 0, c->roi_aligned = true;
  c->roi_size_eps = 1e-8f;
  c->mask_least_side = 0.1f;
  c->mask_paste_exact = true;
}

// https://github.com/mlcommons/training, maskrcnn/pytorch, configs/e2e_mask_rcnn_R_50_FPN_1x.yaml over its defaults.
// Boxes are Detectron's, whose corners are pixels; its frozen batch norm adds nothing to the variance.
static void set_mlperf(ModelConfig *c) {
  set_caffe2(c);
  c->resize_rule = RESIZE_BENCHMARK;
  set_floats(c->mean, 102.9801f, 115.9465f, 122.7717f);
  if (c->norm == NORM_FROZEN_BN) c->norm_eps = 0;
  c->box_extra = 1;
  c->anchor_kind = ANCHORS_LEGACY;
  c->rpn_inside = true;
  c->rpn_post_nms_by_batch = true;
  c->rpn_min_size = 0;
  c->box_beta = 1;
  c->roi_size_eps = 1e-6f;
  c->mask_least_side = 1;
}

void config_recipe(ModelConfig *c, Recipe recipe) {
  set_torchvision(c);
  if (recipe == RECIPE_DETECTRON2) set_detectron2(c);
  if (recipe == RECIPE_MLPERF) set_mlperf(c);
}

// ---- fields as text ---------------------------------------------------------------------------------------------

typedef enum FieldType { FIELD_INT, FIELD_BOOL, FIELD_FLOAT, FIELD_ENUM } FieldType;
typedef struct Field {
  const char *name;
  FieldType type;
  size_t offset;
  int count;
  const char *const *names; // FIELD_ENUM: of its values
} Field;
#define FIELD(name, type)                                                                                              \
  { #name, type, offsetof(ModelConfig, name), 1, NULL }
#define FLOATS(name, n)                                                                                                \
  { #name, FIELD_FLOAT, offsetof(ModelConfig, name), n, NULL }
#define ENUM(name, names)                                                                                              \
  { #name, FIELD_ENUM, offsetof(ModelConfig, name), 1, names }
static_assert(sizeof(NormKind) == sizeof(int) && sizeof(ResizeRule) == sizeof(int), "enums are read and set as int");
static const Field fields[] = {
    FIELD(size, FIELD_INT),
    FIELD(max_size, FIELD_INT),
    FIELD(train_size_min, FIELD_INT),
    FIELD(train_sizes, FIELD_INT),
    ENUM(resize_rule, resize_names),
    FIELD(antialias, FIELD_BOOL),
    FIELD(pixel_unit, FIELD_FLOAT),
    FIELD(bgr, FIELD_BOOL),
    FLOATS(mean, 3),
    FLOATS(std, 3),
    FIELD(box_extra, FIELD_FLOAT),
    FIELD(depth, FIELD_INT),
    FIELD(width, FIELD_INT),
    ENUM(norm, norm_names),
    FIELD(norm_groups, FIELD_INT),
    FIELD(norm_eps, FIELD_FLOAT),
    FIELD(trainable_layers, FIELD_INT),
    FIELD(stride_in_1x1, FIELD_BOOL),
    FIELD(fpn_channels, FIELD_INT),
    FLOATS(anchor_size, MAX_LEVELS),
    FLOATS(anchor_ratio, 3),
    ENUM(anchor_kind, anchor_names),
    FIELD(anchor_grid_stride, FIELD_BOOL),
    FIELD(rpn_high, FIELD_FLOAT),
    FIELD(rpn_low, FIELD_FLOAT),
    FIELD(rpn_low_quality, FIELD_BOOL),
    FIELD(rpn_inside, FIELD_BOOL),
    FIELD(rpn_batch, FIELD_INT),
    FIELD(rpn_positive, FIELD_FLOAT),
    FIELD(rpn_pre_nms_train, FIELD_INT),
    FIELD(rpn_pre_nms_test, FIELD_INT),
    FIELD(rpn_post_nms_train, FIELD_INT),
    FIELD(rpn_post_nms_test, FIELD_INT),
    FIELD(rpn_post_nms_by_batch, FIELD_BOOL),
    FIELD(rpn_nms, FIELD_FLOAT),
    FIELD(rpn_min_size, FIELD_FLOAT),
    FIELD(rpn_min_score, FIELD_FLOAT),
    FIELD(rpn_beta, FIELD_FLOAT),
    FIELD(rpn_loss_by_batch, FIELD_BOOL),
    FIELD(box_pool, FIELD_INT),
    FIELD(box_dim, FIELD_INT),
    FIELD(roi_high, FIELD_FLOAT),
    FIELD(roi_low, FIELD_FLOAT),
    FIELD(roi_batch, FIELD_INT),
    FIELD(roi_positive, FIELD_FLOAT),
    FIELD(box_beta, FIELD_FLOAT),
    FLOATS(box_weight, 4),
    FIELD(roi_sampling, FIELD_INT),
    FIELD(roi_aligned, FIELD_BOOL),
    FIELD(roi_size_eps, FIELD_FLOAT),
    FIELD(roi_level_eps, FIELD_FLOAT),
    FIELD(roi_canonical_size, FIELD_FLOAT),
    FIELD(mask_pool, FIELD_INT),
    FIELD(mask_dim, FIELD_INT),
    FIELD(mask_layers, FIELD_INT),
    ENUM(mask_source, mask_names),
    FIELD(mask_least_side, FIELD_FLOAT),
    FIELD(mask_paste_exact, FIELD_BOOL),
    FIELD(min_score, FIELD_FLOAT),
    FIELD(min_size, FIELD_FLOAT),
    FIELD(nms, FIELD_FLOAT),
    FIELD(detections, FIELD_INT),
    FIELD(classes, FIELD_INT),
};

int config_fields(void) { return COUNT(fields); }
const char *config_field_name(int field) { return fields[field].name; }

void config_get(const ModelConfig *c, int field, char *text, size_t size) {
  const Field *f = &fields[field];
  const char *p = (const char *)c + f->offset;
  switch (f->type) {
  case FIELD_INT: snprintf(text, size, "%d", *(const int *)p); break;
  case FIELD_BOOL: snprintf(text, size, "%d", *(const bool *)p); break;
  case FIELD_ENUM: snprintf(text, size, "%s", f->names[*(const int *)p]); break;
  case FIELD_FLOAT:
    for (size_t i = 0, used = 0; i < (size_t)f->count && used < size; i++)
      used += (size_t)snprintf(text + used, size - used, i ? ",%.9g" : "%.9g", (double)((const float *)p)[i]);
  }
}

static bool parse_floats(float *out, int count, const char *text) {
  for (int i = 0; i < count; i++) {
    char *end;
    out[i] = strtof(text, &end);
    if (end == text || *end != (i + 1 < count ? ',' : '\0')) return false;
    text = end + 1;
  }
  return true;
}

bool config_set(ModelConfig *c, const char *name, const char *text, Err *err) {
  for (int i = 0; i < COUNT(fields); i++) {
    const Field *f = &fields[i];
    if (strcmp(f->name, name)) continue;
    char *p = (char *)c + f->offset, *end;
    long value = strtol(text, &end, 10);
    bool whole = end != text && !*end && value >= 0 && value <= INT32_MAX;
    switch (f->type) {
    case FIELD_INT:
      if (whole) *(int *)p = (int)value;
      break;
    case FIELD_BOOL:
      whole = whole && value <= 1;
      if (whole) *(bool *)p = value != 0;
      break;
    case FIELD_ENUM:
      for (whole = false, value = 0; f->names[value] && !whole; value++)
        if ((whole = !strcmp(f->names[value], text))) *(int *)p = (int)value;
      break;
    case FIELD_FLOAT: whole = parse_floats((float *)p, f->count, text); break;
    }
    return whole || err_set(err, "model configuration: %s = '%s' is not usable", name, text);
  }
  return err_set(err, "model configuration: unknown field '%s'", name);
}

bool config_check(const ModelConfig *c, Err *err) {
  const struct {
    const char *name;
    int value, low, high;
  } ranges[] = {{"size", c->size, 32, 8192},
                {"max_size", c->max_size, c->size, 16384},
                {"train_size_min", c->train_size_min, 1, c->train_sizes > 1 ? c->size : 8192}, // unused for one size
                {"train_sizes", c->train_sizes, 1, 1000},
                {"width", c->width, 1, 512},
                {"norm_groups", c->norm_groups, 1, 512},
                {"trainable_layers", c->trainable_layers, 0, 5},
                {"fpn_channels", c->fpn_channels, 1, 2048},
                {"rpn_batch", c->rpn_batch, 1, 65536},
                {"rpn_pre_nms_train", c->rpn_pre_nms_train, 1, 65536},
                {"rpn_pre_nms_test", c->rpn_pre_nms_test, 1, 65536},
                {"rpn_post_nms_train", c->rpn_post_nms_train, 1, 65536},
                {"rpn_post_nms_test", c->rpn_post_nms_test, 1, 65536},
                {"box_pool", c->box_pool, 1, 64},
                {"box_dim", c->box_dim, 1, 16384},
                {"roi_batch", c->roi_batch, 1, 65536},
                {"roi_sampling", c->roi_sampling, 0, 16},
                {"mask_pool", c->mask_pool, 1, 128},
                {"mask_dim", c->mask_dim, 1, 2048},
                {"mask_layers", c->mask_layers, 1, 16},
                {"detections", c->detections, 1, 10000},
                {"classes", c->classes, 2, 65536}};
  for (int i = 0; i < COUNT(ranges); i++)
    if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
      return err_set(err, "model configuration: %s = %d is outside %d … %d", ranges[i].name, ranges[i].value,
                     ranges[i].low, ranges[i].high);
  static const int depths[] = {10, 18, 34, 50, 101, 152};
  bool known = false;
  for (int i = 0; i < COUNT(depths); i++) known |= depths[i] == c->depth;
  if (!known) return err_set(err, "model configuration: there is no ResNet-%d", c->depth);
  if (c->anchor_kind == ANCHORS_LEGACY && c->anchor_grid_stride)
    return err_set(err, "model configuration: legacy anchors have fixed strides, not anchor_grid_stride = 1");
  if (c->mask_source == MASK_POLYGON && c->mask_pool > 32)
    return err_set(err, "model configuration: mask_pool = %d is above 32, which polygons allow", c->mask_pool);
  if (c->mask_source == MASK_POLYGON && !(c->mask_least_side > 0))
    return err_set(err, "model configuration: mask_least_side must be above 0");
  if (c->box_extra != 0 && c->box_extra != 1)
    return err_set(err, "model configuration: box_extra = %g is neither 0 nor 1", (double)c->box_extra);
  if (!(c->pixel_unit > 0)) return err_set(err, "model configuration: pixel_unit must be above 0");
  if (c->norm == NORM_GN && c->width % c->norm_groups)
    return err_set(err, "model configuration: width %d does not divide into %d groups", c->width, c->norm_groups);
  return true;
}
