// He et al., "Deep residual learning for image recognition", 2015.
#include "base/command.h"
#include "classification/nets/classifier.h"
#include "models/resnet.h"
#include "models/torchvision.h"

static void build(Network *n) {
  Graph *g = &n->graph;
  Value *stage[4], *image = classifier_image(n);
  g->part = "stages";
  resnet_build(g, &n->config, "", image, stage);
  g->part = "head";
  Value *x = layer_adaptive_avg_pool(g, "avgpool", stage[3], 1, 1);
  x = layer_dropout(g, "dropout", x, n->config.dropout);
  classifier_finish(
      n, layer_dense(g, "fc", x, &(Dense){.k = n->config.classes, .init = INIT_LINEAR, .bias_init = INIT_LINEAR}));
}

static void configure(ModelConfig *c) { classifier_defaults(c, 224); }

// ---- torchvision's weights ------------------------------------------------------------------------------------------

static const char head[] = "fc.weight";

static bool holds(const Checkpoint *c) { return classifier_held(c, "conv1.weight", 7, "layer1.0.conv1.weight", head); }

static bool configure_published(const Checkpoint *c, ModelConfig *config, Err *err) {
  char variant[32];
  snprintf(variant, sizeof variant, "resnet%d", torchvision_depth(c, ""));
  if (!classifier_config(c, variant, head, config, NULL))
    return err_set(err,
                   "its ResNet is not supported (only 18, 34, 50, 101 or 152 layers; no wide ResNets or "
                   "ResNeXts); %s lists the tensors",
                   command_name("inspect"));
  config->width = torchvision_dim(c, "conv1.weight", 0);
  if (!ckpt_find(c, "bn1.running_mean")) config->norm = NORM_GN;
  return config_check(config, err);
}

const Model model_resnet = {
    .name = "resnet",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER | MODEL_STAGES | MODEL_NORMS,
    .variants =
        (const Variant[]){
            {"resnet18", 18}, {"resnet34", 34}, {"resnet50", 50}, {"resnet101", 101}, {"resnet152", 152}, {NULL, 0}},
    .configure = configure,
    .least_size = 1,
    .build = build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"fc.", NULL},
    .backbone = "",
    .published = &(const Published){.holds = holds, .configure = configure_published},
    .learning = {CLASSIFIER_LEARNING, .rate = 0.1},
};
