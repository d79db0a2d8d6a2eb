// VGG: Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014.
#include "classification/nets/plain.h"
#include "models/torchvision.h"

enum { MAX_STAGES = 24 };

// Number of convolutions before each of the five pools.
static const struct {
  int depth, convs[5];
} vggs[] = {{11, {1, 1, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};

static int stages_of(const ModelConfig *c, PlainStage *to) {
  int n = 0;
  for (int i = 0; i < COUNT(vggs); i++)
    for (int block = 0; block < 5 && vggs[i].depth == c->depth; block++) {
      for (int conv = 0; conv < vggs[i].convs[block]; conv++)
        to[n++] = (PlainStage){c->width << MIN(block, 3), 3, 1, 1};
      to[n++] = (PlainStage){0, 2, 2, 0};
    }
  CHECK(n > 0 && n <= MAX_STAGES);
  return n;
}

static void build(Network *n) {
  const Plain p = {n, INIT_KAIMING_NORMAL, INIT_ZERO, INIT_NORMAL_001, INIT_ZERO};
  PlainStage stages[MAX_STAGES];
  const int count = stages_of(&n->config, stages);
  Value *x = plain_bins(&p, plain_features(&p, stages, count, classifier_image(n)), 7);
  n->graph.part = "classifier";
  x = plain_dropout(&p, plain_dense(&p, x, 0, n->config.dense, true), 2);
  x = plain_dropout(&p, plain_dense(&p, x, 3, n->config.dense, true), 5);
  classifier_finish(n, plain_dense(&p, x, 6, n->config.classes, false));
}

static void configure(ModelConfig *c) {
  classifier_defaults(c, 224);
  c->dropout = 0.5f;
}

// ---- torchvision's weights ------------------------------------------------------------------------------------------

static const char head[] = "classifier.6.weight";

// torchvision's VGGs are told apart by their last convolution; those with batch norm have it as features.1.
static const char *variant_of(const Checkpoint *c) {
  static const struct {
    const char *name, *last;
  } known[] = {{"vgg19", "features.34.weight"}, {"vgg16", "features.28.weight"}, {"vgg11", "features.18.weight"}};
  if (ckpt_find(c, "features.1.weight")) return NULL;
  for (int i = 0; i < COUNT(known); i++)
    if (classifier_held(c, "features.0.weight", 3, known[i].last, head)) return known[i].name;
  return NULL;
}

static bool holds(const Checkpoint *c) { return variant_of(c) != NULL; }

static bool configure_published(const Checkpoint *c, ModelConfig *config, Err *err) {
  if (!classifier_config(c, variant_of(c), head, config, err)) return false;
  config->width = torchvision_dim(c, "features.0.weight", 0);
  if (torchvision_dim(c, head, 1)) config->dense = torchvision_dim(c, head, 1);
  return config_check(config, err);
}

const Model model_vgg = {
    .name = "vgg",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER,
    .variants = (const Variant[]){{"vgg11", 11}, {"vgg16", 16}, {"vgg19", 19}, {NULL, 0}},
    .configure = configure,
    .least_size = 32,
    .build = build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.6.", NULL},
    .backbone = "features.",
    .published = &(const Published){.holds = holds, .configure = configure_published},
    .learning = {CLASSIFIER_LEARNING, .rate = 0.01},
};
