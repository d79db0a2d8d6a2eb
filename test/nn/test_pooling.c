// Layers of pooling and concatenation inside a graph.
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
