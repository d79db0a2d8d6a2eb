#include "test/harness/maskrcnn_trial.h"
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/net.h"

static const Purpose purpose_of[] = {FOR_TRAINING,  FOR_TRAINING,   FOR_INFERENCE,
                                     FOR_INFERENCE, FOR_VALIDATION, FOR_VALIDATION};
static void draw_parameters(Params *p) {
  params_randomise(p, 11);
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (q->ndim != 1 || q->init == INIT_LINEAR) continue;
    double low = q->init == INIT_ONE ? 0.4 : -0.1; // norm scales and variances below 1 keep the residual sums small
    test_fill(&q->master, rng_key(RNG_TEST, (uint64_t)i), low, low + 0.4);
  }
  params_refresh(p);
}

static void connect(Network *n, const Batch *b, const Tensor *box) {
  const void *array[BATCH_ARRAYS];
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) array[a] = batch_array(b, a);
  array[BATCH_BOX] = box->data;
  network_connect(n, array);
}

void trial_feed(MaskrcnnTrial *m, int images, const int *objects) {
  synthetic_free(&m->batch);
  m->batch = synthetic_batch(images, CANVAS_H, CANVAS_W, CAPACITY, CLASSES, objects, 17);
  for (int i = 0; i < images * CAPACITY * 4; i++) ((double *)m->box.data)[i] = m->batch.box[i];
  for (int u = 0; u < USES; u++) connect(&m->use[u], &m->batch, &m->box);
}

void trial_open(MaskrcnnTrial *m, const ModelConfig *config, int images, const int *objects) {
  Err err;
  *m = (MaskrcnnTrial){.dev = device_open("cpu64", &err), .box = test_tensor_packed(F64, images * CAPACITY, 4)};
  CHECK(m->dev && config_check(config, &err));
  int threads = omp_get_max_threads();
  omp_set_num_threads(MAX(MAX_THREADS, threads)); // workspace is measured for as many
  params_init(&m->params, m->dev, F64);
  for (int u = 0; u < USES; u++) {
    network_build(&m->use[u], model_of(config), config, m->dev, &m->params, NULL, purpose_of[u], images, CANVAS_H,
                  CANVAS_W, CAPACITY);
    if (u % 2) poison_start(&m->poison[u], &m->use[u].graph);
  }
  CHECK(params_allocate(&m->params, &err));
  for (int u = 0; u < USES; u++) {
    Graph *g = &m->use[u].graph;
    graph_measure(g);
    m->arena[u] = device_alloc(m->dev, g->bytes);
    CHECK(m->arena[u]);
    graph_bind(g, m->arena[u]);
  }
  CHECK(device_reserve_workspace(m->dev, &err));
  omp_set_num_threads(threads);
  trial_feed(m, images, objects);
  draw_parameters(&m->params);
}

void trial_close(MaskrcnnTrial *m) {
  for (int u = 0; u < USES; u++) {
    network_free(&m->use[u]);
    device_free(m->dev, m->arena[u]);
  }
  synthetic_free(&m->batch);
  test_tensor_free(&m->box);
  params_free(&m->params);
  device_close(m->dev);
}

const double *trial_losses(const Network *n) { return n->losses->x.data; }

double trial_loss(const Network *n) {
  double sum = 0;
  for (int i = 0; i < LOSSES; i++) sum += trial_losses(n)[i];
  return sum;
}

double *trial_train(MaskrcnnTrial *m, Use use, size_t *n) {
  memset(m->params.grad, 0xff, m->params.trainable * sizeof(double));
  graph_forward(&m->use[use].graph);
  graph_backward(&m->use[use].graph);
  return copy_gradients(&m->params, n);
}

ModelConfig trial_r50(NormType norm) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  c.depth = 50;
  c.norm = norm;
  c.fpn_channels = 16;
  c.trainable_layers = norm == NORM_FROZEN_BN ? 3 : 5;
  return c;
}

ModelConfig trial_conventions(Conventions whose) {
  ModelConfig c = synthetic_config(CANVAS_H, CANVAS_W, CLASSES);
  c.depth = 50;
  c.trainable_layers = 2;
  c.rpn_batch = 1024; // all anchors inside the image, so that every level has some
  for (int l = 0; l < MAX_LEVELS; l++) c.anchor_size[l] = (float)(6 * (l + 2));
  config_conventions(&c, whose);
  return c;
}

void *trial_copy(const void *p, size_t bytes) { return memcpy(xmalloc(bytes), p, bytes); }
