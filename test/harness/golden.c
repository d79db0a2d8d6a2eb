#include "test/harness/golden.h"
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/images/png.h"
#include "engine/state.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

enum { TILE = 8 };

// What a stored tensor of real numbers begins with; its entries follow.
enum { ELEMENTS, NORM, SIGNED_SUM, NOISE_NORM, NOISE_ENTRY, FIGURES };

static uint64_t named_key(uint64_t key, const char *name) {
  for (const char *s = name; *s; s++) key = rng_key(key, (uint64_t)*s);
  return key;
}

// ---- comparing ------------------------------------------------------------------------------------------------------

const CkptTensor *golden_tensor(const Golden *g, const char *name, CkptType type) {
  const CkptTensor *t = ckpt_find(&g->file, name);
  if (t && t->type == type) return t;
  char text[256];
  snprintf(text, sizeof text, "%s on %s: no %s of type %s in the file", g->name, g->device, name, ckpt_type_name(type));
  test_true(false, text, __FILE__, __LINE__);
  return NULL;
}

bool golden_near(const Golden *g, const char *name, const char *where, double ours, double theirs, double limit) {
  char text[256];
  snprintf(text, sizeof text, "%s on %s: %s, %s: %.17g, torchvision %.17g; %.3g apart, allowed %.3g", g->name,
           g->device, name, where, ours, theirs, fabs(ours - theirs), limit);
  return test_true(ours == theirs || fabs(ours - theirs) <= limit, text, __FILE__, __LINE__);
}

// Place i of a tensor in torch's order, as text.
static void position_name(const Tensor *shape, size_t position, char text[64]) {
  int i = (int)position, w = shape->w, h = shape->h, c = shape->c;
  snprintf(text, 64, "[%d, %d, %d, %d]", i / w / h / c, i / w / h % c, i / w % h, i % w);
}

// Of the entries the one furthest off. Where not all are stored, positions are drawn by the hash of the name.
static bool check_entries(const Golden *g, const char *name, const double *v, size_t n, const Tensor *shape,
                          const CkptTensor *t) {
  const double *figure = t->data, *entry = figure + FIGURES;
  size_t entries = t->elements - FIGURES, worst = 0, position = 0;
  double most = -1;
  for (size_t i = 0; i < entries && !isnan(most); i++) {
    size_t at = entries == n ? i : rng_u32(named_key(0, name), i) % n;
    double apart = fabs(v[at] - entry[i]);
    if (!(apart <= most)) { // NaN is worst
      most = apart;
      worst = i;
      position = at;
    }
  }
  if (!entries) return true;
  char where[64];
  position_name(shape, position, where);
  return golden_near(g, name, where, v[position], entry[worst], g->noise * figure[NOISE_ENTRY]);
}

void golden_values(const Golden *g, const char *name, const double *v, size_t n, const Tensor *shape) {
  const CkptTensor *t = golden_tensor(g, name, CKPT_F64);
  if (!t) return;
  CHECK(t->elements >= FIGURES);
  const double *figure = t->data; // aligned: safetensors puts the widest types first
  if (!golden_near(g, name, "number of elements", (double)n, figure[ELEMENTS], 0)) return;
  uint64_t signs = rng_key(named_key(0, name), 1);
  long double squares = 0, sum = 0;
  for (size_t i = 0; i < n; i++) {
    squares += (long double)v[i] * v[i];
    sum += rng_u32(signs, i) % 2 ? -v[i] : v[i];
  }
  double limit = g->noise * figure[NOISE_NORM];
  if (check_entries(g, name, v, n, shape, t) &&
      golden_near(g, name, "L2 norm", (double)sqrtl(squares), figure[NORM], limit))
    golden_near(g, name, "signed sum", (double)sum, figure[SIGNED_SUM], limit);
}

void golden_ints(const Golden *g, const char *name, const int *v, int n) {
  const CkptTensor *t = golden_tensor(g, name, CKPT_I32);
  if (!t) return;
  bool ok = golden_near(g, name, "number of elements", n, (double)t->elements, 0);
  char where[64];
  for (int i = 0; i < n && ok; i++) {
    snprintf(where, sizeof where, "[%d]", i);
    ok = golden_near(g, name, where, v[i], ((const int *)t->data)[i], 0);
  }
}

// ---- from the device ------------------------------------------------------------------------------------------------

void *golden_fetch(const Golden *g, const void *device, size_t bytes) {
  void *host = xmalloc(bytes);
  device_download(g->engine.dev, host, device, bytes);
  return host;
}

int golden_fetch_int(const Golden *g, const int *device) {
  int v;
  device_download(g->engine.dev, &v, device, sizeof v);
  return v;
}

double *golden_fetch_rows(const Golden *g, const Tensor *t, int first, int rows, size_t *n) {
  size_t row = tensor_elements(t) / (size_t)t->n, size = dtype_size(t->dtype), w = (size_t)t->w, h = (size_t)t->h;
  const size_t last = rows ? (size_t)(t->ldc - t->c) : 0; // of the last pixel, there may be no more channels
  void *host = golden_fetch(g, (const char *)t->data + (size_t)first * row * size, ((size_t)rows * row - last) * size);
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

void golden_rows(const Golden *g, const char *name, const Tensor *t, int first, int rows) {
  size_t n;
  double *v = golden_fetch_rows(g, t, first, rows, &n);
  golden_values(g, name, v, n, t);
  free(v);
}

void golden_device_ints(const Golden *g, const char *name, const int *device, int n) {
  int *v = golden_fetch(g, device, (size_t)n * sizeof *v);
  golden_ints(g, name, v, n);
  free(v);
}

// ---- weights, images ------------------------------------------------------------------------------------------------

static double gain_of(const Golden *g, const char *name) {
  char key[128];
  snprintf(key, sizeof key, "gain.%s", name);
  const char *gain = ckpt_find_meta(&g->file, key);
  return gain ? atof(gain) : 1;
}

float *golden_weights(const Golden *g, const Param *q) {
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
    float *values = golden_weights(g, p->list[i]);
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
  CHECK(text && dirs_make(train, NULL) && dirs_make(annotations, NULL));
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
  DatasetOptions options = {.resize = resize_of(&config), .max_canvases = 1, .keep_empty = true, .crowd = CROWD_IGNORE};
  bool ok = dataset_open(&g->data, dir, "train", &options, err);
  Shapes shapes = {0};
  if (ok) shapes = shapes_of(&g->data, GOLDEN_IMAGES);
  ok = ok && engine_open(&g->engine, &(Compute){.device = g->device}, model_of(&config), &config, category, &shapes,
                         &shapes, false, err);
  free(category);
  free(dir);
  return ok;
}

// The stored noise is that of float. Four times it: the largest of a few draws is no bound, and a sum with random signs
// is off by the norm times a normal number.
bool golden_open(Golden *g, const char *name, const char *device) {
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

void golden_close(Golden *g) {
  engine_close(&g->engine);
  dataset_close(&g->data);
  ckpt_close(&g->file);
}

Loader *golden_loader(const Golden *g, bool train) {
  LoaderOptions options = {.batch = GOLDEN_IMAGES,
                           .world = 1,
                           .seed = g->seed,
                           .train = train,
                           .augment = {.flip = 0.5f},
                           .threads = 1,
                           .prefetch = 1,
                           .masks = train,
                           .strict = true};
  Loader *loader = loader_open(&g->data, &options, NULL);
  CHECK(loader);
  return loader;
}

const Batch *golden_batch(Loader *loader) {
  Err err;
  const Batch *b = loader_next(loader, &err);
  if (!b) die(EXIT_RUN, "%s", err.msg);
  return b;
}
