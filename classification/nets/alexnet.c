// AlexNet: Krizhevsky, "One weird trick for parallelizing convolutional networks", 2014.
#include "classification/nets/plain.h"
#include "models/torchvision.h"

static const PlainStage stages[] = {{64, 11, 4, 2}, {0, 3, 2, 0},   {192, 5, 1, 2}, {0, 3, 2, 0},
                                    {384, 3, 1, 1}, {256, 3, 1, 1}, {256, 3, 1, 1}, {0, 3, 2, 0}};

static void build(Network *n) {
  const Plain p = {n, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR};
  Value *x = plain_bins(&p, plain_features(&p, stages, COUNT(stages), classifier_image(n)), 6);
  n->graph.part = "classifier";
  x = plain_dense(&p, plain_dropout(&p, x, 0), 1, n->config.dense, true);
  x = plain_dense(&p, plain_dropout(&p, x, 3), 4, n->config.dense, true);
  classifier_finish(n, plain_dense(&p, x, 6, n->config.classes, false));
}

static void configure(ModelConfig *c) {
  classifier_defaults(c, 224);
  c->dropout = 0.5f;
}

// ---- torchvision's weights ------------------------------------------------------------------------------------------

static const char head[] = "classifier.6.weight";

static bool holds(const Checkpoint *c) {
  return classifier_held(c, "features.0.weight", 11, "features.10.weight", head);
}

static bool configure_published(const Checkpoint *c, ModelConfig *config, Err *err) {
  if (!classifier_config(c, "alexnet", head, config, err)) return false;
  if (torchvision_dim(c, head, 1)) config->dense = torchvision_dim(c, head, 1);
  return config_check(config, err);
}

const Model model_alexnet = {
    .name = "alexnet",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER,
    .variants = (const Variant[]){{"alexnet", 0}, {NULL, 0}},
    .configure = configure,
    .least_size = 63,
    .build = build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.6.", NULL},
    .backbone = "features.",
    .published = &(const Published){.holds = holds, .configure = configure_published},
    .learning = {CLASSIFIER_LEARNING, .rate = 0.01}, // torchvision's references: a tenth of the rate without batch norm
};
