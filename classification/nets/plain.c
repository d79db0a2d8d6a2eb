// Networks that are one line of convolutions with ReLU, maxima and fully connected layers: AlexNet, OverFeat, VGG.
#include "classification/nets/classifier.h"

// A convolution, or, k = 0, maxima over windows.
typedef struct Stage {
  int k, size, stride, pad;
} Stage;
enum { MAX_STAGES = 24 };

typedef struct Plain {
  Network *n;
  Init conv, conv_bias, dense, dense_bias;
} Plain;

static Value *append_conv(const Plain *p, const char *name, Value *x, const Stage *s) {
  return layer_conv(&p->n->graph, name, x,
                    &(ConvLayer){.k = s->k,
                                 .r = s->size,
                                 .s = s->size,
                                 .stride = s->stride,
                                 .pad = s->pad,
                                 .relu = true,
                                 .bias = true,
                                 .trainable = true,
                                 .init = p->conv,
                                 .bias_init = p->conv_bias});
}

// torchvision's `features`, a Sequential, in which a convolution is followed by a module for its ReLU.
static Value *append_features(const Plain *p, const Stage *stages, int count, Value *x) {
  Graph *g = &p->n->graph;
  g->part = "features";
  for (int i = 0, index = 0; i < count; i++) {
    const Stage *s = &stages[i];
    const char *name = graph_name(g, "features.%d", index);
    x = s->k ? append_conv(p, name, x, s) : layer_max_pool(g, name, x, (Pool){s->size, s->stride, s->pad});
    index += s->k ? 2 : 1;
  }
  return x;
}

// A number of `classifier`, a Sequential.
static const char *classifier_name(Graph *g, int index) { return graph_name(g, "classifier.%d", index); }

static Value *append_dense(const Plain *p, Value *x, int index, int k, bool relu) {
  return layer_dense(&p->n->graph, classifier_name(&p->n->graph, index), x,
                     &(Dense){.k = k, .relu = relu, .init = p->dense, .bias_init = p->dense_bias});
}

static Value *append_dropout(const Plain *p, Value *x, int index) {
  return layer_dropout(&p->n->graph, classifier_name(&p->n->graph, index), x, p->n->config.dropout);
}

// Adaptive means of size × size bins, which are the pixels where there are as many.
static Value *append_bins(const Plain *p, Value *x, int size) {
  return x->x.h == size && x->x.w == size ? x : layer_adaptive_avg_pool(&p->n->graph, "avgpool", x, size, size);
}

// ---- AlexNet ----------------------------------------------------------------------------------------------------

static const Stage alexnet[] = {{64, 11, 4, 2}, {0, 3, 2, 0},   {192, 5, 1, 2}, {0, 3, 2, 0},
                                {384, 3, 1, 1}, {256, 3, 1, 1}, {256, 3, 1, 1}, {0, 3, 2, 0}};

static void alexnet_build(Network *n) {
  const Plain p = {n, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR};
  Value *x = append_bins(&p, append_features(&p, alexnet, COUNT(alexnet), classifier_image(n)), 6);
  n->graph.part = "classifier";
  x = append_dense(&p, append_dropout(&p, x, 0), 1, n->config.dense, true);
  x = append_dense(&p, append_dropout(&p, x, 3), 4, n->config.dense, true);
  classifier_finish(n, append_dense(&p, x, 6, n->config.classes, false));
}

static void alexnet_configure(ModelConfig *c) {
  classifier_defaults(c, 224);
  c->dropout = 0.5f;
}

const Model model_alexnet = {
    .name = "alexnet",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER,
    .variants = (const Variant[]){{"alexnet", 0}, {NULL, 0}},
    .configure = alexnet_configure,
    .least_size = 63,
    .build = alexnet_build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.6.", NULL},
    .backbone = "features.",
    .learning = {.rate = 0.01}, // torchvision's references: without batch norm a tenth
};

// ---- OverFeat ---------------------------------------------------------------------------------------------------

static const Stage overfeat[] = {{96, 11, 4, 0}, {0, 2, 2, 0},    {256, 5, 1, 0},  {0, 2, 2, 0},
                                 {512, 3, 1, 1}, {1024, 3, 1, 1}, {1024, 3, 1, 1}, {0, 2, 2, 0}};

static void overfeat_build(Network *n) {
  const Plain p = {n, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR, INIT_LINEAR};
  Value *x = append_features(&p, overfeat, COUNT(overfeat), classifier_image(n));
  n->graph.part = "classifier";
  x = append_dropout(&p, append_dense(&p, x, 0, MAX(n->config.dense * 3 / 4, 1), true), 1);
  x = append_dropout(&p, append_dense(&p, x, 2, n->config.dense, true), 3);
  classifier_finish(n, append_dense(&p, x, 4, n->config.classes, false));
}

static void overfeat_configure(ModelConfig *c) { classifier_defaults(c, 231); }

const Model model_overfeat = {
    .name = "overfeat",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER,
    .variants = (const Variant[]){{"overfeat", 0}, {NULL, 0}},
    .configure = overfeat_configure,
    .least_size = 71,
    .build = overfeat_build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.4.", NULL},
    .backbone = "features.",
    .learning = {.rate = 0.01},
};

// ---- VGG --------------------------------------------------------------------------------------------------------

// Convolutions in front of each of the five pools.
static const struct {
  int depth, convs[5];
} vggs[] = {{11, {1, 1, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};

static int vgg_stages(const ModelConfig *c, Stage *to) {
  int n = 0;
  for (int i = 0; i < COUNT(vggs); i++)
    for (int block = 0; block < 5 && vggs[i].depth == c->depth; block++) {
      for (int conv = 0; conv < vggs[i].convs[block]; conv++) to[n++] = (Stage){c->width << MIN(block, 3), 3, 1, 1};
      to[n++] = (Stage){0, 2, 2, 0};
    }
  CHECK(n > 0 && n <= MAX_STAGES);
  return n;
}

static void vgg_build(Network *n) {
  const Plain p = {n, INIT_KAIMING_NORMAL, INIT_ZERO, INIT_NORMAL_001, INIT_ZERO};
  Stage stages[MAX_STAGES];
  const int count = vgg_stages(&n->config, stages);
  Value *x = append_bins(&p, append_features(&p, stages, count, classifier_image(n)), 7);
  n->graph.part = "classifier";
  x = append_dropout(&p, append_dense(&p, x, 0, n->config.dense, true), 2);
  x = append_dropout(&p, append_dense(&p, x, 3, n->config.dense, true), 5);
  classifier_finish(n, append_dense(&p, x, 6, n->config.classes, false));
}

static void vgg_configure(ModelConfig *c) {
  classifier_defaults(c, 224);
  c->dropout = 0.5f;
}

const Model model_vgg = {
    .name = "vgg",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER,
    .variants = (const Variant[]){{"vgg11", 11}, {"vgg16", 16}, {"vgg19", 19}, {NULL, 0}},
    .configure = vgg_configure,
    .least_size = 32,
    .build = vgg_build,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.6.", NULL},
    .backbone = "features.",
    .learning = {.rate = 0.01},
};
