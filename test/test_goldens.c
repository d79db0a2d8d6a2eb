// The whole network against torchvision's numbers in test/goldens. test/goldens.py says what the files hold, how
// weights and images follow from the hash, and what the limits are made of.
#include <omp.h>
#include "data/png.h"
#include "engine/state.h"
#include "nn/rng.h"
#include "test/gpu.h"
#include "test/small_set.h"

enum { PLACES = 2, STEPS = 10, TILE = 8 };

// What a stored tensor of real numbers begins with; its entries follow.
enum { ELEMENTS, NORM, SIGNED_SUM, NOISE_NORM, NOISE_ENTRY, FIGURES };

typedef struct Golden {
  const char *name, *device;
  Checkpoint file;
  uint64_t seed;
  Dataset data;
  Engine engine;
  bool exact;   // in double
  double noise; // by how many times the stored noise ours may be off
} Golden;

static uint64_t named_key(uint64_t key, const char *name) {
  for (const char *s = name; *s; s++) key = rng_key(key, (uint64_t)*s);
  return key;
}

// ---- comparing ------------------------------------------------------------------------------------------------------

static const CkptTensor *stored(const Golden *g, const char *name, CkptType type) {
  const CkptTensor *t = ckpt_find(&g->file, name);
  if (t && t->type == type) return t;
  char text[256];
  snprintf(text, sizeof text, "%s on %s: no %s of type %s in the file", g->name, g->device, name, ckpt_type_name(type));
  test_true(false, text, __FILE__, __LINE__);
  return NULL;
}

static bool expect_near(const Golden *g, const char *name, const char *where, double ours, double theirs,
                        double limit) {
  char text[256];
  snprintf(text, sizeof text, "%s on %s: %s, %s: %.17g, torchvision %.17g; %.3g apart, allowed %.3g", g->name,
           g->device, name, where, ours, theirs, fabs(ours - theirs), limit);
  return test_true(ours == theirs || fabs(ours - theirs) <= limit, text, __FILE__, __LINE__);
}

// Place i of a tensor in torch's order, as text.
static void place_name(const Tensor *shape, size_t place, char text[64]) {
  int i = (int)place, w = shape->w, h = shape->h, c = shape->c;
  snprintf(text, 64, "[%d, %d, %d, %d]", i / w / h / c, i / w / h % c, i / w % h, i % w);
}

// Of the entries the one furthest off. Where not all are stored, positions are drawn by the hash of the name.
static bool check_entries(const Golden *g, const char *name, const double *v, size_t n, const Tensor *shape,
                          const CkptTensor *t) {
  const double *figure = t->data, *entry = figure + FIGURES;
  size_t entries = t->elements - FIGURES, worst = 0, place = 0;
  double most = -1;
  for (size_t i = 0; i < entries && !isnan(most); i++) {
    size_t at = entries == n ? i : rng_u32(named_key(0, name), i) % n;
    double apart = fabs(v[at] - entry[i]);
    if (!(apart <= most)) most = apart, worst = i, place = at; // NaN is worst
  }
  if (!entries) return true;
  char where[64];
  place_name(shape, place, where);
  return expect_near(g, name, where, v[place], entry[worst], g->noise * figure[NOISE_ENTRY]);
}

// n numbers in torch's order; `shape` is for messages, of which a tensor gets one.
static void check_values(const Golden *g, const char *name, const double *v, size_t n, const Tensor *shape) {
  const CkptTensor *t = stored(g, name, CKPT_F64);
  if (!t) return;
  CHECK(t->elements >= FIGURES);
  const double *figure = t->data; // aligned: safetensors puts the widest types first
  if (!expect_near(g, name, "number of elements", (double)n, figure[ELEMENTS], 0)) return;
  uint64_t signs = rng_key(named_key(0, name), 1);
  long double squares = 0, sum = 0;
  for (size_t i = 0; i < n; i++) {
    squares += (long double)v[i] * v[i];
    sum += rng_u32(signs, i) % 2 ? -v[i] : v[i];
  }
  double limit = g->noise * figure[NOISE_NORM];
  if (check_entries(g, name, v, n, shape, t) &&
      expect_near(g, name, "L2 norm", (double)sqrtl(squares), figure[NORM], limit))
    expect_near(g, name, "signed sum", (double)sum, figure[SIGNED_SUM], limit);
}

static void check_ints(const Golden *g, const char *name, const int *v, int n) {
  const CkptTensor *t = stored(g, name, CKPT_I32);
  if (!t) return;
  expect_near(g, name, "number of elements", n, (double)t->elements, 0);
  char where[64];
  for (int i = 0; i < n && i < (int)t->elements; i++) {
    if (v[i] == ((const int *)t->data)[i]) continue;
    snprintf(where, sizeof where, "[%d]", i);
    expect_near(g, name, where, v[i], ((const int *)t->data)[i], 0);
    return;
  }
}

// ---- from the device ------------------------------------------------------------------------------------------------

static void *fetch(const Golden *g, const void *device, size_t bytes) {
  void *host = xmalloc(bytes);
  device_download(g->engine.dev, host, device, bytes);
  return host;
}

static int fetch_int(const Golden *g, const int *device) {
  int v;
  device_download(g->engine.dev, &v, device, sizeof v);
  return v;
}

// `rows` rows n from `first` in torch's order [n, c, h, w]. Caller frees.
static double *fetch_rows(const Golden *g, const Tensor *t, int first, int rows, size_t *n) {
  size_t row = tensor_elements(t) / (size_t)t->n, size = dtype_size(t->dtype), w = (size_t)t->w, h = (size_t)t->h;
  void *host = fetch(g, (const char *)t->data + (size_t)first * row * size, (size_t)rows * row * size);
  *n = (size_t)rows * (size_t)t->c * h * w;
  double *out = xmalloc(*n * sizeof *out);
  for (size_t i = 0; i < *n; i++) {
    size_t c = i / w / h % (size_t)t->c, pixel = i / w / h / (size_t)t->c * h * w + i % (h * w);
    size_t at = pixel * (size_t)t->ldc + c;
    out[i] = t->dtype == F64 ? ((double *)host)[at] : ((float *)host)[at];
  }
  free(host);
  return out;
}

static void check_rows(const Golden *g, const char *name, const Tensor *t, int first, int rows) {
  size_t n;
  double *v = fetch_rows(g, t, first, rows, &n);
  check_values(g, name, v, n, t);
  free(v);
}

static void check_device_ints(const Golden *g, const char *name, const int *device, int n) {
  int *v = fetch(g, device, (size_t)n * sizeof *v);
  check_ints(g, name, v, n);
  free(v);
}

// "stage/what.i", in a buffer that the next call overwrites.
static const char *numbered(const char *what, int i) {
  static char text[64];
  snprintf(text, sizeof text, "%s.%d", what, i);
  return text;
}

static void check_boxes(const Golden *g, const char *name, const Boxes *b) {
  for (int i = 0; i < b->groups; i++)
    check_rows(g, numbered(name, i), &b->box, i * b->capacity, fetch_int(g, b->count + i));
}

// ---- weights, images ------------------------------------------------------------------------------------------------

static double gain_of(const Golden *g, const char *name) {
  char key[128];
  snprintf(key, sizeof key, "gain.%s", name);
  const char *gain = ckpt_find_meta(&g->file, key);
  return gain ? atof(gain) : 1;
}

// In torch's shape and order. Caller frees.
static float *draw_weights(const Golden *g, const Param *q) {
  size_t n = param_elements(q), fan_in = n / (size_t)q->dims[0];
  float *values = xmalloc(n * sizeof *values);
  uint64_t key = named_key(g->seed, q->name);
  double bound = gain_of(g, q->name) * sqrt(3. / (double)fan_in);
  for (size_t i = 0; i < n; i++) {
    double u = rng_uniform(key, i);
    values[i] = (float)(q->ndim > 1 ? (2 * u - 1) * bound : q->init == INIT_ONE ? 0.5 + 0.5 * u : 0.4 * u - 0.2);
  }
  return values;
}

static void draw_parameters(Golden *g) {
  Params *p = &g->engine.params;
  for (int i = 0; i < p->n; i++) {
    float *values = draw_weights(g, p->list[i]);
    param_import(p, p->list[i], &p->list[i]->master, values);
    free(values);
  }
  params_refresh(p);
}

static void write_image(const Golden *g, const char *dir, const CocoImage *image) {
  Image im = image_alloc(image->h, image->w);
  char *name = xasprintf("image %d", (int)image->id), *path = xasprintf("%s/train/%s", dir, image->file_name);
  uint64_t key = named_key(g->seed, name), grain = rng_key(key, 1);
  for (int i = 0; i < im.h * im.w * 3; i++) {
    int c = i % 3, x = i / 3 % im.w, y = i / 3 / im.w;
    uint32_t tile = rng_u32(key, (uint64_t)((y / TILE * im.w + x / TILE) * 3 + c));
    im.rgb[i] = (uint8_t)(tile % 192 + rng_u32(grain, (uint64_t)i) % 64);
  }
  CHECK(png_write(path, &im, PNG_FAST, NULL));
  image_free(&im);
  free(name);
  free(path);
}

// The images and the file's annotations as a data set. Returns its folder; caller frees.
static char *write_set(const Golden *g) {
  char *dir = xasprintf("%s/goldens-%s", test_tmp(), g->name), *train = xasprintf("%s/train", dir);
  char *annotations = xasprintf("%s/annotations", dir), *path = xasprintf("%s/instances_train.json", annotations);
  const char *text = ckpt_find_meta(&g->file, "annotations");
  Coco coco;
  CHECK(text && make_dirs(train, NULL) && make_dirs(annotations, NULL));
  write_text(path, text);
  CHECK(coco_load(&coco, path, NULL));
  for (int i = 0; i < coco.num_images; i++) write_image(g, dir, &coco.images[i]);
  coco_free(&coco);
  free(train);
  free(annotations);
  free(path);
  return dir;
}

// ---- opening --------------------------------------------------------------------------------------------------------

static bool open_engine(Golden *g, Err *err) {
  ModelConfig config;
  Category *category;
  const char *seed = ckpt_find_meta(&g->file, "seed");
  if (!seed) return err_set(err, "no seed in the file");
  g->seed = strtoull(seed, NULL, 10);
  if (!state_config(&g->file, &config, &category, err)) return false;
  char *dir = write_set(g);
  DatasetOptions options = {.resize = {config.size, config.max_size}, .max_canvases = 1, .keep_empty = true};
  bool ok = dataset_open(&g->data, dir, "train", &options, err);
  Shapes shapes = {0};
  if (ok) shapes = shapes_of(&g->data, PLACES);
  ok = ok && engine_open(&g->engine, &(Compute){.device = g->device}, &config, category, &shapes, &shapes, false, err);
  free(category);
  free(dir);
  return ok;
}

// The stored noise is that of float. Four times it: the largest of a few draws is no bound, and a sum with random signs
// is off by the norm times a normal number.
static bool golden_open(Golden *g, const char *name, const char *device) {
  *g = (Golden){.name = name, .device = device};
  char path[128];
  Err err;
  snprintf(path, sizeof path, "test/goldens/%s.safetensors", name); // tests run in the root of the tree
  if (!ckpt_open(&g->file, path, &err) || !open_engine(g, &err)) return test_true(false, err.msg, __FILE__, __LINE__);
  g->exact = g->engine.dev->real == F64;
  g->noise = 4 * (g->exact ? 0x1p-53 / 0x1p-24 : 1);
  draw_parameters(g);
  return true;
}

static void golden_close(Golden *g) {
  engine_close(&g->engine);
  dataset_close(&g->data);
  ckpt_close(&g->file);
}

static Loader *open_loader(const Golden *g, bool train) {
  LoaderOptions options = {.batch = PLACES,
                           .world = 1,
                           .seed = g->seed,
                           .train = train,
                           .flip = 0.5f,
                           .threads = 1,
                           .prefetch = 1,
                           .masks = train,
                           .strict = true};
  Loader *loader = loader_open(&g->data, &options, NULL);
  CHECK(loader);
  return loader;
}

static const Batch *next_batch(Loader *loader) {
  Err err;
  const Batch *b = loader_next(loader, &err);
  if (!b) die(EXIT_RUN, "%s", err.msg);
  return b;
}

// ---- stages ---------------------------------------------------------------------------------------------------------

typedef struct Output {
  char name[32];
  const Value *v;
} Output;

static int pyramid_outputs(Output *out, const char *name, Value *const *v, int levels) {
  for (int l = 0; l < levels; l++, out++) {
    snprintf(out->name, sizeof out->name, "train/%s%d", name, l);
    out->v = v[l];
  }
  return levels;
}

// Walks the list itself, because activations share memory: each is looked at as soon as it is there.
static void check_outputs(const Golden *g, MaskRcnn *m, const Output *outputs, int n) {
  int seen = 0;
  for (int i = 0; i < m->graph.nodes; i++) {
    Node *node = m->graph.node[i];
    node->kind->forward(&m->graph, node);
    for (int k = 0; k < node->outs * n; k++) {
      const Output *o = &outputs[k % n];
      if (o->v != node->out[k / n]) continue;
      check_rows(g, o->name, &o->v->x, 0, o->v->x.count ? fetch_int(g, o->v->x.count) : o->v->x.n);
      seen++;
    }
  }
  EXPECT_INT(seen, n);
}

static void check_training_outputs(const Golden *g, MaskRcnn *m) {
  Output outputs[32] = {{"train/image", m->image},
                        {"train/class_logits", m->class_logits},
                        {"train/box_deltas", m->box_deltas},
                        {"train/mask_logits", m->mask_logits},
                        {"train/mask_target", m->mask_target}};
  int n = 5;
  n += pyramid_outputs(outputs + n, "c", m->c, 4);
  n += pyramid_outputs(outputs + n, "p", m->p, MAX_LEVELS);
  n += pyramid_outputs(outputs + n, "logits", m->logits, MAX_LEVELS);
  n += pyramid_outputs(outputs + n, "deltas", m->deltas, MAX_LEVELS);
  check_outputs(g, m, outputs, n);
}

static void check_inference_outputs(const Golden *g, MaskRcnn *m) {
  const Output outputs[] = {{"infer/class_logits", m->class_logits},
                            {"infer/box_deltas", m->box_deltas},
                            {"infer/mask_probs", m->mask_probs}};
  check_outputs(g, m, outputs, COUNT(outputs));
}

static void check_rpn_targets(const Golden *g, const RpnTargets *t) {
  for (int i = 0; i < t->images; i++) {
    int first = i * t->batch, positives = fetch_int(g, t->positives + i);
    check_ints(g, numbered("train/rpn.positives", i), &positives, 1);
    check_device_ints(g, numbered("train/rpn.index", i), t->index + first, fetch_int(g, t->count + i));
    check_rows(g, numbered("train/rpn.delta", i), &t->delta, first, positives);
  }
}

// Regression targets are those of the objects alone.
static void check_roi_targets(const Golden *g, const RoiTargets *t) {
  int rois = fetch_int(g, t->rois.count), *label = fetch(g, t->label, (size_t)rois * sizeof *label);
  check_device_ints(g, "train/rois.image", t->rois.image, rois);
  check_ints(g, "train/rois.label", label, rois);
  check_rows(g, "train/rois.boxes", &t->rois.box, 0, rois);
  size_t n, objects = 0;
  double *delta = fetch_rows(g, &t->delta, 0, rois, &n);
  for (int i = 0; i < rois; i++)
    if (label[i]) memmove(delta + 4 * objects++, delta + 4 * i, 4 * sizeof *delta);
  check_values(g, "train/rois.delta", delta, 4 * objects, &t->delta);
  free(delta);
  free(label);
}

static void check_params(const Golden *g, const char *stage, bool gradients) {
  const Params *p = &g->engine.params;
  size_t trained = 0, in_file = 0;
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (!q->trainable) continue;
    char *name = xasprintf("%s/%s", stage, q->name);
    check_rows(g, name, gradients ? &q->grad : &q->master, 0, q->master.n);
    free(name);
    trained++;
  }
  for (size_t i = 0; i < g->file.num_tensors; i++)
    in_file += !strncmp(g->file.tensors[i].name, stage, strlen(stage)) && g->file.tensors[i].name[strlen(stage)] == '/';
  EXPECT_INT(trained, in_file);
}

static void check_frozen(const Golden *g) {
  const Params *p = &g->engine.params;
  for (int i = 0; i < p->n; i++) {
    const Param *q = p->list[i];
    if (q->trainable) continue;
    size_t n = param_elements(q);
    float *before = draw_weights(g, q), *after = xmalloc(n * sizeof *after);
    param_export(p, q, &q->master, after);
    if (!EXPECT(!memcmp(before, after, n * sizeof *after))) printf("    %s has moved\n", q->name);
    free(before);
    free(after);
  }
}

// ---- training -------------------------------------------------------------------------------------------------------

static const StepOptions sgd = {.learning_rate = 0.02f, .momentum = 0.9f, .weight_decay = 1e-4f, .clip = 1};

static void check_losses(const Golden *g, int step, const StepResult *r) {
  const Tensor losses = tensor_packed(F64, 1, LOSSES), one = tensor_packed(F64, 1, 1);
  check_values(g, numbered("steps/loss", step), r->loss, LOSSES, &losses);
  check_values(g, numbered("steps/grad_norm", step), &r->grad_norm, 1, &one);
}

// A step without a learning rate, so that gradients and activations are of the same weights; its momentum is forgotten.
static void check_first_step(Golden *g) {
  Engine *e = &g->engine;
  MaskRcnn *m = e->train;
  Loader *loader = open_loader(g, true);
  StepOptions still = sgd;
  StepResult r;
  still.learning_rate = 0;
  engine_step(e, next_batch(loader), &still, &r);
  check_training_outputs(g, m);
  check_boxes(g, "train/proposals", &m->proposals);
  check_rpn_targets(g, &m->rpn_targets);
  check_roi_targets(g, &m->roi_targets);
  check_losses(g, 0, &r);
  check_params(g, "grad", true);
  device_zero(e->dev, e->params.momentum, e->params.trainable * dtype_size(e->dev->real));
  loader_close(loader);
}

static void check_steps(Golden *g) {
  Loader *loader = open_loader(g, true);
  for (int i = 0; i < STEPS; i++) {
    StepResult r;
    engine_step(&g->engine, next_batch(loader), &sgd, &r);
    check_losses(g, i, &r);
  }
  check_params(g, "after", false);
  check_frozen(g);
  loader_close(loader);
}

// ---- inference ------------------------------------------------------------------------------------------------------

// Pasted at the image's own size: bit i of byte i / 8, over all pixels of all detections of an image.
static void check_pasted(Golden *g, const Batch *b) {
  Detections found;
  engine_detections(&g->engine, b, 0.5f, &found);
  for (int i = 0; i < PLACES; i++) {
    size_t pixels = (size_t)b->info[i].h * (size_t)b->info[i].w, at = 0;
    const CkptTensor *t = stored(g, numbered("infer/pasted", i), CKPT_U8);
    uint8_t *mask = xmalloc(pixels);
    for (int j = 0; t && j < found.n; j++) {
      if (found.items[j].image != i) continue;
      rle_to_bytes(&found.items[j].mask, mask);
      size_t wrong = 0;
      for (size_t k = 0; k < pixels && (at + k) / 8 < t->elements; k++)
        wrong += mask[k] != (((const uint8_t *)t->data)[(at + k) / 8] >> (at + k) % 8 & 1);
      at += pixels;
      expect_near(g, t->name, "mask pixels that differ", (double)wrong, 0, 0);
    }
    if (t) expect_near(g, t->name, "bytes of masks", (double)((at + 7) / 8), (double)t->elements, 0);
    free(mask);
  }
  detections_free(&found);
}

static void check_detections(const Golden *g, const MaskRcnn *m) {
  const Boxes *d = &m->detections;
  for (int i = 0; i < d->groups; i++) {
    int n = fetch_int(g, d->count + i), first = i * d->capacity;
    int *label = fetch(g, d->index + first, (size_t)n * sizeof *label);
    for (int j = 0; j < n; j++) label[j] %= m->config.classes;
    check_ints(g, numbered("infer/detections.labels", i), label, n);
    check_rows(g, numbered("infer/detections.scores", i), &d->score, first, n);
    free(label);
  }
  check_boxes(g, "infer/detections.boxes", d);
}

// A pixel whose probability is next to ½ may fall on either side in float; so pasted masks are compared in double.
static void check_inference(Golden *g) {
  Loader *loader = open_loader(g, false);
  const Batch *b = next_batch(loader);
  MaskRcnn *m = g->engine.infer;
  engine_infer(&g->engine, b);
  check_inference_outputs(g, m);
  check_boxes(g, "infer/proposals", &m->proposals);
  check_detections(g, m);
  if (g->exact) check_pasted(g, b);
  loader_close(loader);
}

// ---- cases ----------------------------------------------------------------------------------------------------------

static void check_golden(const char *name, const char *device) {
  Golden g;
  int threads = omp_get_max_threads();
  omp_set_num_threads(1); // the maps are so small that starting threads takes longer than the work
  if (golden_open(&g, name, device)) {
    check_first_step(&g);
    check_inference(&g);
    check_steps(&g);
  }
  golden_close(&g);
  omp_set_num_threads(threads);
}

static void check_on_cpu(const char *name) {
  check_golden(name, "cpu64");
  check_golden(name, "cpu");
}
static void check_on_gpu(const char *name) {
  if (gpu_device()) check_golden(name, "cuda");
}

TEST(goldens_r18_objects) { check_on_cpu("r18-objects"); }
TEST_TIER(goldens_r18_empty, 1) { check_on_cpu("r18-empty"); }
TEST_TIER(goldens_r18_crowd, 1) { check_on_cpu("r18-crowd"); }
TEST_TIER(goldens_r50_objects, 1) { check_on_cpu("r50-objects"); }
TEST_TIER(goldens_r50_empty, 1) { check_on_cpu("r50-empty"); }
TEST_TIER(goldens_r50_crowd, 1) { check_on_cpu("r50-crowd"); }
TEST_TIER(cuda_goldens_r18_objects, 1) { check_on_gpu("r18-objects"); }
TEST_TIER(cuda_goldens_r18_empty, 1) { check_on_gpu("r18-empty"); }
TEST_TIER(cuda_goldens_r18_crowd, 1) { check_on_gpu("r18-crowd"); }
TEST_TIER(cuda_goldens_r50_objects, 1) { check_on_gpu("r50-objects"); }
TEST_TIER(cuda_goldens_r50_empty, 1) { check_on_gpu("r50-empty"); }
TEST_TIER(cuda_goldens_r50_crowd, 1) { check_on_gpu("r50-crowd"); }
