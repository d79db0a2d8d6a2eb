#include "models/torchvision.h"
#include <math.h>
#include <string.h>
#include "classification/nets/torchvision_classifier.h"

// ---- names ------------------------------------------------------------------------------------------------------

// What version 2 of torchvision's modules renamed (their _load_from_state_dict): '#' is a digit, less by `first` in the
// new name; weight or bias follows.
static const struct {
  const char *was, *is;
  int first;
} renamed[] = {{"backbone.fpn.inner_blocks.#.", "backbone.fpn.inner_blocks.#.0.", 0},
               {"backbone.fpn.layer_blocks.#.", "backbone.fpn.layer_blocks.#.0.", 0},
               {"rpn.head.conv.", "rpn.head.conv.0.0.", 0},
               {"roi_heads.mask_head.mask_fcn#.", "roi_heads.mask_head.#.0.", 1}};

// What follows the pattern in the name, NULL where it does not match.
static const char *match(const char *name, const char *pattern, char *digit) {
  for (; *pattern; pattern++, name++) {
    if (*pattern == '#' && *name >= '0' && *name <= '9')
      *digit = *name;
    else if (*pattern != *name)
      return NULL;
  }
  return name;
}

static void rename_older(const char *name, char to[CKPT_MAX_NAME]) {
  snprintf(to, CKPT_MAX_NAME, "%s", name);
  for (int i = 0; i < COUNT(renamed); i++) {
    char digit = 0;
    const char *rest = match(name, renamed[i].was, &digit);
    if (!rest || (strcmp(rest, "weight") && strcmp(rest, "bias"))) continue;
    snprintf(to, CKPT_MAX_NAME, "%s%s", renamed[i].is, rest);
    char *place = strchr(to, '#');
    if (place) *place = (char)(digit - renamed[i].first);
  }
}

static const char *without_module(const char *name) { return strncmp(name, "module.", 7) ? name : name + 7; }

static bool rename_detector(const char *name, char to[CKPT_MAX_NAME]) {
  rename_older(without_module(name), to);
  return true;
}

static bool rename_classifier(const char *name, char to[CKPT_MAX_NAME]) {
  name = without_module(name);
  snprintf(to, CKPT_MAX_NAME, "backbone.body.%s", name);
  return strncmp(name, "fc.", 3) != 0;
}

bool torchvision_rename(Checkpoint *c, const char *path, Err *err) {
  bool classifier = ckpt_find(c, "layer1.0.conv1.weight") || ckpt_find(c, "module.layer1.0.conv1.weight");
  if (ckpt_find(c, "fc.weight") || ckpt_find(c, "module.fc.weight")) classifier = false; // its names are ours
  return ckpt_rename(c, classifier ? rename_classifier : rename_detector, path, err);
}

// ---- configuration ----------------------------------------------------------------------------------------------

WeightsKind torchvision_kind(const Checkpoint *c) {
  if (torchvision_classifies(c)) return WEIGHTS_CLASSIFIER;
  if (!ckpt_find(c, "backbone.body.conv1.weight")) return WEIGHTS_UNKNOWN;
  return ckpt_find(c, "backbone.fpn.inner_blocks.0.0.weight") ? WEIGHTS_DETECTOR : WEIGHTS_BACKBONE;
}

static void infer_norm(const Checkpoint *c, ModelConfig *config) {
  bool batch = ckpt_find(c, "backbone.body.bn1.running_mean") != NULL;
  bool detector = torchvision_kind(c) == WEIGHTS_DETECTOR;
  bool tracked = ckpt_find(c, "backbone.body.bn1.num_batches_tracked") != NULL; // FrozenBatchNorm2d has none
  config->norm = !batch ? NORM_GN : detector && tracked ? NORM_BN : NORM_FROZEN_BN;
  if (detector && config->norm == NORM_FROZEN_BN) config->norm_eps = 0; // torchvision's overwrite_eps(model, 0.0)
}

static void infer_heads(const Checkpoint *c, ModelConfig *config) {
  config->fpn_channels = torchvision_dim(c, "backbone.fpn.inner_blocks.0.0.weight", 0);
  config->box_dim = torchvision_dim(c, "roi_heads.box_head.fc6.weight", 0);
  config->box_pool = (int)sqrt(torchvision_dim(c, "roi_heads.box_head.fc6.weight", 1) / MAX(config->fpn_channels, 1));
  config->mask_dim = torchvision_dim(c, "roi_heads.mask_head.0.0.weight", 0);
  config->mask_layers = torchvision_count(c, "roi_heads.mask_head.%d.0.weight");
  config->classes = torchvision_dim(c, "roi_heads.box_predictor.cls_score.weight", 0);
}

bool torchvision_config(const Checkpoint *c, ModelConfig *config, Err *err) {
  WeightsKind kind = torchvision_kind(c);
  if (kind == WEIGHTS_CLASSIFIER) return torchvision_classifier_config(c, config, err);
  if (kind == WEIGHTS_UNKNOWN)
    return err_set(err,
                   "neither a Mask R-CNN nor a classification network of torchvision's that is known (no "
                   "backbone.body.conv1.weight, layer1.0.conv1.weight, features.0.weight or conv1.conv.weight with "
                   "what belongs to it); build/inspect lists what it holds");
  if (!config_init(config, DEFAULT_MODEL, err)) return false;
  config->depth = torchvision_depth(c, "backbone.body.");
  config->width = torchvision_dim(c, "backbone.body.conv1.weight", 0);
  if (!config->depth)
    return err_set(err, "its ResNet is none of ours (10, 18, 34, 50, 101, 152 layers; neither wide ones nor "
                        "ResNeXts); build/inspect lists what it holds");
  infer_norm(c, config);
  config->classes = 0;
  if (kind == WEIGHTS_BACKBONE) return true;
  static const char *const heads[] = {"roi_heads.box_head.fc6.weight", "roi_heads.box_predictor.cls_score.weight",
                                      "roi_heads.mask_predictor.mask_fcn_logits.weight"};
  for (int i = 0; i < COUNT(heads); i++)
    if (!ckpt_find(c, heads[i]))
      return err_set(err, "a detector, but no maskrcnn_resnet*_fpn of torchvision's: there is no %s in it", heads[i]);
  infer_heads(c, config);
  return config_check(config, err);
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

const char *torchvision_category(int classes, int label) { return classes == 91 ? coco[label - 1] : NULL; }
