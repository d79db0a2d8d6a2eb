// GoogLeNet as in torchvision: batch norm after every convolution, and 3×3 where the paper has 5×5. In training two
// auxiliary heads add to the loss.
#include "classification/nets/classifier.h"
#include "models/conv_norm.h"

enum { LOSS_AUX1 = LOSS_CLASS + 1, LOSS_AUX2 };

typedef struct Googlenet {
  Network *n;
  Graph *g;
} Googlenet;

// torchvision's BasicConv2d.
static Value *unit(const Googlenet *m, const char *name, Value *x, int k, int taps, int stride) {
  return conv_norm(m->g, &m->n->config, x,
                   &(ConvNorm){.conv = graph_name(m->g, "%s.conv", name),
                               .norm = graph_name(m->g, "%s.bn", name),
                               .k = k,
                               .taps = taps,
                               .stride = stride,
                               .relu = true,
                               .trainable = true,
                               .init = INIT_NORMAL_001});
}

// Channels: of the 1×1; before and after each of the two 3×3; after the max pooling.
typedef struct Inception {
  const char *name;
  int one, reduce[2], three[2], pooled;
} Inception;

static Value *inception(const Googlenet *m, const Inception *i, Value *x) {
  Graph *g = m->g;
  Value *branch[4] = {unit(m, graph_name(g, "%s.branch1", i->name), x, i->one, 1, 1)};
  for (int b = 0; b < 2; b++) {
    Value *reduced = unit(m, graph_name(g, "%s.branch%d.0", i->name, b + 2), x, i->reduce[b], 1, 1);
    branch[1 + b] = unit(m, graph_name(g, "%s.branch%d.1", i->name, b + 2), reduced, i->three[b], 3, 1);
  }
  Value *maxima = layer_max_pool_ceil(g, graph_name(g, "%s.branch4.0", i->name), x, (Pool){3, 1, 1});
  branch[3] = unit(m, graph_name(g, "%s.branch4.1", i->name), maxima, i->pooled, 1, 1);
  return layer_concat(g, i->name, COUNT(branch), branch);
}

static Value *dense(const Googlenet *m, const char *name, Value *x, int k, bool relu) {
  return layer_dense(m->g, name, x, &(Dense){.k = k, .relu = relu, .init = INIT_NORMAL_001, .bias_init = INIT_LINEAR});
}

static void auxiliary(const Googlenet *m, const char *name, Value *x, int index) {
  Graph *g = m->g;
  const ModelConfig *c = &m->n->config;
  if (!g->training || c->aux_weight == 0) return;
  const char *part = g->part;
  g->part = "auxiliary";
  x = layer_adaptive_avg_pool(g, graph_name(g, "%s.avgpool", name), x, 4, 4);
  x = unit(m, graph_name(g, "%s.conv", name), x, 128, 1, 1);
  x = dense(m, graph_name(g, "%s.fc1", name), x, 1024, true);
  x = layer_dropout(g, graph_name(g, "%s.dropout", name), x, c->aux_dropout);
  x = dense(m, graph_name(g, "%s.fc2", name), x, c->classes, false);
  classifier_auxiliary(m->n, name, x, c->aux_weight, index);
  g->part = part;
}

static const Inception modules[] = {
    {"inception3a", 64, {96, 16}, {128, 32}, 32},     {"inception3b", 128, {128, 32}, {192, 96}, 64},
    {"inception4a", 192, {96, 16}, {208, 48}, 64},    {"inception4b", 160, {112, 24}, {224, 64}, 64},
    {"inception4c", 128, {128, 24}, {256, 64}, 64},   {"inception4d", 112, {144, 32}, {288, 64}, 64},
    {"inception4e", 256, {160, 32}, {320, 128}, 128}, {"inception5a", 256, {160, 32}, {320, 128}, 128},
    {"inception5b", 384, {192, 48}, {384, 128}, 128}};
enum { INCEPTION_3B = 1, INCEPTION_4A, INCEPTION_4D = 5, INCEPTION_4E };

static Value *stem(const Googlenet *m, Value *x) {
  m->g->part = "stem";
  x = unit(m, "conv1", x, 64, 7, 2);
  x = layer_max_pool_ceil(m->g, "maxpool1", x, (Pool){3, 2, 0});
  x = unit(m, "conv2", x, 64, 1, 1);
  x = unit(m, "conv3", x, 192, 3, 1);
  return layer_max_pool_ceil(m->g, "maxpool2", x, (Pool){3, 2, 0});
}

static void build(Network *n) {
  Graph *g = &n->graph;
  const Googlenet m = {n, g};
  Value *x = classifier_image(n);
  classifier_clear(n);
  x = stem(&m, x);
  g->part = "inception";
  for (int i = 0; i < COUNT(modules); i++) {
    x = inception(&m, &modules[i], x);
    if (i == INCEPTION_3B) x = layer_max_pool_ceil(g, "maxpool3", x, (Pool){3, 2, 0});
    if (i == INCEPTION_4A) auxiliary(&m, "aux1", x, LOSS_AUX1);
    if (i == INCEPTION_4D) auxiliary(&m, "aux2", x, LOSS_AUX2);
    if (i == INCEPTION_4E) x = layer_max_pool_ceil(g, "maxpool4", x, (Pool){2, 2, 0});
  }
  g->part = "head";
  x = layer_adaptive_avg_pool(g, "avgpool", x, 1, 1);
  x = layer_dropout(g, "dropout", x, n->config.dropout);
  classifier_finish(n, dense(&m, "fc", x, n->config.classes, false));
}

static void configure(ModelConfig *c) {
  classifier_defaults(c, 224);
  c->norm_eps = 1e-3f;
  c->dropout = 0.2f;
}

static bool check(const ModelConfig *c, int images, Err *err) {
  (void)images;
  return c->norm != NORM_GN || err_set(err, "googlenet uses batch norm; use --norm bn, syncbn or frozen-bn");
}

// ---- torchvision's weights ------------------------------------------------------------------------------------------

static const char head[] = "fc.weight";

static bool holds(const Checkpoint *c) {
  return classifier_held(c, "conv1.conv.weight", 7, "inception5b.branch4.1.conv.weight", head);
}

// These weights expect images in ±1 (torchvision's transform_input), which no tensor shows.
static bool configure_published(const Checkpoint *c, ModelConfig *config, Err *err) {
  if (!classifier_config(c, "googlenet", head, config, err)) return false;
  if (!ckpt_find(c, "aux1.fc1.weight")) config->aux_weight = 0;
  for (int k = 0; k < 3; k++) config->mean[k] = config->std[k] = 0.5f;
  return config_check(config, err);
}

const Model model_googlenet = {
    .name = "googlenet",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER | MODEL_NORMS,
    .variants = (const Variant[]){{"googlenet", 0}, {NULL, 0}},
    .configure = configure,
    .least_size = 31, // the smallest for which the input of maxpool4 has 2 x 2 positions, its window
    .build = build,
    .check = check,
    .loss = {CLASSIFIER_LOSS, [LOSS_AUX1] = {"loss_aux1", "auxiliary 1", 1}, {"loss_aux2", "auxiliary 2", 2}},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"fc.", "fc2.", NULL},
    .backbone = "",
    .published = &(const Published){.holds = holds, .configure = configure_published},
    .ignored = (const char *const[]){"aux1.", "aux2.", NULL},
    .learning = {CLASSIFIER_LEARNING, .rate = 0.1},
};
