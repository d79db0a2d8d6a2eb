#include "classification/nets/classifier.h"
#include "models/resnet.h"

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
};
