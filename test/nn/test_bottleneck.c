// Catches bottlenecks that become one node where a gradient flows back, values are asked for or norms are not folded
// in, and those that do not elsewhere. test/cuda/conv/test_conv_bottleneck.c looks at the values.
#include <string.h>
#include "models/resnet.h"
#include "test/harness/gpu.h"

typedef struct Case {
  bool training, every_value;
  int depth, trainable_layers;
  NormType norm;
  DType act;
  int bottlenecks, convs;
} Case;

static void check(Device *gpu, const Case *k) {
  ModelConfig c = {0};
  c.depth = k->depth;
  c.width = 64;
  c.norm = k->norm;
  c.norm_groups = 32;
  c.norm_eps = 1e-5f;
  c.trainable_layers = k->trainable_layers;
  Params params[2];
  for (int i = 0; i < 2; i++) {
    Graph g;
    Value *out[4];
    params_init(&params[i], gpu, k->act);
    graph_init(&g, gpu, &params[i], k->training);
    g.act = k->act;
    gpu->every_value = i || k->every_value;
    resnet_build(&g, &c, "body.", graph_value(&g, "image", tensor(k->act, 2, 64, 96, 3)), out);
    gpu->every_value = false;
    int bottlenecks = 0, convs = 0;
    for (int j = 0; j < g.nodes; j++) {
      bottlenecks += !strcmp(g.node[j]->type->name, "bottleneck");
      convs += !strcmp(g.node[j]->type->name, "conv");
    }
    EXPECT_INT(bottlenecks, i ? 0 : k->bottlenecks);
    if (!i) EXPECT_INT(convs, k->convs);
    EXPECT(out[0]->x.h == 16 && out[0]->x.w == 24 && out[0]->x.c == (k->depth < 50 ? 64 : 256));
    graph_free(&g);
  }
  EXPECT_INT(params[0].n, params[1].n); // in the same order
  for (int i = 0; i < params[0].n; i++) EXPECT(!strcmp(params[0].list[i]->name, params[1].list[i]->name));
  for (int i = 0; i < 2; i++) params_free(&params[i]);
}

TEST(cuda_bottleneck_as_one_node) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  if (!gpu->wgmma) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  const Case cases[] = {
      {true, false, 50, 3, NORM_FROZEN_BN, BF16, 3, 43},  {true, false, 101, 2, NORM_FROZEN_BN, F16, 3, 94},
      {true, false, 50, 4, NORM_FROZEN_BN, BF16, 0, 53},  {true, true, 50, 3, NORM_FROZEN_BN, BF16, 0, 53},
      {true, false, 50, 3, NORM_FROZEN_BN, F32, 0, 53},   {true, false, 50, 5, NORM_GN, BF16, 0, 53},
      {false, false, 50, 5, NORM_FROZEN_BN, BF16, 3, 43}, {false, false, 50, 5, NORM_BN, BF16, 3, 43},
      {false, false, 18, 5, NORM_BN, BF16, 0, 20},
  };
  for (int i = 0; i < COUNT(cases); i++) check(gpu, &cases[i]);
}
