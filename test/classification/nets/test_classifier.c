// Catches classification networks that cannot be built, trained or run at the sizes they claim.
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "classification/nets/classifier.h"
#include "test/harness/net.h"

enum { IMAGES = 4, SIZE = 40, CLASSES = 7, MAX_THREADS = 3 };

typedef struct Trial {
  Device *dev;
  Params params;
  Network use[3]; // by Purpose
  void *arena[3];
  uint8_t bytes[IMAGES * SIZE * SIZE * 3];
  ImageInfo info[IMAGES];
  int label[IMAGES];
} Trial;

// The last place is empty.
static void feed(Trial *t) {
  const void *array[BATCH_ARRAYS] = {[BATCH_INFO] = t->info, [BATCH_BYTES] = t->bytes, [BATCH_LABEL] = t->label};
  for (size_t i = 0; i < sizeof t->bytes; i++) t->bytes[i] = (uint8_t)rng_u32(RNG_TEST, i);
  for (int i = 0; i < IMAGES - 1; i++) {
    t->info[i] = (ImageInfo){
        .offset = i * SIZE * SIZE * 3, .h = SIZE, .w = SIZE, .rh = SIZE, .rw = SIZE, .view.map = {1, 0, 0, 0, 1, 0}};
    t->label[i] = (2 * i + 1) % CLASSES;
  }
  t->label[IMAGES - 1] = -1;
  for (int i = 0; i < COUNT(t->use); i++) network_connect(&t->use[i], array);
}

static void trial_open(Trial *t, const ModelConfig *c) {
  Err err;
  *t = (Trial){.dev = device_open("cpu64", &err)};
  CHECK(t->dev && config_check(c, &err));
  params_init(&t->params, t->dev, F64);
  for (int i = 0; i < COUNT(t->use); i++)
    network_build(&t->use[i], model_of(c), c, t->dev, &t->params, NULL, (Purpose)i, IMAGES, SIZE, SIZE, 1);
  CHECK(params_allocate(&t->params, &err));
  for (int i = 0; i < COUNT(t->use); i++) {
    Graph *g = &t->use[i].graph;
    graph_measure(g);
    t->arena[i] = device_alloc(t->dev, g->bytes);
    CHECK(t->arena[i]);
    graph_bind(g, t->arena[i]);
  }
  CHECK(device_reserve_workspace(t->dev, &err));
  feed(t);
  params_randomise(&t->params, 5);
}

static void trial_close(Trial *t) {
  for (int i = 0; i < COUNT(t->use); i++) {
    network_free(&t->use[i]);
    device_free(t->dev, t->arena[i]);
  }
  params_free(&t->params);
  device_close(t->dev);
}

static ModelConfig config_of(const char *variant) {
  ModelConfig c;
  CHECK(config_init(&c, variant, NULL));
  c.classes = CLASSES;
  c.width = 8;
  return c;
}

static const char *const variants[] = {"resnet18", "resnet50", "googlenet", "vgg-28"};

// Training reads labels and leaves a loss, hits and gradients; inference, which knows no labels, probabilities.
TEST(classifier_trains_and_infers) {
  for (int v = 0; v < COUNT(variants); v++) {
    const ModelConfig c = config_of(variants[v]);
    Trial *t = xcalloc(1, sizeof *t);
    trial_open(t, &c);
    Network *n = &t->use[FOR_TRAINING], *infer = &t->use[FOR_INFERENCE];
    EXPECT(!n->truth && n->labels && !infer->labels && !infer->counter[COUNT_TOP1]);
    memset(t->params.grad, 0xff, t->params.trainable * sizeof(double));
    graph_forward(&n->graph);
    graph_backward(&n->graph);
    size_t count;
    double *gradients = copy_gradients(&t->params, &count), sum = 0;
    for (size_t i = 0; i < count; i++) sum += fabs(gradients[i]);
    EXPECT(isfinite(sum) && sum > 0);
    const double loss = ((const double *)n->losses->x.data)[LOSS_CLASS];
    EXPECT(loss > 0 && loss < 10);
    EXPECT(**n->counter[COUNT_TOP1] <= **n->counter[COUNT_TOP5] && **n->counter[COUNT_TOP5] <= IMAGES - 1);
    graph_forward(&infer->graph);
    const double *probs = infer->result[CLASS_PROBS]->x.data;
    for (int i = 0; i < IMAGES; i++) {
      double total = 0;
      for (int k = 0; k < CLASSES; k++) total += probs[i * CLASSES + k];
      EXPECT_NEAR(total, 1, 2 * CLASSES * unit_roundoff(F64));
    }
    free(gradients);
    trial_close(t);
    free(t);
  }
}

// Validation has the loss of what inference sees.
TEST(classifier_validation_is_of_inference) {
  const ModelConfig c = config_of("resnet18");
  Trial *t = xcalloc(1, sizeof *t);
  trial_open(t, &c);
  graph_forward(&t->use[FOR_VALIDATION].graph);
  const double loss = *(const double *)t->use[FOR_VALIDATION].losses->x.data;
  graph_forward(&t->use[FOR_INFERENCE].graph);
  const double *probs = t->use[FOR_INFERENCE].result[CLASS_PROBS]->x.data;
  double want = 0;
  for (int i = 0; i < IMAGES - 1; i++) want -= log(probs[i * CLASSES + t->label[i]]) / (IMAGES - 1);
  EXPECT_NEAR(loss, want, 100 * unit_roundoff(F64));
  trial_close(t);
  free(t);
}

// Whatever size the configuration lets through can be built.
TEST(classifier_builds_at_its_least_size) {
  static const char *const all[] = {"alexnet", "overfeat", "vgg11", "googlenet", "resnet18", "resnet50", "vgg-28"};
  for (int v = 0; v < COUNT(all); v++) {
    ModelConfig c = config_of(all[v]);
    c.width = 64; // alexnet has one only
    c.size = model_of(&c)->least_size;
    Device *dev = device_open("cpu64", NULL);
    CHECK(dev);
    Err err;
    Params params;
    Network n;
    EXPECT(config_check(&c, &err));
    params_init(&params, dev, F64);
    network_build(&n, model_of(&c), &c, dev, &params, NULL, FOR_TRAINING, 2, c.size, c.size, 1);
    EXPECT_INT(n.losses->x.n, 1);
    network_free(&n);
    params_free(&params);
    device_close(dev);
    c.size--;
    EXPECT(!config_check(&c, &err));
  }
}

TEST(classifier_names_have_no_background) {
  ModelConfig c = config_of("resnet18"), detector;
  EXPECT(config_init(&detector, DEFAULT_MODEL, NULL));
  EXPECT_INT(model_names(&c), CLASSES);
  EXPECT_INT(model_names(&detector), 90);
}

// In an inference graph a norm that no convolution takes up goes by the running statistics, which stay as they are.
TEST(classifier_norm_keeps_its_statistics) {
  const ModelConfig c = config_of("vgg-28");
  Trial *t = xcalloc(1, sizeof *t);
  trial_open(t, &c);
  Param *mean = params_find(&t->params, "features.2.running_mean"), *shift = params_find(&t->params, "features.2.bias");
  graph_forward(&t->use[FOR_INFERENCE].graph);
  double before[CLASSES], *probs = t->use[FOR_INFERENCE].result[CLASS_PROBS]->x.data, *m = mean->master.data;
  memcpy(before, probs, sizeof before);
  EXPECT(m[0] == 0);
  m[0] = 0.5; // y = (x - mean) · gamma / √(1 + eps) + beta: beta takes it back
  ((double *)shift->master.data)[0] += 0.5 / sqrt(1 + (double)c.norm_eps);
  graph_forward(&t->use[FOR_INFERENCE].graph);
  for (int k = 0; k < CLASSES; k++) EXPECT_NEAR(probs[k], before[k], 1e3 * unit_roundoff(F64));
  EXPECT(m[0] == 0.5);
  graph_forward(&t->use[FOR_TRAINING].graph);
  EXPECT(m[0] != 0.5);
  trial_close(t);
  free(t);
}

// GoogLeNet's auxiliary losses are of training alone, and none where their weight is 0.
TEST(classifier_auxiliary_heads) {
  ModelConfig c = config_of("googlenet");
  for (int without = 0; without < 2; without++, c.aux_weight = 0) {
    Trial *t = xcalloc(1, sizeof *t);
    trial_open(t, &c);
    for (Purpose p = 0; p <= FOR_VALIDATION; p++) {
      if (p == FOR_INFERENCE) continue;
      graph_forward(&t->use[p].graph);
      const double *loss = t->use[p].losses->x.data;
      for (int i = 1; i < 3; i++) EXPECT((loss[i] > 0) == (p == FOR_TRAINING && !without));
      EXPECT(loss[LOSS_CLASS] > 0);
    }
    EXPECT((params_find(&t->params, "aux1.fc1.weight") == NULL) == without);
    trial_close(t);
    free(t);
  }
}
