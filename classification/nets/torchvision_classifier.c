#include "classification/nets/torchvision_classifier.h"
#include <stdio.h>

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

// ---- which network ----------------------------------------------------------------------------------------------

// The tensors that tell a network: all of `has`, the first with windows of `taps`, and the one whose rows are the
// classes. VGGs differ in which is their last convolution; those with batch norm have it as features.1.
static const struct {
  const char *variant, *has[2], *head;
  int taps;
} known[] = {{"alexnet", {"features.0.weight", "features.10.weight"}, "classifier.6.weight", 11},
             {"vgg19", {"features.0.weight", "features.34.weight"}, "classifier.6.weight", 3},
             {"vgg16", {"features.0.weight", "features.28.weight"}, "classifier.6.weight", 3},
             {"vgg11", {"features.0.weight", "features.18.weight"}, "classifier.6.weight", 3},
             {"googlenet", {"conv1.conv.weight", "inception5b.branch4.1.conv.weight"}, "fc.weight", 7},
             {"resnet", {"conv1.weight", "layer1.0.conv1.weight"}, "fc.weight", 7}};
enum { RESNET = COUNT(known) - 1 };

static int find_known(const Checkpoint *c) {
  for (int i = 0; i < COUNT(known); i++) {
    const CkptTensor *last = ckpt_find(c, known[i].has[1]);
    if (known[i].taps == 3 && ckpt_find(c, "features.1.weight")) continue;
    if (last && last->ndim == 4 && ckpt_find(c, known[i].head) &&
        torchvision_dim(c, known[i].has[0], 2) == known[i].taps)
      return i;
  }
  return -1;
}

bool torchvision_classifies(const Checkpoint *c) { return find_known(c) >= 0; }

bool torchvision_has_resnet(const Checkpoint *c) { return ckpt_find(c, "layer1.0.conv1.weight") != NULL; }

bool torchvision_classifier_config(const Checkpoint *c, ModelConfig *config, Err *err) {
  const int i = find_known(c);
  char variant[32];
  if (i < 0) return err_set(err, "no classification network of torchvision's that is known");
  snprintf(variant, sizeof variant, "%s", known[i].variant);
  if (i == RESNET) snprintf(variant, sizeof variant, "resnet%d", torchvision_depth(c, ""));
  if (!config_init(config, variant, NULL))
    return err_set(err, "its ResNet is none of ours (18, 34, 50, 101, 152 layers; neither wide ones nor ResNeXts); "
                        "build/inspect lists what it holds");
  config->classes = torchvision_dim(c, known[i].head, 0);
  if (i == RESNET) config->width = torchvision_dim(c, "conv1.weight", 0);
  if (known[i].taps == 3) config->width = torchvision_dim(c, "features.0.weight", 0);
  if (i == RESNET && !ckpt_find(c, "bn1.running_mean")) config->norm = NORM_GN;
  if (torchvision_dim(c, "classifier.6.weight", 1)) config->dense = torchvision_dim(c, "classifier.6.weight", 1);
  if (ckpt_find(c, "inception3a.branch1.conv.weight")) {
    if (!ckpt_find(c, "aux1.fc1.weight")) config->aux_weight = 0;
    for (int k = 0; k < 3; k++) config->mean[k] = config->std[k] = 0.5f;
  }
  return config_check(config, err);
}
