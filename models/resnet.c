#include "models/resnet.h"
#include "nn/layers.h"

typedef struct Resnet {
  Graph *g;
  const ModelConfig *c;
  const char *prefix;
} Resnet;

// Convolution and its norm, y = relu?(norm(w · x) + addend?). Frozen batch norm, and any batch norm at inference, is
// folded into the convolution; otherwise the norm is a node of its own.
typedef struct Unit {
  const char *conv, *norm;
  int k, taps, stride;
  bool relu, trainable;
  Value *addend;
} Unit;

static Value *conv_norm(const Resnet *r, Value *x, Unit u) {
  const ModelConfig *c = r->c;
  const bool batch = config_batch_norm(c), fold = c->norm == NORM_FROZEN_BN || (batch && !r->g->training);
  ConvLayer conv = {.k = u.k,
                    .r = u.taps,
                    .s = u.taps,
                    .stride = u.stride,
                    .pad = u.taps / 2,
                    .trainable = u.trainable,
                    .init = INIT_KAIMING_NORMAL};
  if (fold) {
    conv.fold = u.norm;
    conv.fold_trainable = batch;
    conv.fold_eps = c->norm_eps;
    conv.relu = u.relu;
    conv.addend = u.addend;
    return layer_conv(r->g, u.conv, x, &conv);
  }
  NormLayer norm = {.batch = batch,
                    .over_ranks = c->norm == NORM_SYNC_BN,
                    .groups = c->norm_groups,
                    .eps = c->norm_eps,
                    .momentum = 0.1f,
                    .relu = u.relu,
                    .trainable = u.trainable,
                    .addend = u.addend};
  return layer_norm(r->g, u.norm, layer_conv(r->g, u.conv, x, &conv), &norm);
}

// layer_from_end: 1 = layer4 … 4 = layer1, 5 = stem.
static bool is_trainable(const ModelConfig *c, int layer_from_end) { return layer_from_end <= c->trainable_layers; }

static Value *block(const Resnet *r, Value *x, int stage, int index, int planes, int stride) {
  Graph *g = r->g;
  bool bottleneck = r->c->depth >= 50, trainable = is_trainable(r->c, 4 - stage);
  int k = bottleneck ? 4 * planes : planes;
  const char *p = graph_name(g, "%slayer%d.%d", r->prefix, stage + 1, index);
  Value *shortcut = x;
  if (stride > 1 || x->x.c != k)
    shortcut = conv_norm(r, x,
                         (Unit){graph_name(g, "%s.downsample.0", p), graph_name(g, "%s.downsample.1", p), k, 1, stride,
                                false, trainable, NULL});
  struct {
    int k, taps, stride;
  } shape[3] = {{planes, 3, stride}, {planes, 3, 1}};
  int convs = 2;
  if (bottleneck) {
    bool early = r->c->stride_in_1x1;
    shape[0].taps = 1;
    shape[0].stride = early ? stride : 1;
    shape[1].stride = early ? 1 : stride;
    shape[2].k = k;
    shape[2].taps = 1;
    shape[2].stride = 1;
    convs = 3;
  }
  for (int i = 0; i < convs; i++) {
    bool last = i == convs - 1;
    x = conv_norm(r, x,
                  (Unit){graph_name(g, "%s.conv%d", p, i + 1), graph_name(g, "%s.bn%d", p, i + 1), shape[i].k,
                         shape[i].taps, shape[i].stride, true, trainable, last ? shortcut : NULL});
  }
  return x;
}

void resnet_build(Graph *g, const ModelConfig *c, const char *prefix, Value *image, Value *out[4]) {
  static const struct {
    int depth, blocks[4];
  } plans[] = {{10, {1, 1, 1, 1}}, {18, {2, 2, 2, 2}},   {34, {3, 4, 6, 3}},
               {50, {3, 4, 6, 3}}, {101, {3, 4, 23, 3}}, {152, {3, 8, 36, 3}}};
  const int *blocks = NULL;
  for (int i = 0; i < COUNT(plans); i++)
    if (plans[i].depth == c->depth) blocks = plans[i].blocks;
  CHECK(blocks);
  Resnet r = {g, c, prefix};
  Value *x = conv_norm(&r, image,
                       (Unit){graph_name(g, "%sconv1", prefix), graph_name(g, "%sbn1", prefix), c->width, 7, 2, true,
                              is_trainable(c, 5), NULL});
  x = layer_max_pool(g, graph_name(g, "%smaxpool", prefix), x, (Pool){3, 2, 1});
  for (int stage = 0; stage < 4; stage++) {
    for (int i = 0; i < blocks[stage]; i++) x = block(&r, x, stage, i, c->width << stage, i == 0 && stage > 0 ? 2 : 1);
    out[stage] = x;
  }
}
