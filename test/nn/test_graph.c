// Catches gradients lost, doubled or masked wrongly, and memory reused too early, when a graph is planned.
#include "test/harness/net.h"

enum { ROUNDS = 3 };

// A map's random shape; sides are odd or even, so that halves are rounded.
typedef struct Shape {
  int n, h, w, c;
} Shape;
static Shape pick_shape(Net *net) {
  return (Shape){net_pick(net, 1, 2), net_pick(net, 3, 7), net_pick(net, 3, 7), net_pick(net, 2, 9)};
}
static Value *stem(Net *net, const char *name, Shape s, bool relu) {
  return net_stem(net, name, s.n, s.h, s.w, s.c, relu);
}
static Value *pool(Net *net, const char *name, Value *x, int size, int stride, int pad) {
  return layer_max_pool(&net->graph, name, x, (Pool){size, stride, pad});
}

// ---- chains ---------------------------------------------------------------------------------------------------------

static void build_chain(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  x = net_conv(net, "a", x, net_pick(net, 1, 9), 3, 1, true, NULL);
  x = net_conv(net, "b", x, net_pick(net, 1, 9), 3, 2, false, NULL);
  net_loss(net, net_conv(net, "c", x, 3, 1, 1, false, NULL));
}
TEST(graph_chain) { check_net(build_chain, ROUNDS); }

static void build_pools(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  x = pool(net, "max", x, 3, 2, 1);
  x = net_conv(net, "a", x, 5, 3, 1, true, NULL);
  net_loss(net, pool(net, "subsample", x, 1, 2, 0));
}
TEST(graph_pools) { check_net(build_pools, ROUNDS); }

static void build_transposed(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  ConvLayer up = {.k = net_pick(net, 1, 9), .r = 2, .s = 2, .stride = 2, .relu = true, .bias = true, .trainable = true};
  up.init = INIT_LINEAR;
  up.transposed = true;
  x = layer_conv(&net->graph, "up", x, &up);
  net_loss(net, net_conv(net, "logits", x, 3, 1, 1, false, NULL));
}
TEST(graph_transposed) { check_net(build_transposed, ROUNDS); }

static void build_connected(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  ConvLayer fc = {.k = net_pick(net, 1, 9), .r = x->x.h, .s = x->x.w, .stride = 1, .connected = true, .relu = true};
  fc.bias = fc.trainable = true;
  fc.init = INIT_LINEAR;
  x = layer_conv(&net->graph, "fc6", x, &fc);
  net_loss(net, net_conv(net, "fc7", x, 4, 1, 1, false, NULL));
}
TEST(graph_connected) { check_net(build_connected, ROUNDS); }

// So deep that the input is a small share of the arena.
static void build_deep(Net *net) {
  Value *x = net_input(net, 1, 4, 4, 2);
  for (int i = 0; i < 12; i++) x = net_conv(net, graph_name(&net->graph, "conv%d", i), x, 64, 1, 1, true, NULL);
  net_loss(net, x);
}

TEST(graph_recomputes_inputs_of_deep_nets) {
  Net net;
  check_net(build_deep, 1);
  net_open(&net, build_deep, 0, false);
  const ArenaBlock *input = &net.graph.blocks[graph_find_value(&net.graph, "input")->block];
  int shared = 0; // blocks where the input stands
  for (int i = 0; i < net.graph.num_blocks; i++) shared += net.graph.blocks[i].offset == input->offset;
  EXPECT(graph_find_node(&net.graph, "conv0")->recompute && shared > 1);
  EXPECT_INT(input->idle_after, 1);
  EXPECT_INT(input->idle_before, graph_find_node(&net.graph, "conv0")->step[PASS_BACKWARD]);
  net_close(&net);
  net_open(&net, build_chain, 0, false);
  EXPECT(!graph_find_node(&net.graph, "stem")->recompute);
  net_close(&net);
}

// ---- residual blocks ------------------------------------------------------------------------------------------------

static void build_residual(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  for (int i = 0; i < 2; i++) {
    Value *y = net_conv(net, graph_name(&net->graph, "a%d", i), x, net_pick(net, 1, 9), 3, 1, true, NULL);
    x = net_conv(net, graph_name(&net->graph, "b%d", i), y, x->x.c, 3, 1, true, x);
  }
  net_loss(net, x);
}
TEST(graph_residual) { check_net(build_residual, ROUNDS); }

// The downsample's only consumer is the addition: its gradient is the block's own.
static void build_downsample(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  Value *shortcut = net_conv(net, "downsample", x, 6, 1, 2, false, NULL);
  Value *y = net_conv(net, "a", x, net_pick(net, 1, 9), 3, 2, true, NULL);
  net_loss(net, net_conv(net, "b", y, 6, 3, 1, true, shortcut));
}
TEST(graph_downsample) { check_net(build_downsample, ROUNDS); }

TEST(graph_alias_takes_no_memory) {
  Net net;
  net_open(&net, build_downsample, 0, false);
  const Value *shortcut = graph_find_value(&net.graph, "downsample"), *y = graph_find_value(&net.graph, "b");
  EXPECT(shortcut->alias == y && shortcut->grad_block < 0 && shortcut->dx.data == y->dx.data);
  net_close(&net);
}

// Gradients that are each other's along a chain of additions.
static void build_alias_chain(Net *net) {
  Shape s = pick_shape(net);
  Value *x = NULL;
  for (int i = 0; i < 4; i++) {
    Value *side = stem(net, graph_name(&net->graph, "side%d", i), s, true);
    x = net_conv(net, graph_name(&net->graph, "sum%d", i), side, 5, 1, 1, false, x);
  }
  net_loss(net, x);
}
TEST(graph_alias_chain) { check_net(build_alias_chain, ROUNDS); }

// ---- several contributions ------------------------------------------------------------------------------------------

static Value *consume(Net *net, const char *name, Value *x, bool identity) {
  if (!identity) return net_conv(net, name, x, net_pick(net, 1, 9), 3, 1, true, NULL);
  Shape s = {x->x.n, x->x.h, x->x.w, 3};
  return net_conv(net, name, stem(net, graph_name(&net->graph, "%s.stem", name), s, true), x->x.c, 3, 1, false, x);
}

// One consumer a letter: d dense, i identity; in the order in which they are appended.
static void build_consumers(Net *net, const char *order, bool relu) {
  Value *x = stem(net, "stem", pick_shape(net), relu);
  for (int i = 0; order[i]; i++) net_loss(net, consume(net, graph_name(&net->graph, "use%d", i), x, order[i] == 'i'));
}
// clang-format off
static void build_d(Net *net) { build_consumers(net, "d", true); }
static void build_i(Net *net) { build_consumers(net, "i", true); }
static void build_di(Net *net) { build_consumers(net, "di", true); }
static void build_id(Net *net) { build_consumers(net, "id", true); }
static void build_ii(Net *net) { build_consumers(net, "ii", true); }
static void build_dd(Net *net) { build_consumers(net, "dd", true); }
static void build_ddd(Net *net) { build_consumers(net, "ddd", true); }
static void build_iii(Net *net) { build_consumers(net, "iii", true); }
static void build_did(Net *net) { build_consumers(net, "did", true); }
static void build_idi(Net *net) { build_consumers(net, "idi", true); }
static void build_iid(Net *net) { build_consumers(net, "iid", true); }
static void build_dii(Net *net) { build_consumers(net, "dii", true); }
static void build_plain_i(Net *net) { build_consumers(net, "i", false); }
static void build_plain_id(Net *net) { build_consumers(net, "id", false); }
static void build_plain_ii(Net *net) { build_consumers(net, "ii", false); }
// clang-format on
TEST(graph_mask_of_one) {
  check_net(build_d, ROUNDS);
  check_net(build_i, ROUNDS);
}
TEST(graph_mask_of_two) {
  NetBuild *const builds[] = {build_dd, build_di, build_id, build_ii};
  for (int i = 0; i < COUNT(builds); i++) check_net(builds[i], ROUNDS);
}
TEST(graph_mask_of_three) {
  NetBuild *const builds[] = {build_ddd, build_iii, build_did, build_idi, build_iid, build_dii};
  for (int i = 0; i < COUNT(builds); i++) check_net(builds[i], 1);
}
TEST(graph_contributions_without_mask) {
  NetBuild *const builds[] = {build_plain_i, build_plain_id, build_plain_ii};
  for (int i = 0; i < COUNT(builds); i++) check_net(builds[i], ROUNDS);
}

// conv(x) + x as one node.
static void build_own_addend(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  net_loss(net, net_conv(net, "a", x, x->x.c, 3, 1, true, x));
}
TEST(graph_own_addend) { check_net(build_own_addend, ROUNDS); }

// A loss reads a value that others read too.
static void build_loss_inside(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  net_loss(net, x);
  Value *y = net_conv(net, "a", x, x->x.c, 3, 1, true, x);
  net_loss(net, y);
  net_loss(net, x);
}
TEST(graph_loss_inside) { check_net(build_loss_inside, ROUNDS); }

// A sparse contribution leaves most of dx alone: asked to write first, or to apply the mask last, it visits everything.
static void build_sparse(Net *net, bool sparse_appended_first, bool by_pool) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  if (!sparse_appended_first) net_loss(net, net_conv(net, "dense", x, 4, 3, 1, true, NULL));
  net_loss(net, by_pool ? pool(net, "sparse", x, 1, 2, 0) : net_conv(net, "sparse", x, 4, 1, 2, true, NULL));
  if (sparse_appended_first) net_loss(net, net_conv(net, "dense", x, 4, 3, 1, true, NULL));
}
static void build_sparse_conv_first(Net *net) { build_sparse(net, true, false); }
static void build_sparse_conv_last(Net *net) { build_sparse(net, false, false); }
static void build_sparse_pool_first(Net *net) { build_sparse(net, true, true); }
static void build_sparse_pool_last(Net *net) { build_sparse(net, false, true); }
TEST(graph_sparse) {
  NetBuild *const builds[] = {build_sparse_conv_first, build_sparse_conv_last, build_sparse_pool_first,
                              build_sparse_pool_last};
  for (int i = 0; i < COUNT(builds); i++) check_net(builds[i], ROUNDS);
}

// ---- pyramids -------------------------------------------------------------------------------------------------------

static void build_pyramid(Net *net) {
  enum { LEVELS = 3 };
  Graph *g = &net->graph;
  Value *c[LEVELS],
      *x = stem(net, "stem", (Shape){net_pick(net, 1, 2), net_pick(net, 7, 13), net_pick(net, 7, 13), 4}, true);
  for (int l = 0; l < LEVELS; l++)
    c[l] = x = net_conv(net, graph_name(g, "c%d", l), x, 3 + l, 3, l ? 2 : 1, true, NULL);
  Value *top = NULL;
  for (int l = LEVELS - 1; l >= 0; l--) {
    top = net_conv(net, graph_name(g, "inner%d", l), c[l], 5, 1, 1, false, top);
    Value *p = net_conv(net, graph_name(g, "layer%d", l), top, 5, 3, 1, false, NULL);
    net_loss(net, p);
    if (l == LEVELS - 1) net_loss(net, pool(net, "p6", p, 1, 2, 0));
  }
}
TEST(graph_pyramid) { check_net(build_pyramid, ROUNDS); }

// The coarse map is used by nothing but the additions: upsampled alone, with a mask, and beside one of the same size.
static void build_upsampled(Net *net, bool relu, int same_size) {
  Shape s = pick_shape(net), half = {s.n, (s.h + 1) / 2, (s.w + 1) / 2, 5};
  Value *coarse = stem(net, "coarse", half, relu);
  if (same_size == 1) net_loss(net, net_conv(net, "same", stem(net, "same.stem", half, true), 5, 1, 1, true, coarse));
  net_loss(net, net_conv(net, "fine", stem(net, "fine.stem", s, true), 5, 1, 1, true, coarse));
  if (same_size == 2) net_loss(net, net_conv(net, "same", stem(net, "same.stem", half, true), 5, 1, 1, true, coarse));
}
static void build_up(Net *net) { build_upsampled(net, false, 0); }
static void build_up_mask(Net *net) { build_upsampled(net, true, 0); }
static void build_up_after(Net *net) { build_upsampled(net, true, 1); }
static void build_up_before(Net *net) { build_upsampled(net, false, 2); }
TEST(graph_upsampled) {
  NetBuild *const builds[] = {build_up, build_up_mask, build_up_after, build_up_before};
  for (int i = 0; i < COUNT(builds); i++) check_net(builds[i], ROUNDS);
}

// ---- shared weights -------------------------------------------------------------------------------------------------

static void build_shared_levels(Net *net) {
  enum { LEVELS = 3 };
  Graph *g = &net->graph;
  Value *x[LEVELS], *hidden[LEVELS], *y[LEVELS];
  int n = net_pick(net, 1, 2);
  for (int l = 0; l < LEVELS; l++)
    x[l] = net_stem(net, graph_name(g, "stem%d", l), n, net_pick(net, 1, 6), net_pick(net, 1, 6), 4, l == 1);
  ConvLayer conv = {.k = 6, .r = 3, .s = 3, .stride = 1, .pad = 1, .relu = true, .bias = true, .trainable = true};
  conv.init = INIT_LINEAR;
  layer_conv_shared(g, "hidden", LEVELS, x, hidden, &conv);
  net_loss(net, x[1]); // one level's gradient has another contribution
  conv.relu = false;
  conv.k = 2;
  conv.r = conv.s = 1;
  conv.pad = 0;
  layer_conv_shared(g, "logits", LEVELS, hidden, y, &conv);
  for (int l = 0; l < LEVELS; l++) net_loss(net, y[l]);
}
TEST(graph_shared_levels) { check_net(build_shared_levels, ROUNDS); }

static void build_used_twice(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  for (int i = 0; i < 3; i++) x = net_conv(net, "same", x, x->x.c, 3, 1, true, NULL);
  net_loss(net, x);
}
TEST(graph_parameter_used_thrice) { check_net(build_used_twice, ROUNDS); }

// ---- norms ----------------------------------------------------------------------------------------------------------

static Value *norm(Net *net, const char *name, Value *x, bool batch, bool relu, Value *addend) {
  NormLayer layer = {.batch = batch, .groups = 2, .eps = 1e-5f, .momentum = 0.1f, .relu = relu, .trainable = true};
  layer.addend = addend;
  return layer_norm(&net->graph, name, x, &layer);
}
static Value *unbiased(Net *net, const char *name, Value *x, int taps, int stride) {
  ConvLayer conv = {.k = 6, .r = taps, .s = taps, .stride = stride, .pad = taps / 2, .trainable = true};
  conv.init = INIT_KAIMING_NORMAL;
  return layer_conv(&net->graph, name, x, &conv);
}
// A residual block with a downsample, then one without.
static void build_normed(Net *net, bool batch) {
  Value *x = stem(net, "stem", (Shape){2, net_pick(net, 5, 8), net_pick(net, 5, 8), 3}, true);
  Value *shortcut = norm(net, "bn0", unbiased(net, "down", x, 1, 2), batch, false, NULL);
  Value *y = norm(net, "bn1", unbiased(net, "conv1", x, 3, 2), batch, true, NULL);
  y = norm(net, "bn2", unbiased(net, "conv2", y, 3, 1), batch, true, shortcut);
  net_loss(net, norm(net, "bn3", unbiased(net, "conv3", y, 3, 1), batch, true, y));
}
// A shortcut whose norm is a part of the block's last.
static void build_norm_pair(Net *net, bool batch) {
  Value *x = stem(net, "stem", (Shape){2, net_pick(net, 5, 8), net_pick(net, 5, 8), 3}, true);
  NormLayer layer = {.batch = batch, .groups = 2, .eps = 1e-5f, .momentum = 0.1f, .relu = true, .trainable = true};
  layer.addend = unbiased(net, "down", x, 1, 2);
  Value *y = norm(net, "bn1", unbiased(net, "conv1", x, 3, 2), batch, true, NULL);
  y = layer_norm_pair(&net->graph, "bn2", unbiased(net, "conv2", y, 3, 1), "bn0", &layer);
  net_loss(net, norm(net, "bn3", unbiased(net, "conv3", y, 3, 1), batch, true, y));
}
static void build_group_norm_pair(Net *net) { build_norm_pair(net, false); }
static void build_batch_norm_pair(Net *net) { build_norm_pair(net, true); }
static void build_group_norm(Net *net) { build_normed(net, false); }
static void build_batch_norm(Net *net) { build_normed(net, true); }
TEST(graph_group_norm) { check_net(build_group_norm, ROUNDS); }
TEST(graph_group_norm_pair) { check_net(build_group_norm_pair, ROUNDS); }
TEST(graph_batch_norm_pair) { check_net(build_batch_norm_pair, ROUNDS); }
TEST(graph_batch_norm) { check_net(build_batch_norm, ROUNDS); }

static void build_folded(Net *net) {
  Graph *g = &net->graph;
  Value *x = stem(net, "stem", pick_shape(net), true);
  ConvLayer conv = {.k = x->x.c, .r = 3, .s = 3, .stride = 1, .pad = 1, .relu = true, .trainable = true};
  conv.init = INIT_KAIMING_NORMAL;
  conv.fold_eps = 1e-5f;
  for (int i = 0; i < 2; i++) {
    conv.addend = x;
    conv.fold = graph_name(g, "bn%d", i);
    x = layer_conv(g, graph_name(g, "conv%d", i), x, &conv);
  }
  net_loss(net, x);
}
TEST(graph_folded_norm) { check_net(build_folded, ROUNDS); }

// ---- frozen ---------------------------------------------------------------------------------------------------------

static void build_frozen(Net *net) {
  Graph *g = &net->graph;
  Shape s = pick_shape(net);
  ConvLayer conv = {.k = 5, .r = 3, .s = 3, .stride = 1, .pad = 1, .relu = true, .bias = true, .init = INIT_LINEAR};
  Value *x = layer_conv(g, "frozen.a", net_input(net, s.n, s.h, s.w, 3), &conv);
  conv.addend = x;
  x = layer_conv(g, "frozen.b", x, &conv);
  Value *y = net_conv(net, "first", x, 4, 3, 1, true, NULL);
  conv.addend = NULL; // frozen, but between two that are not
  y = layer_conv(g, "passed", y, &conv);
  net_loss(net, net_conv(net, "last", y, 5, 1, 1, false, x));
}
TEST(graph_frozen) {
  check_net(build_frozen, ROUNDS);
  Net net;
  net_open(&net, build_frozen, 0, false);
  const Graph *g = &net.graph;
  for (int i = 0; i < g->nodes; i++) {
    const Node *n = g->node[i];
    bool frozen = !strncmp(n->name, "frozen", 6) || !strcmp(n->name, "input");
    EXPECT(n->runs_backward == !frozen);
    for (int j = 0; frozen && j < n->outs; j++) EXPECT(n->out[j]->grad_block < 0 && !n->out[j]->dx.data);
  }
  EXPECT(!params_find(&net.params, "passed.weight")->trainable);
  net_close(&net);
}

// What nothing trainable depends on, or no loss, takes no part in the backward walk.
static void build_dead_end(Net *net) {
  Value *x = stem(net, "stem", pick_shape(net), true);
  net_conv(net, "unused", x, 3, 3, 1, true, NULL);
  net_loss(net, net_conv(net, "used", x, 3, 3, 1, true, NULL));
}
TEST(graph_dead_end) {
  Net net;
  net_open(&net, build_dead_end, 0, false);
  net_run(&net);
  EXPECT_INT(graph_find_value(&net.graph, "stem")->contributions, 1);
  EXPECT(isnan(*(double *)params_find(&net.params, "unused.weight")->grad.data));
  EXPECT(isfinite(*(double *)params_find(&net.params, "used.weight")->grad.data));
  net_close(&net);
}

// A value that is to be kept, and that no node writes, takes no memory.
static void build_untouched(Net *net) {
  build_dead_end(net);
  graph_value(&net->graph, "nobody's", tensor(net->graph.act, 4, 64, 64, 8))->keep = true;
}
TEST(graph_keeps_nothing_that_no_node_touches) {
  Net with, without;
  net_open(&with, build_untouched, 0, false);
  net_open(&without, build_dead_end, 0, false);
  EXPECT(with.graph.bytes > 0 && with.graph.bytes == without.graph.bytes);
  net_close(&with);
  net_close(&without);
}

// ---- several graphs over one set of parameters ----------------------------------------------------------------------

// As an engine has one graph per canvas: each writes the gradients anew, whichever ran before.
TEST(graph_two_over_one_set) {
  Err err;
  Net net = {.dev = device_open("cpu64", &err), .key = 5}, other;
  params_init(&net.params, net.dev, net.dev->real);
  other = net;
  graph_init(&net.graph, net.dev, &net.params, true);
  graph_init(&other.graph, net.dev, &net.params, true);
  net_loss(&net, net_conv(&net, "a", net_input(&net, 1, 4, 4, 3), 5, 3, 1, true, NULL));
  net_loss(&other, net_conv(&other, "a", net_input(&other, 2, 5, 3, 3), 5, 3, 1, true, NULL));
  graph_plan(&net.graph);
  graph_plan(&other.graph);
  CHECK(params_allocate(&net.params, &err));
  graph_measure(&net.graph);
  graph_measure(&other.graph);
  CHECK(device_reserve_workspace(net.dev, &err));
  net.arena = device_alloc(net.dev, MAX(net.graph.bytes, other.graph.bytes));
  graph_bind(&net.graph, net.arena);
  graph_bind(&other.graph, net.arena);
  params_randomise(&net.params, 1);
  Graph *order[] = {&net.graph, &other.graph, &net.graph, &other.graph};
  double *gradients[COUNT(order)];
  size_t n;
  for (int i = 0; i < COUNT(order); i++) {
    graph_forward(order[i]);
    graph_backward(order[i]);
    gradients[i] = copy_gradients(&net.params, &n);
  }
  EXPECT(!memcmp(gradients[0], gradients[2], n * sizeof(double)));
  EXPECT(!memcmp(gradients[1], gradients[3], n * sizeof(double)));
  EXPECT(memcmp(gradients[0], gradients[1], n * sizeof(double)) != 0);
  for (int i = 0; i < COUNT(order); i++) free(gradients[i]);
  for (int i = 0; i < other.tensors; i++) test_tensor_free(&other.tensor[i]);
  graph_free(&other.graph);
  net_close(&net);
}

// ---- poison ---------------------------------------------------------------------------------------------------------

// The aid itself: a value read after its life is NaN.
TEST(graph_poison_shows_late_reads) {
  Net net;
  net_open(&net, build_chain, 0, true);
  net_run(&net);
  const Value *x = graph_find_value(&net.graph, "a");
  EXPECT(isfinite(net.loss) && isnan(*(double *)x->x.data) && isnan(*(double *)x->dx.data));
  net_close(&net);
}

// ---- observers ------------------------------------------------------------------------------------------------------

typedef struct Witness Witness;
struct Witness {
  Observer observer;
  const Witness *earlier; // was called before this one
  const Node *running;
  int begun[PASSES], ended[PASSES], ran[PASSES], calls;
};

static void see_begin(Observer *o, Graph *g, Pass pass) {
  (void)g;
  ((Witness *)o)->begun[pass]++;
}
static void see_before(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)g;
  Witness *w = (Witness *)o;
  EXPECT(!w->running && w->begun[pass] == w->ended[pass] + 1);
  w->running = n;
  w->calls++;
  if (w->earlier) EXPECT(w->earlier->calls == w->calls);
}
static void see_after(Observer *o, Graph *g, Node *n, Pass pass) {
  (void)g;
  Witness *w = (Witness *)o;
  EXPECT(w->running == n);
  w->running = NULL;
  w->ran[pass]++;
}
static void see_end(Observer *o, Graph *g, Pass pass) {
  (void)g;
  ((Witness *)o)->ended[pass]++;
}

// Every node that runs, around it, in the order in which observers came; one that went sees nothing.
TEST(graph_observers) {
  static const Observer all = {.begin = see_begin, .before = see_before, .after = see_after, .end = see_end};
  Net net;
  net_open(&net, build_frozen, 0, false);
  Graph *g = &net.graph;
  Witness first = {.observer = all}, second = {.observer = all, .earlier = &first};
  int backward = 0;
  for (int i = 0; i < g->nodes; i++) backward += g->node[i]->runs_backward;
  graph_observe(g, &first.observer);
  graph_observe(g, &second.observer);
  net_run(&net);
  const Witness *both[] = {&first, &second};
  for (int i = 0; i < COUNT(both); i++) {
    EXPECT_INT(both[i]->ran[PASS_FORWARD], g->nodes);
    EXPECT_INT(both[i]->ran[PASS_BACKWARD], backward);
    for (Pass p = 0; p < PASSES; p++) EXPECT(both[i]->begun[p] == 1 && both[i]->ended[p] == 1);
  }
  graph_unobserve(g, &first.observer);
  second.earlier = NULL;
  graph_forward(g);
  EXPECT_INT(first.ran[PASS_FORWARD], g->nodes);
  EXPECT_INT(second.ran[PASS_FORWARD], 2 * g->nodes);
  graph_unobserve(g, &second.observer);
  graph_unobserve(g, &first.observer); // watches it no longer
  EXPECT(!g->observers);
  net_close(&net);
}

// The list as people read it: what a node reads, and the shape of what it writes.
TEST(graph_prints_its_list) {
  Net net;
  net_open(&net, build_frozen, 0, false);
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out);
  graph_print(&net.graph, out);
  fclose(out);
  const Value *y = graph_find_value(&net.graph, "last");
  char line[128];
  snprintf(line, sizeof line, "last: passed frozen.b -> last[%d,%d,%d,%d]\n", y->x.n, y->x.h, y->x.w, y->x.c);
  if (!EXPECT(strstr(text, line) && strstr(text, "  (forward only)"))) printf("%s", text);
  free(text);
  net_close(&net);
}
