// A VGG for images of 28 × 28 pixels: nine 3×3 convolutions and two fully connected layers, each followed by ReLU, then
// batch norm, and dropout. Names follow torchvision's VGG: two Sequentials, features and classifier.
#include "classification/nets/classifier.h"
#include "models/conv_norm.h"

// Channels in units of ModelConfig.width; 0: max pooling over 2×2, then dropout.
static const int features[] = {1, 1, 2, 2, 0, 4, 4, 8, 8, 8, 0};

static const char *name_of(Graph *g, int index) { return graph_name(g, "%s.%d", g->part, index); }

static Value *append_conv(Network *n, Value *x, int k, int index) {
  Graph *g = &n->graph;
  const ConvLayer conv = conv_3x3(k, INIT_LINEAR, INIT_LINEAR);
  x = layer_conv(g, name_of(g, index), x, &conv);
  return norm_node(g, &n->config, name_of(g, index + 2), x);
}

static Value *append_features(Network *n, Value *x) {
  Graph *g = &n->graph;
  g->part = "features";
  for (int i = 0, index = 0; i < COUNT(features); i++) {
    if (features[i]) {
      x = append_conv(n, x, features[i] * n->config.width, index);
      index += 3; // convolution, ReLU, norm
    } else {
      x = layer_max_pool(g, name_of(g, index), x, (Pool){2, 2, 0});
      x = layer_dropout(g, name_of(g, index + 1), x, n->config.dropout / 2);
      index += 2;
    }
  }
  return x;
}

static void build(Network *n) {
  Graph *g = &n->graph;
  const ModelConfig *c = &n->config;
  Value *x = append_features(n, classifier_image(n));
  g->part = "classifier";
  for (int index = 0; index < 8; index += 4) { // linear, ReLU, norm, dropout
    const Dense d = {.k = c->dense, .relu = true, .init = INIT_LINEAR, .bias_init = INIT_LINEAR};
    x = norm_node(g, c, name_of(g, index + 2), layer_dense(g, name_of(g, index), x, &d));
    x = layer_dropout(g, name_of(g, index + 3), x, c->dropout);
  }
  const Dense last = {.k = c->classes, .init = INIT_LINEAR, .bias_init = INIT_LINEAR};
  classifier_finish(n, layer_dense(g, name_of(g, 8), x, &last));
}

// Mean and deviation as PyTorch users commonly set them for such data: pixels are mapped to ±1.
static void configure(ModelConfig *c) {
  classifier_defaults(c, 28);
  c->width = 32;
  c->dense = 512;
  c->grey = true;
  for (int i = 0; i < 3; i++) c->mean[i] = c->std[i] = 0.5f;
  c->dropout = 0.5f;
  c->classes = 10;
}

static bool check(const ModelConfig *c, int images, Err *err) {
  (void)images;
  return config_batch_norm(c) || err_set(err, "vgg-28 uses trainable batch norm; use --norm bn or syncbn");
}

const Model model_vgg28 = {
    .name = "vgg-28",
    CLASSIFIER_ROW,
    .traits = MODEL_CLASSIFIER | MODEL_NORMS,
    .variants = (const Variant[]){{"vgg-28", 0}, {NULL, 0}},
    .configure = configure,
    .least_size = 4,
    .build = build,
    .check = check,
    .loss = {CLASSIFIER_LOSS},
    .counter = CLASSIFIER_COUNTERS,
    .class_parameters = (const char *const[]){"classifier.8.", NULL},
    .backbone = "features.",
    .learning = {CLASSIFIER_LEARNING, .rate = 0.1, .adam = true, .phases = "10@1e-3,10@1e-4"},
};
