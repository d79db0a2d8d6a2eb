// OverFeat, the fast model: Sermanet et al., "OverFeat", 2013.
#include "classification/nets/plain.h"

static const PlainStage stages[] = {{96, 11, 4, 0}, {0, 2, 2, 0},    {256, 5, 1, 0},  {0, 2, 2, 0},
                                    {512, 3, 1, 1}, {1024, 3, 1, 1}, {1024, 3, 1, 1}, {0, 2, 2, 0}};

static void build(Network *n) {
  const Plain p = {n, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR};
  Value *x = plain_features(&p, stages, COUNT(stages), classifier_image(n));
  n->graph.part = "classifier";
  x = plain_dropout(&p, plain_dense(&p, x, 0, MAX(n->config.dense * 3 / 4, 1), true), 1);
  x = plain_dropout(&p, plain_dense(&p, x, 2, n->config.dense, true), 3);
  classifier_finish(n, plain_dense(&p, x, 4, n->config.classes, false));
}

static void configure(ModelConfig *c) { classifier_defaults(c, 231); }

const Model model_overfeat = {
    .name = "overfeat",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER,
    .variants = (const Variant[]){{"overfeat", 0}, {NULL, 0}},
    .configure = configure,
    .least_size = 71,
    .build = build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.4.", NULL},
    .backbone = "features.",
    .learning = {CLASSIFIER_LEARNING, .rate = 0.01},
};
