// ModelConfig: everything that decides what a model computes, so that a checkpoint carries it and two implementations'
// conventions differ in nothing but these fields. Defaults are torchvision's maskrcnn_resnet50_fpn.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/util.h"
#include "nn/ops.h"

typedef enum NormKind { NORM_FROZEN_BN, NORM_BN, NORM_GN } NormKind;
extern const char *const norm_names[]; // "frozen-bn", "bn", "gn", NULL

// Whose conventions: torchvision's references, detectron2's Base-RCNN-FPN, MLPerf's maskrcnn-benchmark.
typedef enum Recipe { RECIPE_TORCHVISION, RECIPE_DETECTRON2, RECIPE_MLPERF } Recipe;
extern const char *const recipe_names[]; // "torchvision", "detectron2", "mlperf", NULL

typedef struct ModelConfig {
  // input
  int size, max_size; // shorter side; longer side at most
  // Training draws the shorter side from train_sizes values, evenly spaced from train_size_min to size.
  int train_size_min, train_sizes;
  ResizeRule resize_rule;
  bool antialias;        // resized as Pillow does it, rather than as PyTorch interpolates
  float pixel_unit;      // bytes are divided by this: 255, or 1
  bool bgr;              // the network's first channel is blue
  float mean[3], std[3]; // of its channels, in that unit
  float box_extra;       // what a width has beyond x2 - x1, see exact/geometry.h: 0 or 1
  // backbone
  int depth; // ResNet-10, 18, 34, 50, 101, 152 (10: one basic block a stage)
  int width; // channels of the first stage's 3×3 convolutions
  NormKind norm;
  int norm_groups; // group norm
  float norm_eps;
  int trainable_layers; // 0 … 5: layer4, layer3, layer2, layer1, stem, from the last
  bool stride_in_1x1;   // of the bottleneck (MSRA's weights) rather than in its 3×3
  int fpn_channels;
  // anchors
  float anchor_size[MAX_LEVELS]; // √area on P2 … P6, canvas pixels
  float anchor_ratio[3];         // height / width
  AnchorKind anchor_kind;
  bool anchor_grid_stride; // stride = canvas / grid (integer) rather than 4, 8, … 64
  // region proposals
  float rpn_high, rpn_low;
  bool rpn_low_quality;
  bool rpn_inside; // training ignores anchors that reach outside the image
  int rpn_batch;
  float rpn_positive;
  int rpn_pre_nms_train, rpn_pre_nms_test, rpn_post_nms_train, rpn_post_nms_test;
  bool rpn_post_nms_by_batch; // rpn_post_nms_train times the images, from all of them together
  float rpn_nms, rpn_min_size, rpn_min_score, rpn_beta;
  bool rpn_loss_by_batch; // divided by rpn_batch times the images, rather than by the anchors sampled
  // box head
  int box_pool, box_dim;
  float roi_high, roi_low;
  int roi_batch;
  float roi_positive, box_beta;
  float box_weight[4];
  int roi_sampling;
  bool roi_aligned;
  float roi_size_eps, roi_level_eps; // inside and outside of the logarithm
  float roi_canonical_size;          // a RoI of this √area reads P4
  // mask head
  int mask_pool, mask_dim, mask_layers;
  MaskSource mask_source;
  float mask_least_side; // of a box that polygons are drawn into, canvas pixels
  bool mask_paste_exact; // over the box as it is, rather than over whole pixels
  bool full_masks;       // benchmarks only, in no checkpoint: as many RoIs as the mask head has rows for
  // results
  float min_score, min_size, nms;
  int detections;
  // classes, background included: category[0] is label 1
  int classes;
} ModelConfig;

// "maskrcnn-r18-fpn", … r34, r50, r101, r152, or "tiny". false with a message that lists them.
bool config_init(ModelConfig *c, const char *model, Err *err);
// The shorter side becomes `size`, the longer 5/3 of it at most.
void config_resize(ModelConfig *c, int size);
// Sets every field in which the recipes differ; depends on c's size and norm. config_init's are torchvision's.
void config_recipe(ModelConfig *c, Recipe recipe);

// The fields by name, as text: what a checkpoint stores. config_set fails on unknown names and unusable values.
int config_fields(void);
const char *config_field_name(int field);
void config_get(const ModelConfig *c, int field, char *text, size_t size);
bool config_set(ModelConfig *c, const char *name, const char *text, Err *err);
bool config_check(const ModelConfig *c, Err *err); // ranges that the ops rely on
