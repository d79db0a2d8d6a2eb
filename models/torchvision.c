#include "models/torchvision.h"
#include <string.h>
#include "base/command.h"

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
    char *hash = strchr(to, '#');
    if (hash) *hash = (char)(digit - renamed[i].first);
  }
}

// Drops the names that PyTorch's wrappers give to the module that they wrap: a model, or a part of one.
static bool unwrap(const char *name, char to[CKPT_MAX_NAME]) {
  static const char *const wrappers[] = {"module.",     // DataParallel, DistributedDataParallel
                                         "_orig_mod."}; // torch.compile
  while (*name) {
    size_t part = strcspn(name, ".");
    if (name[part] == '.') part++;
    bool wraps = false;
    for (int i = 0; i < COUNT(wrappers); i++) wraps |= part == strlen(wrappers[i]) && !memcmp(name, wrappers[i], part);
    if (!wraps) {
      memcpy(to, name, part);
      to += part;
    }
    name += part;
  }
  *to = '\0';
  return true;
}

static bool rename_detector(const char *name, char to[CKPT_MAX_NAME]) {
  rename_older(name, to);
  return true;
}

static bool rename_classifier(const char *name, char to[CKPT_MAX_NAME]) {
  snprintf(to, CKPT_MAX_NAME, "backbone.body.%s", name);
  return strncmp(name, "fc.", 3) != 0;
}

bool torchvision_rename(Checkpoint *c, const char *path, Err *err) {
  if (!ckpt_rename(c, unwrap, path, err)) return false;
  bool classifier = ckpt_find(c, "layer1.0.conv1.weight");
  if (ckpt_find(c, "fc.weight")) classifier = false; // its names are ours
  return ckpt_rename(c, classifier ? rename_classifier : rename_detector, path, err);
}

// ---- what it is -----------------------------------------------------------------------------------------------------

const Model *torchvision_model(const Checkpoint *c) {
  for (int i = 0; models[i]; i++)
    if (models[i]->published && models[i]->published->holds(c)) return models[i];
  return NULL;
}

static bool has_backbone(const Checkpoint *c) { return ckpt_find(c, "backbone.body.conv1.weight") != NULL; }

bool torchvision_is_backbone(const Checkpoint *c) { return has_backbone(c) && !torchvision_model(c); }

bool torchvision_has_resnet(const Checkpoint *c) { return ckpt_find(c, "layer1.0.conv1.weight") != NULL; }

bool torchvision_config(const Checkpoint *c, ModelConfig *config, Err *err) {
  const Model *m = torchvision_model(c);
  if (m) return m->published->configure(c, config, err);
  if (!has_backbone(c))
    return err_set(err,
                   "not a Faster or Mask R-CNN or a supported classification network of torchvision (found no "
                   "backbone.body.conv1.weight, layer1.0.conv1.weight, features.0.weight or conv1.conv.weight "
                   "with the rest of its network); %s lists the tensors",
                   command_name("inspect"));
  return config_init(config, DEFAULT_MODEL, err) && model_of(config)->published->configure(c, config, err);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

int torchvision_dim(const Checkpoint *c, const char *name, int i) {
  const CkptTensor *t = ckpt_find(c, name);
  return t && i < t->ndim && t->dims[i] <= 1 << 20 ? (int)t->dims[i] : 0;
}

int torchvision_count(const Checkpoint *c, const char *format) {
  char name[CKPT_MAX_NAME];
  for (int n = 0;; n++) {
    snprintf(name, sizeof name, format, n);
    if (!ckpt_find(c, name)) return n;
  }
}

// Its first 3×3 convolution has as many channels as the stem: in a wide ResNet there are more, in a ResNeXt groups.
static bool is_plain(const Checkpoint *c, const char *prefix) {
  char stem[64], inner[64];
  snprintf(stem, sizeof stem, "%sconv1.weight", prefix);
  snprintf(inner, sizeof inner, "%slayer1.0.conv2.weight", prefix);
  const int width = torchvision_dim(c, stem, 0);
  return !ckpt_find(c, inner) || (torchvision_dim(c, inner, 0) == width && torchvision_dim(c, inner, 1) == width);
}

int torchvision_depth(const Checkpoint *c, const char *prefix) {
  static const struct {
    int depth, blocks;
  } bottleneck[] = {{50, 6}, {101, 23}, {152, 36}}, basic[] = {{10, 1}, {18, 2}, {34, 6}};
  char name[64];
  if (!is_plain(c, prefix)) return 0;
  snprintf(name, sizeof name, "%slayer1.0.conv3.weight", prefix);
  const bool three = ckpt_find(c, name) != NULL;
  snprintf(name, sizeof name, "%slayer3.%%d.conv1.weight", prefix);
  const int blocks = torchvision_count(c, name);
  for (int i = 0; i < COUNT(basic); i++) {
    if (three && bottleneck[i].blocks == blocks) return bottleneck[i].depth;
    if (!three && basic[i].blocks == blocks) return basic[i].depth;
  }
  return 0;
}
