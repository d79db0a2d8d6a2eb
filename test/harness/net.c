#include "test/harness/net.h"
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gradcheck.h"

enum { MAX_THREADS = 3 };

// ---- nodes ----------------------------------------------------------------------------------------------------------

typedef struct FeedAttr {
  Tensor data;
} FeedAttr;

static void feed_forward(Graph *g, Node *n) {
  Dest y = value_dest(n->out[0]);
  g->dev->ops->copy(g->dev, &NODE_ATTR(n, FeedAttr)->data, &y);
}

static const NodeType feed_node = {
    .name = "feed", .attr_size = sizeof(FeedAttr), .forward = feed_forward, .recomputed = true};

typedef struct LossAttr {
  Net *net;
  Tensor r;
} LossAttr;

static void loss_forward(Graph *g, Node *n) {
  const LossAttr *a = NODE_ATTR(n, LossAttr);
  if (g->dev->measuring) return;
  double magnitude;
  a->net->loss += weighted_sum(&a->r, &n->in[0].v->x, &magnitude);
  a->net->magnitude += magnitude;
}

static void loss_backward(Graph *g, Node *n) {
  if (!n->in[0].wanted) return;
  Dest dx = node_dest(n, 0);
  g->dev->ops->copy(g->dev, &NODE_ATTR(n, LossAttr)->r, &dx);
}

static const NodeType loss_node = {.name = "weighted_sum",
                                   .attr_size = sizeof(LossAttr),
                                   .forward = loss_forward,
                                   .backward = loss_backward,
                                   .source = true};

static Tensor outside(Net *net, int n, int h, int w, int c) {
  CHECK(net->tensors < MAX_NET_TENSORS);
  Tensor t = test_tensor(net->dev->real, n, h, w, c);
  test_fill(&t, rng_key(net->key, net->draws++), -1, 1);
  return net->tensor[net->tensors++] = t;
}

// ---- building -------------------------------------------------------------------------------------------------------

int net_pick(Net *net, int low, int high) {
  return low + (int)(rng_u32(rng_key(net->key, RNG_TEST), net->draws++) % (uint32_t)(high - low + 1));
}

Value *net_input(Net *net, int n, int h, int w, int c) {
  Graph *g = &net->graph;
  Node *node = graph_node(g, &feed_node, "input");
  NODE_ATTR(node, FeedAttr)->data = outside(net, n, h, w, c);
  Value *v = graph_value(g, "input", tensor(g->act, n, h, w, c));
  node_out(node, v);
  return v;
}

void net_loss(Net *net, Value *y) {
  Node *n = graph_node(&net->graph, &loss_node, "loss");
  *NODE_ATTR(n, LossAttr) = (LossAttr){.net = net, .r = outside(net, y->x.n, y->x.h, y->x.w, y->x.c)};
  node_in(n, y, FLOW_DENSE);
}

Value *net_conv(Net *net, const char *name, Value *x, int k, int taps, int stride, bool relu, Value *addend) {
  return layer_conv(&net->graph, name, x,
                    &(ConvLayer){.k = k,
                                 .r = taps,
                                 .s = taps,
                                 .stride = stride,
                                 .pad = taps / 2,
                                 .relu = relu,
                                 .bias = true,
                                 .trainable = true,
                                 .init = INIT_LINEAR,
                                 .addend = addend});
}

Value *net_stem(Net *net, const char *name, int n, int h, int w, int c, bool relu) {
  return net_conv(net, name, net_input(net, n, h, w, net_pick(net, 1, 4)), c, 1, 1, relu, NULL);
}

static void draw_parameters(Net *net) {
  Params *p = &net->params;
  params_randomise(p, net->key);
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (q->ndim != 1) continue;
    double low = q->init == INIT_ONE ? 0.5 : -0.5;
    test_fill(&q->master, rng_key(net->key, 1000 + (uint64_t)i), low, low + 1);
  }
  params_refresh(p);
}

void net_open(Net *net, NetBuild *build, uint64_t key, bool poison) {
  Err err;
  *net = (Net){.dev = device_open("cpu64", &err), .key = rng_key(RNG_TEST, key)};
  CHECK(net->dev);
  params_init(&net->params, net->dev, net->dev->real);
  graph_init(&net->graph, net->dev, &net->params, true);
  build(net);
  graph_plan(&net->graph);
  if (poison) poison_start(&net->poison, &net->graph);
  CHECK(params_allocate(&net->params, &err));
  graph_measure(&net->graph);
  net->arena = device_alloc(net->dev, net->graph.bytes);
  CHECK(net->arena && device_reserve_workspace(net->dev, &err));
  graph_bind(&net->graph, net->arena);
  draw_parameters(net);
}

void net_close(Net *net) {
  for (int i = 0; i < net->tensors; i++) test_tensor_free(&net->tensor[i]);
  graph_free(&net->graph);
  params_free(&net->params);
  device_free(net->dev, net->arena);
  device_close(net->dev);
}

// ---- running --------------------------------------------------------------------------------------------------------

static double net_forward(Net *net) {
  net->loss = net->magnitude = 0;
  graph_forward(&net->graph);
  return net->loss;
}

void net_run(Net *net) {
  memset(net->params.grad, 0xff, net->params.trainable * sizeof(double));
  net_forward(net);
  graph_backward(&net->graph);
}

size_t param_element(const Param *q, size_t i) {
  size_t c = (size_t)q->master.c, ldc = (size_t)q->master.ldc;
  return i / c * ldc + i % c;
}

double *copy_gradients(const Params *p, size_t *n) {
  double *copy = xcalloc(p->trainable, sizeof *copy);
  *n = 0;
  for (int i = 0; i < p->n; i++)
    if (p->list[i]->trainable)
      for (size_t j = 0; j < param_elements(p->list[i]); j++)
        copy[(*n)++] = ((double *)p->list[i]->grad.data)[param_element(p->list[i], j)];
  return copy;
}

// ---- checks ---------------------------------------------------------------------------------------------------------

// f' from both sides at one element. Between kinks (ReLU, maximum) f is smooth. A kink within h turns one of the
// one-sided slopes by J · (share of h beyond it) and the central one by half of that; curvature turns both by h ·
// f''/2, in opposite directions. So what the one-sided slopes disagree by bounds what is wrong with the central one,
// but for rounding: f is a sum of absolute value `magnitude`, at most 1000 operations deep, each off by the unit
// roundoff.
static void check_element(Net *net, double *w, double dw, int *rough) {
  const double h = 0x1p-18, value = *w;
  double here = net_forward(net), rounding = 2 * 1000 * unit_roundoff(F64) * net->magnitude / h;
  *w = value + h;
  params_refresh(&net->params);
  double above = (net_forward(net) - here) / h;
  *w = value - h;
  params_refresh(&net->params);
  double below = (here - net_forward(net)) / h, apart = fabs(above - below);
  *w = value;
  params_refresh(&net->params);
  EXPECT_NEAR(dw, (above + below) / 2, rounding + apart);
  *rough += apart > 1e-3 * (1 + fabs(dw));
}

// Some elements of every parameter; hardly any may sit at a kink, or the check would say little.
static void check_gradients(Net *net) {
  enum { MOST = 6 };
  size_t n;
  int rough = 0, checked = 0;
  double *gradients = copy_gradients(&net->params, &n), *next = gradients;
  for (int i = 0; i < net->params.n; i++) {
    const Param *q = net->params.list[i];
    if (!q->trainable) continue;
    size_t size = param_elements(q), step = size / MOST + 1;
    for (size_t j = (size_t)i % step; j < size; j += step, checked++)
      check_element(net, (double *)q->master.data + param_element(q, j), next[j], &rough);
    next += size;
  }
  EXPECT(checked > 0 && rough * 10 <= checked);
  free(gradients);
}

static void expect_same_walk(Net *net, double loss, const double *gradients, size_t n) {
  net_run(net);
  size_t again;
  double *now = copy_gradients(&net->params, &again);
  EXPECT_INT(memcmp(&net->loss, &loss, sizeof loss), 0);
  EXPECT(again == n && memcmp(now, gradients, n * sizeof *now) == 0);
  free(now);
}

static void check_round(NetBuild *build, uint64_t round) {
  Net net, poisoned;
  omp_set_num_threads(MAX_THREADS); // workspace is measured for as many
  net_open(&net, build, round, false);
  net_open(&poisoned, build, round, true);
  omp_set_num_threads(1); // the nets are so small that starting threads takes longer than the work
  net_run(&net);
  size_t n;
  double loss = net.loss, *gradients = copy_gradients(&net.params, &n);
  check_gradients(&net);
  for (int walk = 0; walk < 2; walk++) expect_same_walk(&poisoned, loss, gradients, n);
  for (int walk = 0; walk < 2; walk++) {
    omp_set_num_threads(walk ? MAX_THREADS - (int)round % MAX_THREADS : 1);
    expect_same_walk(&net, loss, gradients, n);
  }
  net_close(&net);
  net_close(&poisoned);
  free(gradients);
}

void check_net(NetBuild *build, int rounds) {
  int threads = omp_get_max_threads();
  for (int round = 0; round < rounds; round++) check_round(build, (uint64_t)round);
  omp_set_num_threads(threads);
}
