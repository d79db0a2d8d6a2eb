#include "models/resnet.h"
#include "models/conv_norm.h"

typedef struct Resnet {
  Graph *g;
  const ModelConfig *c;
  const char *prefix;
} Resnet;

// layer_from_end: 1 = layer4 … 4 = layer1, 5 = stem.
static bool is_trainable(const ModelConfig *c, int layer_from_end) { return layer_from_end <= c->trainable_layers; }

// A block's convolutions in the order of its parameters: the shortcut's projection, which may be missing, then two or
// three along the way.
typedef struct ResnetBlock {
  int convs;
  ConvNorm unit[BOTTLENECK_CONVS];
} ResnetBlock;

static ResnetBlock block_of(const Resnet *r, const Value *x, const char *p, int stage, int stride) {
  const ModelConfig *c = r->c;
  const bool bottleneck = c->depth >= 50, trainable = is_trainable(c, 4 - stage),
             early = bottleneck && c->stride_in_1x1;
  const int planes = c->width << stage, k = bottleneck ? 4 * planes : planes;
  ResnetBlock b = {.convs = bottleneck ? 4 : 3};
  if (stride > 1 || x->x.c != k)
    b.unit[0] = (ConvNorm){.conv = graph_name(r->g, "%s.downsample.0", p),
                           .norm = graph_name(r->g, "%s.downsample.1", p),
                           .k = k,
                           .taps = 1,
                           .stride = stride};
  for (int i = 1; i < b.convs; i++)
    b.unit[i] = (ConvNorm){.conv = graph_name(r->g, "%s.conv%d", p, i),
                           .norm = graph_name(r->g, "%s.bn%d", p, i),
                           .k = i == b.convs - 1 ? k : planes,
                           .taps = bottleneck && i != 2 ? 1 : 3,
                           .stride = i == (bottleneck && !early ? 2 : 1) ? stride : 1,
                           .relu = true};
  for (int i = 0; i < b.convs; i++) {
    b.unit[i].init = INIT_KAIMING_NORMAL;
    b.unit[i].trainable = trainable;
  }
  return b;
}

// All of a block as one node, where there is such an op.
static Value *fused(const Resnet *r, Value *x, const char *name, const ResnetBlock *b) {
  BottleneckLayer l = {0};
  if (b->convs < BOTTLENECK_CONVS || !conv_norm_folds(r->g, r->c)) return NULL;
  for (int i = 0; i < BOTTLENECK_CONVS; i++) {
    l.name[i] = b->unit[i].conv;
    l.conv[i] = conv_norm_folded(r->c, &b->unit[i]);
  }
  return layer_bottleneck(r->g, name, x, &l);
}

static Value *append_block(const Resnet *r, Value *x, const char *name, ResnetBlock *b) {
  Value *whole = fused(r, x, name, b);
  if (whole) return whole;
  ConvNorm *last = &b->unit[b->convs - 1];
  last->addend = b->unit[0].conv ? conv_norm_shortcut(r->g, r->c, x, &b->unit[0], &last->addend_norm) : x;
  for (int i = 1; i < b->convs; i++) x = conv_norm(r->g, r->c, x, &b->unit[i]);
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
  Value *x = conv_norm(g, c, image,
                       &(ConvNorm){.conv = graph_name(g, "%sconv1", prefix),
                                   .norm = graph_name(g, "%sbn1", prefix),
                                   .k = c->width,
                                   .taps = 7,
                                   .stride = 2,
                                   .relu = true,
                                   .trainable = is_trainable(c, 5),
                                   .init = INIT_KAIMING_NORMAL});
  x = layer_max_pool(g, graph_name(g, "%smaxpool", prefix), x, (Pool){3, 2, 1});
  for (int stage = 0; stage < 4; stage++) {
    for (int i = 0; i < blocks[stage]; i++) {
      const char *name = graph_name(g, "%slayer%d.%d", prefix, stage + 1, i);
      ResnetBlock b = block_of(&r, x, name, stage, i == 0 && stage > 0 ? 2 : 1);
      x = append_block(&r, x, name, &b);
    }
    out[stage] = x;
  }
}
