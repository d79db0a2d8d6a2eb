// Catches dropout, losses and Adam that go wrong inside a graph although the ops are right.
#include "exact/sgd_slots.h"
#include "nn/layers.h"
#include "test/harness/isolation.h"
#include "test/harness/net.h"

enum { ROUNDS = 3, IMAGES = 6, CLASSES = 5 };
static const int labels[IMAGES] = {0, 3, -1, 4, 1, 2};

// ---- dropout ----------------------------------------------------------------------------------------------------

static uint64_t step;

static void build_dropout(Net *net) {
  net->graph.seed = net->key;
  net->graph.step = &step;
  Value *x = net_stem(net, "stem", 2, net_pick(net, 2, 5), net_pick(net, 2, 5), 9, true);
  Value *y = layer_dropout(&net->graph, "drop", x, 0.4f);
  net_loss(net, net_conv(net, "a", y, 4, 3, 1, true, NULL));
  net_loss(net, net_conv(net, "b", x, 4, 1, 1, false, NULL));
}
TEST(classifier_dropout) {
  step = 3;
  check_net(build_dropout, ROUNDS);
}

TEST(classifier_dropout_draws_by_step_and_seed) {
  Net net;
  step = 0;
  net_open(&net, build_dropout, 0, false);
  net_run(&net);
  const double first = net.loss;
  step = 1;
  net_run(&net);
  EXPECT(net.loss != first);
  step = 0;
  net_run(&net);
  EXPECT(net.loss == first);
  net.graph.seed++;
  net_run(&net);
  EXPECT(net.loss != first);
  net_close(&net);
}

TEST(classifier_dropout_is_of_training_alone) {
  Net net;
  net_open(&net, build_dropout, 0, false);
  Graph g;
  for (int training = 0; training < 2; training++) {
    graph_init(&g, net.dev, &net.params, training);
    Value *x = graph_value(&g, "x", tensor(F64, 1, 1, 1, 8));
    EXPECT((layer_dropout(&g, "drop", x, 0.5f) == x) == !training);
    EXPECT(layer_dropout(&g, "none", x, 0) == x);
    graph_free(&g);
  }
  net_close(&net);
}

// ---- loss -------------------------------------------------------------------------------------------------------

typedef struct ReadAttr {
  Net *net;
} ReadAttr;

// Adds losses to what check_net differentiates.
static void read_forward(Graph *g, Node *n) {
  Net *net = NODE_ATTR(n, ReadAttr)->net;
  if (g->dev->measuring) return;
  const double *loss = n->in[0].v->x.data;
  for (int i = 0; i < n->in[0].v->x.c; i++) {
    net->loss += loss[i];
    net->magnitude += fabs(loss[i]);
  }
}
static const NodeType read_node = {.name = "read", .attr_size = sizeof(ReadAttr), .forward = read_forward};

// A head and an auxiliary one.
static void build_class_loss(Net *net) {
  Graph *g = &net->graph;
  Value *x = net_stem(net, "stem", IMAGES, 3, 2, 6, true), *y = graph_labels(g, "labels");
  y->labels = labels;
  Value *losses = graph_value(g, "losses", tensor_packed(F64, 1, 2));
  const ClassLoss of[] = {{.smoothing = 0.1f, .weight = 1}, {.weight = 0.3f}};
  for (int i = 0; i < 2; i++) {
    Value *pooled = layer_adaptive_avg_pool(g, graph_name(g, "pool%d", i), x, 1, 1);
    Value *logits = net_conv(net, graph_name(g, "fc%d", i), pooled, CLASSES, 1, 1, false, NULL);
    layer_class_loss(g, graph_name(g, "loss%d", i), logits, y, &of[i], losses, i,
                     graph_hits(g, graph_name(g, "hits%d", i)));
    layer_class_probs(g, graph_name(g, "probs%d", i), logits)->keep = true;
  }
  Node *n = graph_node(g, &read_node, "read");
  NODE_ATTR(n, ReadAttr)->net = net;
  node_in(n, losses, FLOW_NONE);
}
TEST(classifier_loss) { check_net(build_class_loss, ROUNDS); }

TEST(classifier_loss_declares_all) {
  Net net;
  Isolation isolation;
  net_open(&net, build_class_loss, 0, true);
  net_run(&net);
  const double loss = net.loss;
  isolation_start(&isolation, &net.graph);
  net_run(&net);
  EXPECT(isolation.damaged == 0 && net.loss == loss);
  isolation_stop(&isolation, &net.graph);
  net_close(&net);
}

// The number of images whose largest probability is their label's is that of the hits.
TEST(classifier_hits_and_probabilities) {
  Net net;
  net_open(&net, build_class_loss, 0, false);
  net_run(&net);
  for (int head = 0; head < 2; head++) {
    const double *probs = graph_find_value(&net.graph, head ? "probs1" : "probs0")->x.data;
    const Hits *hits = &graph_find_value(&net.graph, head ? "hits1" : "hits0")->hits;
    int right = 0;
    for (int i = 0; i < IMAGES; i++) {
      int best = 0;
      double sum = 0;
      for (int c = 0; c < CLASSES; c++) {
        sum += probs[i * CLASSES + c];
        if (probs[i * CLASSES + c] > probs[i * CLASSES + best]) best = c;
      }
      EXPECT_NEAR(sum, 1, 2 * CLASSES * unit_roundoff(F64));
      right += best == labels[i];
    }
    EXPECT_INT(*hits->top1, right);
    EXPECT_INT(*hits->top5, IMAGES - 1); // of five classes all are among the five; one image does not count
  }
  net_close(&net);
}

// ---- Adam -------------------------------------------------------------------------------------------------------

static void build_with_adam(Net *net) {
  net->params.adam = true;
  build_class_loss(net);
}

// Its memory is the parameters', and the loss falls.
TEST(classifier_learns_by_adam) {
  Net net, plain;
  net_open(&net, build_with_adam, 0, false);
  net_open(&plain, build_class_loss, 0, false);
  Params *p = &net.params;
  EXPECT_INT(p->bytes, plain.params.bytes + (p->trainable + PARAM_ALIGN) * sizeof(double));
  EXPECT(!plain.params.second && !plain.params.list[0]->second.data);
  const Param *q = params_find(p, "fc0.weight");
  EXPECT((char *)q->second.data - (char *)p->second == (char *)q->momentum.data - (char *)p->momentum);
  EXPECT((double *)p->adam_state == (double *)p->second + p->trainable);
  const double hyper[] = {[LEARNING_RATE] = 0.05, [INV_SCALE] = 1}, stats[] = {[FINITE] = 1};
  Adam adam = {.hyper = hyper, .stats = stats, .state = p->adam_state, .beta1 = 0.9, .beta2 = 0.999};
  adam.part = p->part;
  adam.parts = p->parts;
  adam.shadow = F64;
  adam.factors = (SgdFactors){.rate = {1, 1, 1, 1}};
  adam.eps = 1e-8;
  net_run(&net);
  const double before = net.loss;
  for (int i = 0; i < 100; i++) {
    net.dev->ops->adam(net.dev, &adam, p->master, p->grad, p->momentum, p->second);
    params_refresh(p);
    net_run(&net);
  }
  if (!EXPECT(net.loss < before / 2)) printf("  %g of %g\n", net.loss, before);
  EXPECT(((double *)p->adam_state)[UPDATES] == 100);
  net_close(&net);
  net_close(&plain);
}
