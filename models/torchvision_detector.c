// Weights of torchvision's Faster and Mask R-CNN, and of ResNets that a detector can begin with.
#include <math.h>
#include <string.h>
#include "base/command.h"
#include "models/rcnn.h"
#include "models/torchvision.h"

// ---- configuration --------------------------------------------------------------------------------------------------

static bool holds_detector(const Checkpoint *c) {
  return ckpt_find(c, "backbone.body.conv1.weight") && ckpt_find(c, "backbone.fpn.inner_blocks.0.0.weight");
}

// Any tensor of a mask head: where others are missing, the file holds a Mask R-CNN that is not whole.
static bool has_mask_head(const Checkpoint *c) {
  static const char mask[] = "roi_heads.mask_";
  for (size_t i = 0; i < c->num_tensors; i++)
    if (!strncmp(c->tensors[i].name, mask, strlen(mask))) return true;
  return false;
}

static bool holds_maskrcnn(const Checkpoint *c) { return holds_detector(c) && has_mask_head(c); }
static bool holds_fasterrcnn(const Checkpoint *c) { return holds_detector(c) && !has_mask_head(c); }

static void infer_norm(const Checkpoint *c, ModelConfig *config) {
  bool batch = ckpt_find(c, "backbone.body.bn1.running_mean") != NULL;
  const bool detector = holds_detector(c);
  bool tracked = ckpt_find(c, "backbone.body.bn1.num_batches_tracked") != NULL; // FrozenBatchNorm2d has none
  config->norm = !batch ? NORM_GN : detector && tracked ? NORM_BN : NORM_FROZEN_BN;
  if (detector && config->norm == NORM_FROZEN_BN) config->norm_eps = 0; // torchvision's overwrite_eps(model, 0.0)
}

static void infer_heads(const Checkpoint *c, ModelConfig *config) {
  config->fpn_channels = torchvision_dim(c, "backbone.fpn.inner_blocks.0.0.weight", 0);
  config->box_dim = torchvision_dim(c, "roi_heads.box_head.fc6.weight", 0);
  config->box_pool = (int)sqrt(torchvision_dim(c, "roi_heads.box_head.fc6.weight", 1) / MAX(config->fpn_channels, 1));
  if (has_mask_head(c)) {
    config->mask_dim = torchvision_dim(c, "roi_heads.mask_head.0.0.weight", 0);
    config->mask_layers = torchvision_count(c, "roi_heads.mask_head.%d.0.weight");
  }
  config->classes = torchvision_dim(c, "roi_heads.box_predictor.cls_score.weight", 0);
}

// The names of tensors that say what the heads are; NULL at the end.
static bool check_heads(const Checkpoint *c, const char *model, const char *const *heads, Err *err) {
  for (; *heads; heads++)
    if (!ckpt_find(c, *heads))
      return err_set(err, "a detector, but not torchvision's %s_resnet*_fpn: the tensor %s is missing", model, *heads);
  return true;
}

// Of a detector or a mere backbone. The eps of frozen batch norm, which no tensor tells, is that of the published
// weights.
static bool configure(const Checkpoint *c, const char *variant, const char *const *heads, ModelConfig *config,
                      Err *err) {
  if (!config_init(config, variant, err)) return false;
  config->depth = torchvision_depth(c, "backbone.body.");
  config->width = torchvision_dim(c, "backbone.body.conv1.weight", 0);
  if (!config->depth)
    return err_set(err,
                   "its ResNet is not supported (only 10, 18, 34, 50, 101 or 152 layers; no wide ResNets or "
                   "ResNeXts); %s lists the tensors",
                   command_name("inspect"));
  infer_norm(c, config);
  config->classes = 0;
  if (!holds_detector(c)) return true;
  if (!check_heads(c, model_of(config)->name, heads, err)) return false;
  infer_heads(c, config);
  return config_check(config, err);
}

#define BOX_HEADS "roi_heads.box_head.fc6.weight", "roi_heads.box_predictor.cls_score.weight"

static bool configure_maskrcnn(const Checkpoint *c, ModelConfig *config, Err *err) {
  static const char *const heads[] = {BOX_HEADS, "roi_heads.mask_predictor.mask_fcn_logits.weight", NULL};
  return configure(c, DEFAULT_MODEL, heads, config, err);
}

static bool configure_fasterrcnn(const Checkpoint *c, ModelConfig *config, Err *err) {
  static const char *const heads[] = {BOX_HEADS, NULL};
  return configure(c, DEFAULT_WITHOUT_MASKS, heads, config, err);
}

bool detector_holds_backbone(const Checkpoint *c) { return torchvision_has_resnet(c) || torchvision_is_backbone(c); }

// The default detector on the ResNet of a classification network, whose batch norm it freezes.
bool detector_on_backbone(const Checkpoint *c, const ModelConfig *held, ModelConfig *config, Err *err) {
  if (!config_init(config, DEFAULT_MODEL, err)) return false;
  if (!torchvision_has_resnet(c))
    return err_set(err, "its model, %s, cannot be a detector's backbone; use a ResNet's weights", model_of(held)->name);
  config->depth = held->depth;
  config->width = held->width;
  config->norm = config_batch_norm(held) ? NORM_FROZEN_BN : held->norm;
  config->norm_groups = held->norm_groups;
  config->norm_eps = held->norm_eps;
  config->pixel_unit = held->pixel_unit;
  config->bgr = held->bgr;
  config->stride_in_1x1 = held->stride_in_1x1;
  memcpy(config->mean, held->mean, sizeof config->mean);
  memcpy(config->std, held->std, sizeof config->std);
  config->classes = 0;
  return true;
}

// ---- categories -------------------------------------------------------------------------------------------------

// COCO's ids, of which eleven have no category.
static const char *const coco[] = {
    "person",        "bicycle",       "car",          "motorcycle",     "airplane",     "bus",
    "train",         "truck",         "boat",         "traffic light",  "fire hydrant", "N/A",
    "stop sign",     "parking meter", "bench",        "bird",           "cat",          "dog",
    "horse",         "sheep",         "cow",          "elephant",       "bear",         "zebra",
    "giraffe",       "N/A",           "backpack",     "umbrella",       "N/A",          "N/A",
    "handbag",       "tie",           "suitcase",     "frisbee",        "skis",         "snowboard",
    "sports ball",   "kite",          "baseball bat", "baseball glove", "skateboard",   "surfboard",
    "tennis racket", "bottle",        "N/A",          "wine glass",     "cup",          "fork",
    "knife",         "spoon",         "bowl",         "banana",         "apple",        "sandwich",
    "orange",        "broccoli",      "carrot",       "hot dog",        "pizza",        "donut",
    "cake",          "chair",         "couch",        "potted plant",   "bed",          "N/A",
    "dining table",  "N/A",           "N/A",          "toilet",         "N/A",          "tv",
    "laptop",        "mouse",         "remote",       "keyboard",       "cell phone",   "microwave",
    "oven",          "toaster",       "sink",         "refrigerator",   "N/A",          "book",
    "clock",         "vase",          "scissors",     "teddy bear",     "hair drier",   "toothbrush"};
_Static_assert(COUNT(coco) == 90, "labels 1 … 90");

// torchvision's label is COCO's category id.
static const char *category(int classes, int label) { return classes == 91 ? coco[label - 1] : NULL; }

static void describe(const ModelConfig *c, char *text, size_t size) {
  if (c->classes)
    snprintf(text, size, "ResNet-%d, %s%s, %d classes", c->depth, norm_names[c->norm],
             c->norm == NORM_FROZEN_BN ? " with epsilon 0, as in the published weights" : "", c->classes);
  else
    snprintf(text, size, "ResNet-%d as backbone", c->depth);
}

const Published published_maskrcnn = {
    .holds = holds_maskrcnn, .configure = configure_maskrcnn, .category = category, .describe = describe};
const Published published_fasterrcnn = {
    .holds = holds_fasterrcnn, .configure = configure_fasterrcnn, .category = category, .describe = describe};
