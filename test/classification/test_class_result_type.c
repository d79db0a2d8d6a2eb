// Catches the library returning other classes than the engine, or wrong ones when several threads call it.
#include <pthread.h>
#include "base/alloc.h"
#include "classification/classify.h"
#include "classification/data/classes.h"
#include "data/batches/augment.h"
#include "engine/state.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

static maskrcnn_options classifier_options(void) {
  maskrcnn_options o = library_options();
  o.weights = library_classifier();
  return o;
}

// What an engine of its own makes of an image, whose map and division are training's.
static void classify(const maskrcnn_image *image, float prob[LIBRARY_CLASSES]) {
  Err err;
  Checkpoint c;
  Engine e;
  ModelConfig config;
  Category *category;
  const Size canvas = {LIBRARY_SIDE, LIBRARY_SIDE};
  const int by = classes_shrink((Size){image->height, image->width}, canvas), h = image->height / by,
            w = image->width / by;
  int zero = 0;
  uint8_t *rgb = xmalloc(3 * (size_t)image->height * (size_t)image->width);
  const size_t row = 3 * (size_t)image->width, pitch = image->pitch ? (size_t)image->pitch : row;
  for (int y = 0; y < image->height; y++)
    memcpy(rgb + (size_t)y * row, (const uint8_t *)image->data + (size_t)y * pitch, row);
  for (int y = 0; y < h; y++) // means of blocks, in place
    for (int x = 0; x < 3 * w; x++) {
      int sum = by * by / 2;
      for (int k = 0; k < by * by; k++)
        sum +=
            rgb[((size_t)(y * by + k / by) * (size_t)image->width + (size_t)(x / 3 * by + k % by)) * 3 + (size_t)x % 3];
      rgb[(size_t)y * 3 * (size_t)w + (size_t)x] = (uint8_t)(sum / (by * by));
    }
  CHECK(state_open(&c, library_classifier(), NULL) && state_config(&c, &config, &category, NULL));
  ImageInfo info = {.h = h, .w = w, .rh = LIBRARY_SIDE, .rw = LIBRARY_SIDE};
  memcpy(info.view.map, augment_classifier(NULL, config.view, 0, (Size){h, w}, canvas).map, sizeof info.view.map);
  Batch b = {.images = 1, .used = 1, .index = &zero, .count = &zero, .info = &info, .bytes = rgb};
  b.num_bytes = 3 * (int64_t)h * w;
  const Shapes none = {0}, shapes = {.canvases = 1,
                                     .canvas = {{.h = LIBRARY_SIDE, .w = LIBRARY_SIDE}},
                                     .images = 1,
                                     .max_bytes = b.num_bytes};
  if (!engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &none, &shapes, false, &err))
    die(EXIT_RUN, "%s", err.msg);
  CHECK(state_load(&e, &c, &(LoadOptions){0}, NULL));
  Classified done;
  engine_classify(&e, &b);
  CHECK(engine_classified(&e, true, &done));
  memcpy(prob, done.probs, LIBRARY_CLASSES * sizeof *prob);
  engine_close(&e);
  ckpt_close(&c);
  free(category);
  free(rgb);
}

TEST(library_describes_a_classifier) {
  const maskrcnn_options o = classifier_options();
  maskrcnn *m = library_open(&o);
  if (!m) return;
  const maskrcnn_description *d = maskrcnn_describe(m);
  EXPECT(d->num_kinds == 1 && d->kinds[0] == MASKRCNN_CLASSES && d->detections_per_image == 0);
  EXPECT_STR(d->model, "resnet");
  EXPECT_INT(d->num_categories, LIBRARY_CLASSES);
  EXPECT_STR(d->category_names[6], "kind 6");
  EXPECT(d->category_ids[6] == 6 && d->num_canvases == 1 && d->canvases[0].height == LIBRARY_SIDE);
  EXPECT(d->image_size == LIBRARY_SIDE && d->max_image_size == LIBRARY_SIDE);
  maskrcnn_close(m);
}

static void expect_classes(const maskrcnn_result *r, int n, const float *prob) {
  const maskrcnn_classes *c = r->classes;
  char name[32];
  if (!EXPECT(r->kind == MASKRCNN_CLASSES && c && !r->detections) || !EXPECT_INT(c->n, n)) return;
  bool seen[LIBRARY_CLASSES] = {false};
  for (int i = 0; i < n; i++) {
    const int class = c->labels[i] - 1;
    if (!EXPECT(class >= 0 && class < LIBRARY_CLASSES && !seen[class])) return;
    seen[class] = true;
    snprintf(name, sizeof name, "kind %d", class);
    EXPECT_STR(c->names[i], name);
    EXPECT(c->category_ids[i] == class && c->scores[i] == prob[class]);
    EXPECT(i == 0 || c->scores[i] <= c->scores[i - 1]);
  }
  for (int k = 0; k < LIBRARY_CLASSES; k++) EXPECT(seen[k] || prob[k] <= c->scores[n - 1]);
}

// Small ones, large ones that are divided, with a pitch and without; five classes, some, and all.
TEST(library_tells_what_the_engine_tells) {
  static const size_t tops[] = {5, 1, 0, 100};
  static const int wanted[] = {5, 1, 7, 7};
  enum { N = 4 };
  maskrcnn_image image[N] = {library_image(60, 50, 0, 1), library_image(40, 40, 5, 2), library_image(250, 170, 0, 3),
                             library_image(161, 250, 7, 4)};
  float prob[N][LIBRARY_CLASSES];
  for (int i = 0; i < N; i++) classify(&image[i], prob[i]);
  EXPECT(memcmp(prob[0], prob[1], sizeof prob[0])); // or the test would show nothing
  for (int k = 0; k < COUNT(tops); k++) {
    maskrcnn_options o = classifier_options();
    maskrcnn_results *r = NULL;
    o.top = tops[k];
    o.batch = 1 + 2 * k; // on its own, and beside others
    maskrcnn *m = library_open(&o);
    if (!m) break;
    if (!EXPECT_INT(maskrcnn_run(m, image, N, &r, &why), MASKRCNN_OK)) printf("    %s\n", why.message);
    for (int i = 0; r && i < N; i++) {
      expect_classes(r->images[i], wanted[k], prob[i]);
      EXPECT(r->images[i]->width == image[i].width && r->images[i]->height == image[i].height);
    }
    maskrcnn_close(m);
    EXPECT(!r || r->images[0]->classes->n > 0); // results outlive the handle
    maskrcnn_results_free(r);
  }
  for (int i = 0; i < N; i++) library_free(&image[i]);
}

// Photographs of odd sides that several threads copy, in bands of rows that are divided: without a pitch and with one.
TEST(library_divides_photographs_in_bands) {
  enum { W = 3001, H = 2003, N = 2 };
  maskrcnn_image image[N] = {library_image(W, H, 0, 1), library_image(W, H, 5, 2)};
  maskrcnn_options o = classifier_options();
  maskrcnn_results *r = NULL;
  float prob[LIBRARY_CLASSES];
  o.top = 0;
  o.batch = N;
  o.max_pixels = W * H;
  maskrcnn *m = library_open(&o);
  if (m && EXPECT_INT(maskrcnn_run(m, image, N, &r, &why), MASKRCNN_OK))
    for (int i = 0; i < N; i++) {
      classify(&image[i], prob);
      expect_classes(r->images[i], LIBRARY_CLASSES, prob);
    }
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  for (int i = 0; i < N; i++) library_free(&image[i]);
}

TEST(library_refuses_a_detector_s_options_for_a_classifier) {
  const maskrcnn_size canvas = {64, 64};
  maskrcnn *m;
  maskrcnn_options o = classifier_options();
  o.max_image_size = 80;
  EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(strstr(why.message, "max_image_size is for detectors"));
  o = classifier_options();
  o.canvases = &canvas;
  o.num_canvases = 1;
  EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(strstr(why.message, "canvases is for detectors"));
  o = classifier_options();
  o.detections_per_image = 100;
  EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(strstr(why.message, "detections_per_image is for detectors"));
  o = classifier_options();
  o.proposals_per_image = 100;
  EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(strstr(why.message, "proposals_per_image is for detectors"));
  o = classifier_options();
  o.nms = 0.5f;
  EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(strstr(why.message, "nms is for detectors"));
  o = classifier_options();
  o.image_size = 64;
  if (!(m = library_open(&o))) return;
  EXPECT(maskrcnn_describe(m)->canvases[0].width == 64 && maskrcnn_describe(m)->max_image_size == 64);
  maskrcnn_image image = library_image(30, 20, 0, 1);
  maskrcnn_results *r;
  EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK);
  maskrcnn_results_free(r);
  library_free(&image);
  maskrcnn_close(m);
}

// An older caller's options end before `top`.
TEST(library_takes_options_without_top) {
  maskrcnn_options o = classifier_options();
  o.size = offsetof(maskrcnn_options, top);
  o.top = 1;
  maskrcnn *m = library_open(&o);
  maskrcnn_image image = library_image(30, 20, 0, 1);
  maskrcnn_results *r = NULL;
  if (m && EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK)) EXPECT_INT(r->images[0]->classes->n, 5);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&image);
}

// ---- threads --------------------------------------------------------------------------------------------------------

enum { THREADS = 4, ROUNDS = 12, PICTURES = 6 };

typedef struct ClassCaller {
  maskrcnn *handle;
  const maskrcnn_image *image;
  maskrcnn_results *const *want;
  int first, wrong;
} ClassCaller;

static void *call(void *context) {
  ClassCaller *c = context;
  for (int k = 0; k < ROUNDS; k++) {
    maskrcnn_results *r = NULL;
    const int i = (c->first + k) % PICTURES;
    if (maskrcnn_run(c->handle, &c->image[i], 1, &r, &why) || !library_same(r->images[0], c->want[i]->images[0]))
      c->wrong++;
    maskrcnn_results_free(r);
  }
  return NULL;
}

static void four_threads(const char *device) {
  test_limit(120);
  maskrcnn_options o = classifier_options();
  o.device = device;
  o.batch = 3;
  maskrcnn *m = library_open(&o);
  maskrcnn_image image[PICTURES];
  maskrcnn_results *want[PICTURES] = {NULL};
  pthread_t thread[THREADS];
  ClassCaller caller[THREADS];
  if (!m) return;
  for (int i = 0; i < PICTURES; i++) {
    image[i] = library_image(40 + 50 * i, 45 + 30 * (i % 3), i % 2, (uint64_t)i);
    image[i].width = MIN(image[i].width, 250);
    image[i].pitch = 3 * (40 + 50 * (int64_t)i) + i % 2;
    EXPECT_INT(maskrcnn_run(m, &image[i], 1, &want[i], &why), MASKRCNN_OK);
  }
  EXPECT(!library_same(want[0]->images[0], want[1]->images[0]));
  for (int t = 0; t < THREADS; t++) {
    caller[t] = (ClassCaller){m, image, want, t, 0};
    CHECK(!pthread_create(&thread[t], NULL, call, &caller[t]));
  }
  for (int t = 0; t < THREADS; t++) {
    pthread_join(thread[t], NULL);
    EXPECT_INT(caller[t].wrong, 0);
  }
  maskrcnn_close(m);
  for (int i = 0; i < PICTURES; i++) {
    maskrcnn_results_free(want[i]);
    library_free(&image[i]);
  }
}

TEST(library_tells_classes_to_four_threads) { four_threads("cpu"); }

TEST(cuda_library_tells_classes_to_four_threads) {
  if (library_gpu()) four_threads("cuda:0");
}

static maskrcnn_results *classes_on(const char *device, const maskrcnn_image *image, int n) {
  maskrcnn_options o = classifier_options();
  o.device = device;
  o.batch = 2;
  o.top = 0;
  maskrcnn_results *r = NULL;
  maskrcnn *m = library_open(&o);
  if (m) EXPECT_INT(maskrcnn_run(m, image, n, &r, &why), MASKRCNN_OK);
  maskrcnn_close(m);
  return r;
}

// Probabilities are sums of up to 9 · 64 products through 20 layers, each within unit roundoff of its terms' size.
TEST(cuda_library_tells_the_classes_of_the_cpu) {
  enum { N = 5 };
  const double tolerance = 20 * 9 * 64 * 0x1p-24;
  if (!library_gpu()) return;
  maskrcnn_image image[N];
  for (int i = 0; i < N; i++) image[i] = library_image(40 + 50 * i, 50 + 40 * i, i, (uint64_t)i);
  maskrcnn_results *cpu = classes_on("cpu", image, N), *gpu = classes_on("cuda:0", image, N);
  for (int i = 0; cpu && gpu && i < N; i++) {
    const maskrcnn_classes *a = cpu->images[i]->classes, *b = gpu->images[i]->classes;
    double prob[2][LIBRARY_CLASSES] = {{0}};
    for (int k = 0; k < LIBRARY_CLASSES; k++) {
      prob[0][a->labels[k] - 1] = (double)a->scores[k];
      prob[1][b->labels[k] - 1] = (double)b->scores[k];
    }
    for (int k = 0; k < LIBRARY_CLASSES; k++) EXPECT_NEAR(prob[1][k], prob[0][k], tolerance);
  }
  maskrcnn_results_free(cpu);
  maskrcnn_results_free(gpu);
  for (int i = 0; i < N; i++) library_free(&image[i]);
}
