#include "test/harness/library.h"
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"

static void keep_weights(Engine *e, const char *kept) { CHECK(!rename(small_save(e, "weights", false), kept)); }

static void save_weights(NormType norm, const char *path) {
  Engine e;
  ModelConfig config = small_config(norm, CLASSES);
  config.max_size = CANVAS + 32;
  small_engine(&e, &config);
  params_randomise(&e.params, 7);
  keep_weights(&e, path);
  engine_close(&e);
}

const char *library_weights(NormType norm) {
  char name[64];
  snprintf(name, sizeof name, "library-%s.safetensors", norm_names[norm]);
  const char *path = test_kept(name);
  if (!path_is_file(path)) save_weights(norm, path);
  return path;
}

static void save_classifier(const char *path) {
  Err err;
  Engine e;
  ModelConfig config;
  Category category[LIBRARY_CLASSES] = {{0}};
  CHECK(config_init(&config, "resnet18", &err));
  config.classes = LIBRARY_CLASSES;
  config.width = 8;
  config_resize(&config, LIBRARY_SIDE);
  for (int i = 0; i < LIBRARY_CLASSES; i++) {
    category[i].id = i;
    snprintf(category[i].name, sizeof category[i].name, "kind %d", i);
  }
  const Shapes shapes = {.canvases = 1,
                         .canvas = {{.h = LIBRARY_SIDE, .w = LIBRARY_SIDE}},
                         .images = 1,
                         .max_objects = 1,
                         .max_bytes = 3 * LIBRARY_SIDE * LIBRARY_SIDE};
  if (!engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &shapes, &(Shapes){0}, false,
                   &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e.params, 7);
  keep_weights(&e, path);
  engine_close(&e);
}

const char *library_classifier(void) {
  const char *path = test_kept("library-classifier.safetensors");
  if (!path_is_file(path)) save_classifier(path);
  return path;
}

maskrcnn_options library_options(void) {
  maskrcnn_options o;
  maskrcnn_options_init(&o, sizeof o);
  o.weights = library_weights(NORM_FROZEN_BN);
  o.device = "cpu";
  o.threads = 1;
  o.max_pixels = 256 * 256;
  return o;
}

bool library_gpu(void) {
  Err err;
  Device *gpu = device_open("cuda:0", &err);
  device_close(gpu);
  if (!gpu) test_skip(err.msg);
  return gpu;
}

_Thread_local maskrcnn_error why;

maskrcnn *library_open(const maskrcnn_options *options) {
  maskrcnn *m = NULL;
  if (!EXPECT_INT(maskrcnn_open(&m, options, &why), MASKRCNN_OK)) printf("    %s\n", why.message);
  return m;
}

maskrcnn_image library_image(int width, int height, int gap, uint64_t seed) {
  const size_t pitch = 3 * (size_t)width + (size_t)gap;
  uint8_t *rgb = xmalloc(pitch * (size_t)height);
  uint64_t key = rng_key(seed, RNG_TEST);
  const int step = 4 + (int)(key % 13);
  for (int y = 0; y < height; y++)
    for (size_t x = 0; x < pitch; x++) {
      key = rng_key(key, x < 3 * (size_t)width ? RNG_TEST : RNG_TEST + 1);
      rgb[(size_t)y * pitch + x] = (uint8_t)((y / step + (int)x / (3 * step)) % 2 ? 200 + key % 56 : key % 56);
    }
  return (maskrcnn_image){.size = sizeof(maskrcnn_image),
                          .data = rgb,
                          .format = MASKRCNN_RGB,
                          .width = width,
                          .height = height,
                          .pitch = gap ? (int64_t)pitch : 0};
}

void library_free(maskrcnn_image *image) {
  free((void *)image->data);
  *image = (maskrcnn_image){0};
}

static bool same_mask(const maskrcnn_rle *a, const maskrcnn_rle *b) {
  return a->height == b->height && a->width == b->width && a->num_counts == b->num_counts &&
         !memcmp(a->counts, b->counts, (size_t)a->num_counts * sizeof *a->counts);
}

static bool same_classes(const maskrcnn_classes *a, const maskrcnn_classes *b) {
  const size_t n = (size_t)a->n;
  bool same = a->n == b->n && !memcmp(a->scores, b->scores, n * sizeof(float)) &&
              !memcmp(a->labels, b->labels, n * sizeof(int));
  for (int i = 0; same && i < a->n; i++)
    same = a->category_ids[i] == b->category_ids[i] && !strcmp(a->names[i], b->names[i]);
  return same;
}

bool library_same(const maskrcnn_result *a, const maskrcnn_result *b) {
  const maskrcnn_detections *d = a->detections, *e = b->detections;
  if (a->status || b->status || a->kind != b->kind || a->width != b->width || a->height != b->height) return false;
  if (a->kind == MASKRCNN_CLASSES) return !d && !e && same_classes(a->classes, b->classes);
  if (d->n != e->n) return false;
  const size_t n = (size_t)d->n;
  bool same = !memcmp(d->boxes, e->boxes, 4 * n * sizeof(float)) && !memcmp(d->scores, e->scores, n * sizeof(float)) &&
              !memcmp(d->labels, e->labels, n * sizeof(int));
  for (int i = 0; i < d->n; i++)
    same = same && same_mask(d->masks[i], e->masks[i]) && !strcmp(d->names[i], e->names[i]);
  return same;
}
