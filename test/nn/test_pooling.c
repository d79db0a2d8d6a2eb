// Catches pooling and concatenation layers with wrong shapes, or that alias memory still needed.
#include "test/harness/gpu.h"
#include "test/harness/isolation.h"
#include "test/harness/net.h"

enum { ROUNDS = 3 };

static Value *stem(Net *net, const char *name, int c) {
  return net_stem(net, name, 2, net_pick(net, 6, 9), net_pick(net, 6, 9), c, true);
}

static void build_max_pool_ceil(Net *net) {
  Value *x = layer_max_pool_ceil(&net->graph, "pool", stem(net, "stem", 5), (Pool){3, 2, 0});
  net_loss(net, net_conv(net, "a", x, 3, 1, 1, false, NULL));
}
TEST(pooling_max_pool_ceil) { check_net(build_max_pool_ceil, ROUNDS); }

// Its input is a ReLU's and has another reader, so that a gradient is added to and masked.
static void build_avg_pool(Net *net, bool ceil, bool count_pad) {
  Value *x = stem(net, "stem", 5);
  AvgPool pool = {{3, 2, 1}, count_pad};
  net_loss(net, net_conv(net, "a", layer_avg_pool(&net->graph, "pool", x, pool, ceil), 3, 1, 1, false, NULL));
  net_loss(net, net_conv(net, "b", x, 3, 1, 1, false, NULL));
}
static void build_avg_pool_floor(Net *net) { build_avg_pool(net, false, true); }
static void build_avg_pool_ceil(Net *net) { build_avg_pool(net, true, false); }
TEST(pooling_avg_pool) {
  check_net(build_avg_pool_floor, ROUNDS);
  check_net(build_avg_pool_ceil, ROUNDS);
}

static void build_adaptive(Net *net) {
  Graph *g = &net->graph;
  Value *x = layer_adaptive_avg_pool(g, "bins", stem(net, "stem", 4), 4, 5);
  net_loss(net, layer_adaptive_avg_pool(g, "global", net_conv(net, "a", x, 3, 3, 1, true, NULL), 1, 1));
}
TEST(pooling_adaptive_avg_pool) { check_net(build_adaptive, ROUNDS); }

TEST(pooling_shapes) {
  Net net;
  net_open(&net, build_adaptive, 0, false);
  Graph g;
  graph_init(&g, net.dev, &net.params, true);
  // torchvision's GoogLeNet at 224 pixels: MaxPool2d(3, stride=2, ceil_mode=True) after the stem makes 112 → 56 → 28 →
  // 14 → 7; AlexNet's, MaxPool2d(3, 2), 55 → 27 → 13 → 6.
  Value *x = graph_value(&g, "x", tensor(F64, 1, 112, 55, 3));
  const int up[] = {56, 28, 14, 7}, down[] = {27, 13, 6};
  for (int i = 0; i < COUNT(up); i++) {
    Value *y = layer_max_pool_ceil(&g, "y", x, (Pool){3, 2, 0});
    EXPECT_INT(y->x.h, up[i]);
    x = y;
  }
  x = graph_value(&g, "x", tensor(F64, 1, 112, 55, 3));
  for (int i = 0; i < COUNT(down); i++) {
    x = layer_max_pool(&g, "y", x, (Pool){3, 2, 0});
    EXPECT_INT(x->x.w, down[i]);
  }
  graph_free(&g);
  net_close(&net);
}

// Parts with and without a ReLU, one of which another node reads, too, and one that is there twice.
static void build_concat(Net *net) {
  Graph *g = &net->graph;
  Value *x = stem(net, "stem", 4);
  Value *part[4] = {net_conv(net, "a", x, net_pick(net, 1, 9), 3, 1, true, NULL),
                    net_conv(net, "b", x, net_pick(net, 1, 9), 1, 1, false, NULL), x};
  part[3] = part[0];
  Value *y = layer_concat(g, "concat", 4, part);
  EXPECT_INT(y->x.c, 2 * part[0]->x.c + part[1]->x.c + 4);
  net_loss(net, net_conv(net, "c", y, 3, 3, 1, true, NULL));
  net_loss(net, part[0]);
}
TEST(pooling_concat) { check_net(build_concat, ROUNDS); }

// ---- concatenation in place ---------------------------------------------------------------------------------------

static Value *normed(Net *net, const char *name, Value *x, int k, bool batch, bool relu) {
  ConvLayer conv = {.k = k, .r = 1, .s = 1, .stride = 1, .trainable = true, .init = INIT_KAIMING_NORMAL};
  NormLayer norm = {.batch = batch, .groups = 2, .eps = 1e-5f, .momentum = 0.1f, .relu = relu, .trainable = true};
  Graph *g = &net->graph;
  return layer_norm(g, name, layer_conv(g, graph_name(g, "%s.conv", name), x, &conv), &norm);
}

// An inception block: branches that end in a norm.
static void build_branches(Net *net, bool batch, bool relu) {
  Graph *g = &net->graph;
  Value *x = stem(net, "stem", 4);
  Value *part[3] = {normed(net, "a", x, 8, batch, relu), normed(net, "b", x, 16, batch, relu),
                    normed(net, "c", layer_max_pool(g, "pool", x, (Pool){3, 1, 1}), 6, batch, relu)};
  Value *y = layer_concat(g, "concat", 3, part);
  net_loss(net, net_conv(net, "next", y, 3, 3, 1, true, NULL));
  net_loss(net, net_conv(net, "side", y, 3, 1, 1, false, NULL));
}
static void build_batch_relu(Net *net) { build_branches(net, true, true); }
static void build_batch_plain(Net *net) { build_branches(net, true, false); }
static void build_group_relu(Net *net) { build_branches(net, false, true); }

static const Node *concat_of(const Net *net) { return graph_find_node(&net->graph, "concat"); }

TEST(pooling_concat_in_place) {
  NetBuild *const builds[] = {build_batch_relu, build_batch_plain, build_group_relu};
  for (int i = 0; i < COUNT(builds); i++) {
    check_net(builds[i], ROUNDS);
    Net net;
    net_open(&net, builds[i], 0, false);
    const Value *whole = concat_of(&net)->out[0];
    const int first[] = {0, 8, 24};
    EXPECT(concat_of(&net)->in_place && whole->relu == (builds[i] != build_batch_plain));
    for (int p = 0; p < 3; p++) {
      const Value *v = concat_of(&net)->in[p].v;
      EXPECT(v->block < 0 && v->grad_block < 0 && v->x.ldc == 32 && tensor_is_slice(&v->x));
      EXPECT(!concat_of(&net)->in[p].wanted);
      EXPECT((double *)v->x.data == (double *)whole->x.data + first[p]);
      EXPECT((double *)v->dx.data == (double *)whole->dx.data + first[p]);
    }
    net_close(&net);
  }
}

// Where parts are the whole's memory, what nodes declare is the whole.
TEST(pooling_concat_in_place_is_declared) {
  Net net, isolated;
  Isolation isolation;
  net_open(&net, build_batch_relu, 0, false);
  net_open(&isolated, build_batch_relu, 0, true);
  isolation_start(&isolation, &isolated.graph);
  net_run(&net);
  net_run(&isolated);
  size_t n;
  double *want = copy_gradients(&net.params, &n), *got = copy_gradients(&isolated.params, &n);
  EXPECT(isolation.damaged == 0 && net.loss == isolated.loss && !memcmp(want, got, n * sizeof *want));
  free(want);
  free(got);
  isolation_stop(&isolation, &isolated.graph);
  net_close(&net);
  net_close(&isolated);
}

// The residual's gradient is that of the whole as it is.
static void build_identity_reader(Net *net) {
  Graph *g = &net->graph;
  Value *x = stem(net, "stem", 4),
        *part[2] = {normed(net, "a", x, 8, true, false), normed(net, "b", x, 5, true, false)};
  Value *y = layer_concat(g, "concat", 2, part);
  net_loss(net, net_conv(net, "sum", net_conv(net, "c", x, 3, 1, 1, true, NULL), 13, 1, 1, false, y));
}
TEST(pooling_concat_in_place_of_a_residual) {
  check_net(build_identity_reader, ROUNDS);
  Net net;
  net_open(&net, build_identity_reader, 0, false);
  EXPECT(concat_of(&net)->in_place && concat_of(&net)->out[0]->alias);
  net_close(&net);
}

// Copied: a part that begins within a vector, one that another node reads, one of a convolution, ReLU beside none.
static void build_odd(Net *net, int c, bool read, bool conv, bool relu) {
  Value *x = stem(net, "stem", 4), *part[2] = {normed(net, "a", x, c, true, true), normed(net, "b", x, 8, true, relu)};
  if (conv) part[1] = net_conv(net, "conv", x, 8, 1, 1, true, NULL);
  net_loss(net, net_conv(net, "next", layer_concat(&net->graph, "concat", 2, part), 3, 1, 1, true, NULL));
  if (conv || read) net_loss(net, graph_find_value(&net->graph, conv ? "b" : "a"));
}
static void build_within(Net *net) { build_odd(net, 6, false, false, true); }
static void build_read(Net *net) { build_odd(net, 8, true, false, true); }
static void build_of_conv(Net *net) { build_odd(net, 8, false, true, true); }
static void build_mixed(Net *net) { build_odd(net, 8, false, false, false); }
TEST(pooling_concat_by_copy) {
  NetBuild *const builds[] = {build_within, build_read, build_of_conv, build_mixed};
  for (int i = 0; i < COUNT(builds); i++) {
    check_net(builds[i], ROUNDS);
    Net net;
    net_open(&net, builds[i], 0, false);
    EXPECT(!concat_of(&net)->in_place && concat_of(&net)->in[0].v->block >= 0);
    net_close(&net);
  }
}

// ---- a norm that pools ----------------------------------------------------------------------------------------------

// With 8 channels or 5, and a window at each border.
static void build_norm_pool(Net *net, bool batch) {
  Graph *g = &net->graph;
  Value *x = normed(net, "a", stem(net, "stem", 4), batch ? net_pick(net, 5, 9) : 2 * net_pick(net, 3, 5), batch, true);
  x = layer_max_pool(g, "floor", x, (Pool){3, 2, 1});
  net_loss(net, x);
  x = layer_max_pool_ceil(g, "ceil", normed(net, "b", x, 8, batch, true), (Pool){3, 2, 0});
  net_loss(net, net_conv(net, "c", x, 3, 1, 1, true, NULL));
}
static void build_batch_norm_pool(Net *net) { build_norm_pool(net, true); }
static void build_group_norm_pool(Net *net) { build_norm_pool(net, false); }
static void check_norm_pool(NetBuild *build) {
  check_net(build, ROUNDS);
  Net net;
  net_open(&net, build, 0, false);
  EXPECT(!graph_find_node(&net.graph, "floor") && !graph_find_node(&net.graph, "ceil"));
  const Value *y = graph_find_value(&net.graph, "floor");
  EXPECT(y && graph_find_node(&net.graph, "a")->out[0] == y && y->relu && y->dx.h == y->x.h);
  net_close(&net);
}
TEST(pooling_by_batch_norm) { check_norm_pool(build_batch_norm_pool); }
TEST(pooling_by_group_norm) { check_norm_pool(build_group_norm_pool); }

// Left to the pool's own node: without a ReLU, by other windows, or where another node reads the values.
static void build_apart(Net *net, bool relu, Pool pool, bool read) {
  Value *x = normed(net, "a", stem(net, "stem", 4), 8, true, relu);
  if (read) net_loss(net, net_conv(net, "side", x, 3, 1, 1, true, NULL));
  net_loss(net, layer_max_pool(&net->graph, "pool", x, pool));
}
static void build_no_relu(Net *net) { build_apart(net, false, (Pool){3, 2, 1}, false); }
static void build_other_window(Net *net) { build_apart(net, true, (Pool){2, 2, 0}, false); }
static void build_stride_1(Net *net) { build_apart(net, true, (Pool){3, 1, 1}, false); }
static void build_read_before(Net *net) { build_apart(net, true, (Pool){3, 2, 1}, true); }
TEST(pooling_apart_from_a_norm) {
  NetBuild *const builds[] = {build_no_relu, build_other_window, build_stride_1, build_read_before};
  for (int i = 0; i < COUNT(builds); i++) {
    Net net;
    net_open(&net, builds[i], 0, false);
    EXPECT(graph_find_node(&net.graph, "pool") && graph_find_node(&net.graph, "a")->saves == 1);
    net_close(&net);
  }
}

// A GPU's convolution pools its own output where that is a ReLU's, no gradient flows back through it, nobody else reads
// it, and it has 16 bits. test/cuda/conv/test_conv_pool.c looks at the values.
typedef struct PooledCase {
  bool trainable, relu, read, every_value;
  DType act;
  int nodes;
} PooledCase;
static void check_pooled(Device *gpu, const PooledCase *k) {
  Params params;
  Graph g;
  params_init(&params, gpu, k->act);
  graph_init(&g, gpu, &params, true);
  g.act = k->act;
  gpu->every_value = k->every_value;
  Value *image = graph_value(&g, "image", tensor(k->act, 2, 61, 47, 3));
  const ConvLayer conv = {
      .k = 24, .r = 7, .s = 7, .stride = 2, .pad = 3, .relu = k->relu, .bias = true, .trainable = k->trainable};
  Value *x = layer_conv(&g, "conv", image, &conv);
  if (k->read) layer_max_pool_ceil(&g, "other", x, (Pool){2, 2, 0});
  Value *y = layer_max_pool(&g, "pool", x, (Pool){3, 2, 1});
  gpu->every_value = false;
  EXPECT_INT(g.nodes, k->nodes);
  EXPECT(!strcmp(y->name, "pool") && (y == x) == (k->nodes == 1));
  EXPECT_INT(y->x.h, 16);
  EXPECT_INT(y->x.w, 12);
  EXPECT_INT(y->x.c, 24);
  EXPECT_NEAR(g.node[0]->type->flops(g.node[0], PASS_FORWARD), 2.0 * 2 * 31 * 24 * 24 * 49 * 3, 0);
  graph_free(&g);
  params_free(&params);
}
TEST(cuda_pooling_by_the_convolution) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  if (!gpu->wgmma) return test_skip("rung 05 needs a Hopper GPU, sm_90a");
  const PooledCase cases[] = {{false, true, false, false, BF16, 1},  {false, true, false, false, F16, 1},
                              {false, true, false, false, F32, 2},   {true, true, false, false, BF16, 2},
                              {false, false, false, false, BF16, 2}, {false, true, true, false, BF16, 3},
                              {false, true, false, true, BF16, 2}};
  for (int i = 0; i < COUNT(cases); i++) check_pooled(gpu, &cases[i]);
}
