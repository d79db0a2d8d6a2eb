#include "models/resnet.h"
#include "models/conv_norm.h"

typedef struct Resnet {
  Graph *g;
  const ModelConfig *c;
  const char *prefix;
} Resnet;

static Value *unit(const Resnet *r, Value *x, const char *conv, const char *norm, ConvNorm u) {
  u.conv = conv;
  u.norm = norm;
  u.init = INIT_KAIMING_NORMAL;
  return conv_norm(r->g, r->c, x, &u);
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
    shortcut = unit(r, x, graph_name(g, "%s.downsample.0", p), graph_name(g, "%s.downsample.1", p),
                    (ConvNorm){.k = k, .taps = 1, .stride = stride, .trainable = trainable});
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
    x = unit(r, x, graph_name(g, "%s.conv%d", p, i + 1), graph_name(g, "%s.bn%d", p, i + 1),
             (ConvNorm){.k = shape[i].k,
                        .taps = shape[i].taps,
                        .stride = shape[i].stride,
                        .relu = true,
                        .trainable = trainable,
                        .addend = last ? shortcut : NULL});
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
  Value *x = unit(&r, image, graph_name(g, "%sconv1", prefix), graph_name(g, "%sbn1", prefix),
                  (ConvNorm){.k = c->width, .taps = 7, .stride = 2, .relu = true, .trainable = is_trainable(c, 5)});
  x = layer_max_pool(g, graph_name(g, "%smaxpool", prefix), x, (Pool){3, 2, 1});
  for (int stage = 0; stage < 4; stage++) {
    for (int i = 0; i < blocks[stage]; i++) x = block(&r, x, stage, i, c->width << stage, i == 0 && stage > 0 ? 2 : 1);
    out[stage] = x;
  }
}
