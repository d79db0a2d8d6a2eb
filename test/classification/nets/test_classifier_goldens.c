// Catches classification networks whose losses, gradients or statistics differ from torchvision's.
//
// Compares classification networks with torchvision's numbers in test/goldens/classifiers.safetensors: loss, gradients
// and running statistics of a step, and the probabilities of inference after it. test/peers/classifier_goldens.py
// describes the file's contents and how weights, images and labels follow from the hash.
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "classification/nets/classifier.h"
#include "test/harness/gpu.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

enum { IMAGES = 3, CLASSES = 10, DENSE = 48 };
// What a stored tensor begins with; its entries follow.
enum { NORM, SIGNED_SUM, NOISE, FIGURES };

typedef struct Trial {
  const char *net, *device;
  Checkpoint file;
  Device *dev;
  Params params;
  Network step, infer;
  void *arena, *array[BATCH_ARRAYS];
  int size;
  double limit; // of a norm: 1e-10 in double, 1e-4 in float
  bool exact;
} Trial;

static uint64_t named_key(uint64_t key, const char *name) {
  for (const char *s = name; *s; s++) key = rng_key(key, (uint64_t)*s);
  return key;
}

// ---- what both sides draw -----------------------------------------------------------------------------------------

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && !strcmp(name + n - m, end);
}

// He's uniform distribution, or what vectors have.
static float drawn(const Param *q, uint64_t key, size_t i) {
  const float u = rng_uniform(key, i);
  double fan_in = 1;
  for (int d = 1; d < q->ndim; d++) fan_in *= q->dims[d];
  if (q->ndim > 1) return (float)sqrt(6 / fan_in) * (2 * u - 1);
  if (ends_in(q->name, "running_var") || ends_in(q->name, "weight")) return 0.5f + u;
  return 0.2f * (2 * u - 1);
}

static void draw_parameters(Params *p) {
  for (int i = 0; i < p->n; i++) {
    Param *q = p->list[i];
    const uint64_t key = named_key(RNG_TEST, q->name);
    const size_t n = param_elements(q);
    float *values = xmalloc(n * sizeof *values);
    for (size_t j = 0; j < n; j++) values[j] = drawn(q, key, j);
    param_import(p, q, &q->master, values);
    free(values);
  }
  params_refresh(p);
}

static void *on_device(Device *dev, const void *host, size_t bytes) {
  void *p = device_alloc(dev, bytes);
  CHECK(p);
  device_upload(dev, p, host, bytes);
  return p;
}

static void feed(Trial *t) {
  const size_t image = (size_t)t->size * t->size * 3, bytes = IMAGES * image;
  uint8_t *rgb = xmalloc(bytes);
  ImageInfo info[IMAGES] = {{0}};
  int label[IMAGES];
  for (size_t i = 0; i < bytes; i++) rgb[i] = (uint8_t)(rng_u32(rng_key(RNG_TEST, 0), i) >> 24);
  for (int i = 0; i < IMAGES; i++) {
    info[i] = (ImageInfo){.offset = (int64_t)i * (int64_t)image,
                          .h = t->size,
                          .w = t->size,
                          .rh = t->size,
                          .rw = t->size,
                          .view.map = {1, 0, 0, 0, 1, 0}};
    label[i] = (int)(rng_u32(rng_key(RNG_TEST, 1), (uint64_t)i) % CLASSES);
    for (size_t p = 0; p < image && t->step.config.grey; p++) rgb[i * image + p] = rgb[i * image + p / 3 * 3];
  }
  t->array[BATCH_INFO] = on_device(t->dev, info, sizeof info);
  t->array[BATCH_BYTES] = on_device(t->dev, rgb, bytes);
  t->array[BATCH_LABEL] = on_device(t->dev, label, sizeof label);
  device_sync(t->dev);
  free(rgb);
  network_connect(&t->step, (const void *const *)t->array);
  network_connect(&t->infer, (const void *const *)t->array);
}

// ---- a trial ------------------------------------------------------------------------------------------------------

static bool trial_open(Trial *t, const char *net, const char *device, int size) {
  Err err;
  ModelConfig c;
  *t = (Trial){.net = net, .device = device, .size = size, .exact = !strcmp(device, "cpu64")};
  t->limit = t->exact ? 1e-10 : 1e-4;
  if (!EXPECT(ckpt_open(&t->file, "test/goldens/classifiers.safetensors", &err))) return false;
  t->dev = device_open(device, &err);
  CHECK(t->dev && config_init(&c, net, &err));
  c.classes = CLASSES;
  c.dense = DENSE;
  c.dropout = c.aux_dropout = 0;
  c.label_smoothing = 0.1f;
  CHECK(config_check(&c, &err));
  params_init(&t->params, t->dev, t->dev->real);
  network_build(&t->step, model_of(&c), &c, t->dev, &t->params, NULL, FOR_TRAINING, IMAGES, size, size, 1);
  network_build(&t->infer, model_of(&c), &c, t->dev, &t->params, NULL, FOR_INFERENCE, IMAGES, size, size, 1);
  CHECK(params_allocate(&t->params, &err));
  graph_measure(&t->step.graph);
  graph_measure(&t->infer.graph);
  t->arena = device_alloc(t->dev, MAX(t->step.graph.bytes, t->infer.graph.bytes));
  CHECK(t->arena && device_reserve_workspace(t->dev, &err));
  feed(t);
  draw_parameters(&t->params);
  return true;
}

static void trial_close(Trial *t) {
  if (!t->dev) return;
  network_free(&t->step);
  network_free(&t->infer);
  for (int i = 0; i < BATCH_ARRAYS; i++) device_free(t->dev, t->array[i]);
  device_free(t->dev, t->arena);
  params_free(&t->params);
  device_close(t->dev);
  ckpt_close(&t->file);
}

// n reals of the device as doubles; caller frees.
static double *fetch(const Trial *t, const void *device, size_t n) {
  double *out = xmalloc(n * sizeof *out);
  if (t->exact) {
    device_download(t->dev, out, device, n * sizeof *out);
    return out;
  }
  float *single = xmalloc(n * sizeof *single);
  device_download(t->dev, single, device, n * sizeof *single);
  for (size_t i = 0; i < n; i++) out[i] = (double)single[i];
  free(single);
  return out;
}

static bool near(const Trial *t, const char *name, const char *what, double ours, double theirs, double limit) {
  char text[320];
  snprintf(text, sizeof text, "%s: %s, %s: %.12g, PyTorch %.12g; %.3g apart, allowed %.3g", t->device, name, what, ours,
           theirs, fabs(ours - theirs), limit);
  return test_true(fabs(ours - theirs) <= limit, text, __FILE__, __LINE__);
}

static const double *stored(const Trial *t, const char *name, size_t elements) {
  const CkptTensor *found = ckpt_find(&t->file, name);
  const bool usable = found && found->type == CKPT_F64 && (!elements || found->elements == elements);
  if (!usable) printf("  %s: not in the file as it should be\n", name);
  EXPECT(usable);
  return usable ? found->data : NULL;
}

// Small results that are stored as they are.
static void check_all(const Trial *t, const char *what, const void *device, size_t n) {
  char *name = xasprintf("%s/%s", t->net, what);
  const double *want = stored(t, name, n);
  double *got = fetch(t, device, n);
  for (size_t i = 0; want && i < n; i++)
    if (!near(t, name, "an element", got[i], want[i], t->limit * fmax(1, fabs(want[i])))) break;
  free(got);
  free(name);
}

// A parameter, in torch's order. In float kinks of the network may have turned. Signs are drawn, so that the error of
// their sum has the norm of the errors as its deviation.
static void check_param(const Trial *t, const char *what, const Param *q, const Tensor *of) {
  char *name = xasprintf("%s/%s/%s", t->net, what, q->name);
  const double *want = stored(t, name, 0);
  const uint64_t key = named_key(0, name), signs = rng_key(key, 1);
  const size_t n = param_elements(q);
  const size_t inner = (size_t)of->h * (size_t)of->w; // of a fully connected layer's input, too
  double *memory = fetch(t, of->data, tensor_elements(of)), *v = xmalloc(n * sizeof *v);
  long double squares = 0, sum = 0;
  for (size_t i = 0; i < n; i++) { // [k, c, r, s] of [k, r, s, c]; vectors have h = w = 1 and one row
    const size_t rs = i % inner, c = i / inner % (size_t)of->c, k = i / inner / (size_t)of->c;
    v[i] = memory[(k * inner + rs) * (size_t)of->ldc + c];
    squares += (long double)v[i] * v[i];
    sum += rng_u32(signs, i) % 2 ? -v[i] : v[i];
  }
  const CkptTensor *entries = want ? ckpt_find(&t->file, name) : NULL;
  if (want) {
    const double limit = t->exact ? t->limit * want[NORM] : fmax(t->limit * want[NORM], 2 * want[NOISE]);
    bool ok = near(t, name, "L2 norm", (double)sqrtl(squares), want[NORM], limit) &&
              near(t, name, "signed sum", (double)sum, want[SIGNED_SUM], 8 * limit);
    for (size_t i = FIGURES; i < entries->elements && ok; i++)
      ok = near(t, name, "an entry", v[rng_u32(key, i - FIGURES) % n], want[i], limit);
  }
  free(memory);
  free(v);
  free(name);
}

// What is in the file of this network is all that it has: loss, probabilities, gradients and statistics.
static void check_names(const Trial *t) {
  int theirs = 0, ours = 2;
  const size_t length = strlen(t->net);
  for (size_t i = 0; i < t->file.num_tensors; i++)
    theirs += !strncmp(t->file.tensors[i].name, t->net, length) && t->file.tensors[i].name[length] == '/';
  for (int i = 0; i < t->params.n; i++) ours += t->params.list[i]->trainable || t->params.list[i]->buffer;
  EXPECT_INT(ours, theirs);
}

static void check_net(const char *net, const char *device, int size) {
  Trial *t = xcalloc(1, sizeof *t);
  if (trial_open(t, net, device, size)) {
    Graph *g = &t->step.graph;
    graph_bind(g, t->arena);
    graph_forward(g);
    graph_backward(g);
    check_names(t);
    check_all(t, "loss", t->step.losses->x.data, (size_t)model_losses(t->step.model));
    for (int i = 0; i < t->params.n; i++) {
      const Param *q = t->params.list[i];
      if (q->trainable) check_param(t, "grad", q, &q->grad);
      if (q->buffer) check_param(t, "after", q, &q->master);
    }
    params_refresh(&t->params); // folds the statistics that have moved
    graph_bind(&t->infer.graph, t->arena);
    graph_forward(&t->infer.graph);
    check_all(t, "probs", t->infer.result[CLASS_PROBS]->x.data, IMAGES * CLASSES);
  }
  trial_close(t);
  free(t);
}

static void check_devices(const char *net, int size) {
  check_net(net, "cpu64", size);
  check_net(net, "cpu", size);
}

TEST(classifier_golden_alexnet) { check_devices("alexnet", 96); }
TEST_TIER(classifier_golden_overfeat, 1) { check_devices("overfeat", 103); }
TEST_TIER(classifier_golden_vgg11, 1) { check_devices("vgg11", 64); }
TEST(classifier_golden_googlenet) { check_devices("googlenet", 72); }
TEST(classifier_golden_vgg28) { check_devices("vgg-28", 28); }
TEST(classifier_golden_resnet18) { check_devices("resnet18", 72); }
TEST_TIER(classifier_golden_resnet50, 1) { check_devices("resnet50", 72); }
TEST_TIER(classifier_golden_vgg16, 2) { check_devices("vgg16", 64); }
TEST_TIER(classifier_golden_vgg19, 2) { check_devices("vgg19", 64); }
TEST_TIER(classifier_golden_resnet34, 2) { check_devices("resnet34", 72); }
TEST_TIER(classifier_golden_resnet152, 2) { check_devices("resnet152", 72); }

TEST(cuda_classifier_goldens) {
  static const struct {
    const char *net;
    int size;
  } nets[] = {{"alexnet", 96}, {"overfeat", 103}, {"vgg11", 64},    {"vgg16", 64},    {"googlenet", 72},
              {"vgg-28", 28},  {"resnet18", 72},  {"resnet50", 72}, {"resnet152", 72}};
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(nets); i++) check_net(nets[i].net, "cuda", nets[i].size);
}
