// Catches library calls that return other results than the engine, in another order, or crash on bad input.
#include <fenv.h>
#include <locale.h>
#include <sys/wait.h>
#include <unistd.h>
#include "engine/detect.h"
#include "engine/state.h"
#include "include/maskrcnn.h"
#include "test/harness/library.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"

static void expect_message(const char *want) {
  if (!EXPECT(strstr(why.message, want))) printf("    wanted %s: %s\n", want, why.message);
}

// ---- what was opened ------------------------------------------------------------------------------------------------

TEST(library_describes_what_it_opened) {
  maskrcnn_options o = library_options();
  o.batch = 3;
  maskrcnn *m = library_open(&o);
  if (!m) return;
  const maskrcnn_description *d = maskrcnn_describe(m);
  EXPECT(d->num_kinds == 1 && d->kinds[0] == MASKRCNN_DETECTIONS);
  EXPECT_INT(d->num_categories, CLASSES - 1);
  EXPECT_INT(d->category_ids[1], 17);
  EXPECT_STR(d->category_names[1], "kind \"1\"");
  EXPECT_STR(d->amp, "off");
  EXPECT_STR(d->resize_rule, "torchvision");
  EXPECT(strstr(d->device, "CPU") && !*d->why_cpu);
  EXPECT(d->batch == 3 && d->queue == 12 && d->max_pixels == 256 * 256);
  EXPECT(d->image_size == 64 && d->max_image_size == 96 && d->detections_per_image == 10);
  EXPECT_INT(d->num_canvases, 3);
  EXPECT(d->canvases[1].height == 64 && d->canvases[1].width == 96);
  EXPECT(d->host_bytes > 0 && d->device_bytes == 0);
  EXPECT_INT(d->exif, -1);
  maskrcnn_close(m);
  maskrcnn_close(NULL);
  EXPECT(!maskrcnn_describe(NULL));
  EXPECT(strstr(maskrcnn_version(), "2.0 (") == maskrcnn_version());
  EXPECT_STR(maskrcnn_status_name(MASKRCNN_DEAD), "dead");
  EXPECT_STR(maskrcnn_status_name(MASKRCNN_BAD_FILE), "bad file");
  EXPECT_STR(maskrcnn_status_name(MASKRCNN_BAD_ARGUMENT), "bad argument");
  EXPECT_STR(maskrcnn_status_name(MASKRCNN_EMPTY), "empty");
  EXPECT_STR(maskrcnn_status_name((maskrcnn_status)99), "unknown");
}

// ---- what is found --------------------------------------------------------------------------------------------------

// An engine of its own on the same canvas.
static Detections find(const maskrcnn_image *image, int rh, int rw, Canvas canvas, float threshold) {
  Checkpoint c;
  Engine e;
  ModelConfig config;
  Category *category;
  Detections found;
  int zero = 0;
  const int64_t bytes = 3 * (int64_t)image->width * image->height;
  ImageInfo info = {.h = image->height, .w = image->width, .rh = rh, .rw = rw};
  Batch b = {.images = 1, .used = 1, .index = &zero, .count = &zero, .info = &info, .num_bytes = bytes};
  const Shapes none = {0}, shapes = {.canvases = 1, .canvas = {canvas}, .images = 1, .max_bytes = bytes};
  const char *path = library_weights(NORM_FROZEN_BN);
  b.bytes = (uint8_t *)image->data;
  CHECK(state_open(&c, path, NULL) && state_config(&c, &config, &category, NULL));
  CHECK(
      engine_open(&e, &(Compute){.device = "cpu"}, model_of(&config), &config, category, &none, &shapes, false, NULL));
  CHECK(state_load(&e, &c, &(LoadOptions){0}, NULL));
  engine_infer(&e, &b);
  engine_detections(&e, &b, threshold, &found);
  engine_close(&e);
  ckpt_close(&c);
  free(category);
  return found;
}

static void expect_found(const maskrcnn_result *r, const Detections *want) {
  const maskrcnn_detections *d = r->detections;
  EXPECT(want->n > 0); // or the test would show nothing
  if (!EXPECT_INT(d->n, want->n)) return;
  for (int i = 0; i < d->n; i++) {
    const Detection *w = &want->items[i];
    EXPECT(!memcmp(d->boxes + 4 * i, w->box, sizeof w->box) && d->scores[i] == w->score && d->labels[i] == w->label);
    EXPECT(d->masks[i]->num_counts == w->mask.n && d->masks[i]->height == r->height && d->masks[i]->width == r->width);
    EXPECT(!memcmp(d->masks[i]->counts, w->mask.runs, (size_t)w->mask.n * sizeof *w->mask.runs));
    EXPECT(!i || d->scores[i] <= d->scores[i - 1]);
  }
}

static void finds_at(float threshold) {
  maskrcnn_options o = library_options();
  o.mask_threshold = threshold;
  maskrcnn *m = library_open(&o);
  maskrcnn_image images[2] = {library_image(120, 80, 0, 1), library_image(50, 75, 11, 2)};
  maskrcnn_results *r;
  if (!m) return;
  if (EXPECT_INT(maskrcnn_run(m, images, 2, &r, &why), MASKRCNN_OK) && EXPECT_INT(r->n, 2)) {
    Detections wide = find(&images[0], 64, 96, (Canvas){.h = 64, .w = 96}, threshold);
    expect_found(r->images[0], &wide);
    detections_free(&wide);
    maskrcnn_image dense = library_image(50, 75, 0, 2); // the same noise, without what stands between rows?
    for (int y = 0; y < 75; y++)
      memcpy((uint8_t *)dense.data + y * 150, (const uint8_t *)images[1].data + y * images[1].pitch, 150);
    Detections upright = find(&dense, 96, 64, (Canvas){.h = 96, .w = 64}, threshold);
    expect_found(r->images[1], &upright);
    detections_free(&upright);
    library_free(&dense);
  }
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  for (int i = 0; i < 2; i++) library_free(&images[i]);
}

TEST(library_finds_what_the_engine_finds) { finds_at(0.5f); }

// Whatever the options say, from every pixel of a box to hardly any.
TEST(library_pastes_masks_at_any_threshold) {
  static const float thresholds[] = {0, 0.3f, 0.55f, 1};
  for (int i = 0; i < COUNT(thresholds); i++) finds_at(thresholds[i]);
}

// Photographs that several threads copy, in bands of rows: without a pitch and with one.
TEST(library_copies_photographs_in_bands) {
  enum { W = 3000, H = 2000, ROW = 3 * W };
  maskrcnn_options o = library_options();
  o.max_pixels = W * H;
  maskrcnn *m = library_open(&o);
  maskrcnn_image images[2] = {library_image(W, H, 0, 1), library_image(W, H, 5, 1)};
  maskrcnn_results *r;
  if (!m) return;
  for (int y = 0; y < H; y++)
    memcpy((uint8_t *)(const uint8_t *)images[1].data + y * images[1].pitch,
           (const uint8_t *)images[0].data + (size_t)y * ROW, ROW);
  if (EXPECT_INT(maskrcnn_run(m, images, 2, &r, &why), MASKRCNN_OK)) {
    Detections found = find(&images[0], 64, 96, (Canvas){.h = 64, .w = 96}, o.mask_threshold);
    for (int i = 0; i < 2; i++) expect_found(r->images[i], &found);
    detections_free(&found);
  }
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  for (int i = 0; i < 2; i++) library_free(&images[i]);
}

// The same bits in batches of 1 and of 24, whatever the other images are.
static void same_in_any_batch(const char *device, const char *amp, NormType norm) {
  enum { N = 48 };
  maskrcnn_image images[N];
  maskrcnn_results *one = NULL, *many = NULL;
  maskrcnn_options o = library_options();
  o.weights = library_weights(norm);
  o.device = device;
  o.tf32 = !strcmp(amp, "tf32");
  o.amp = o.tf32 ? "off" : amp;
  maskrcnn *m = library_open(&o);
  o.batch = 24;
  maskrcnn *n = library_open(&o);
  int found = 0;
  for (int i = 0; i < N; i++) images[i] = library_image(40 + 31 * i % 90, 40 + 17 * i % 80, i % 3, (uint64_t)i);
  if (m && n && EXPECT_INT(maskrcnn_run(m, images, N, &one, &why), MASKRCNN_OK) &&
      EXPECT_INT(maskrcnn_run(n, images, N, &many, &why), MASKRCNN_OK))
    for (int i = 0; i < N; i++) {
      EXPECT(library_same(one->images[i], many->images[i]));
      found += one->images[i]->detections->n;
    }
  EXPECT(found > N);
  maskrcnn_results_free(one);
  maskrcnn_results_free(many);
  maskrcnn_close(m);
  maskrcnn_close(n);
  for (int i = 0; i < N; i++) library_free(&images[i]);
}

TEST_TIER(library_batch_changes_nothing, 1) { same_in_any_batch("cpu", "off", NORM_FROZEN_BN); }

TEST(cuda_library_batch_changes_nothing) {
  if (library_gpu()) same_in_any_batch("cuda:0", "off", NORM_FROZEN_BN);
}
TEST(cuda_library_batch_changes_nothing_in_bf16) {
  if (library_gpu()) same_in_any_batch("cuda:0", "bf16", NORM_FROZEN_BN);
}

TEST(cuda_library_batch_changes_nothing_in_tf32) {
  if (library_gpu()) same_in_any_batch("cuda:0", "tf32", NORM_FROZEN_BN);
}

// ---- order ----------------------------------------------------------------------------------------------------------

static void keeps_the_order(const char *device, int batch) {
  enum { N = 30 };
  maskrcnn_options o = library_options();
  o.device = device;
  o.batch = batch;
  maskrcnn *m = library_open(&o);
  if (!m) return;
  maskrcnn_results *all = NULL, *r;
  maskrcnn_image images[N];
  int next = 0;
  for (int i = 0; i < N; i++) images[i] = library_image(60 + 29 * i % 80, 60, 0, (uint64_t)i);
  EXPECT_INT(maskrcnn_next(m, -1, &r, &why), MASKRCNN_EMPTY);
  EXPECT_INT(maskrcnn_run(m, images, N, &all, &why), MASKRCNN_OK);
  for (int i = 0, given = 0; next < N;) {
    const int n = MIN(1 + i % 3, N - given);
    const maskrcnn_status status =
        given < N ? maskrcnn_submit(m, images + given, n, (uint64_t)given, &why) : MASKRCNN_FULL;
    if (status == MASKRCNN_OK) {
      given += n;
      i++;
      continue;
    }
    if (!EXPECT_INT(status, MASKRCNN_FULL) || !EXPECT_INT(maskrcnn_next(m, -1, &r, &why), MASKRCNN_OK)) break;
    EXPECT_INT((long long)r->tag, next);
    for (int k = 0; k < r->n; k++) EXPECT(library_same(r->images[k], all->images[next + k]));
    next += r->n;
    maskrcnn_results_free(r);
  }
  EXPECT_INT(maskrcnn_submit(m, NULL, 0, 5, &why), MASKRCNN_OK); // nothing is a submission, too
  EXPECT_INT(maskrcnn_next(m, -1, &r, &why), MASKRCNN_OK);
  EXPECT(r->tag == 5 && r->n == 0);
  maskrcnn_results_free(r);
  EXPECT_INT(maskrcnn_next(m, 0, &r, &why), MASKRCNN_EMPTY);
  EXPECT_INT(maskrcnn_submit(m, images, 1, 0, &why), MASKRCNN_OK); // dropped
  maskrcnn_close(m);
  EXPECT(all->images[N - 1]->detections->n >= 0); // results outlive the handle
  maskrcnn_results_free(all);
  for (int i = 0; i < N; i++) library_free(&images[i]);
}

// Batches of one image, of as many as a submission has at most, and of more.
TEST(library_pipeline_keeps_the_order) {
  for (int batch = 1; batch <= 5; batch += 2) keeps_the_order("cpu", batch);
}
TEST(cuda_library_pipeline_keeps_the_order) {
  if (!library_gpu()) return;
  for (int batch = 1; batch <= 5; batch += 2) keeps_the_order("cuda:0", batch);
}

// Pixels may be freed and changed when maskrcnn_submit returns.
TEST(library_submit_copies) {
  const maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  maskrcnn_image image = library_image(90, 70, 0, 3);
  maskrcnn_results *before, *after;
  if (!m) return;
  EXPECT_INT(maskrcnn_run(m, &image, 1, &before, &why), MASKRCNN_OK);
  EXPECT_INT(maskrcnn_submit(m, &image, 1, 1, &why), MASKRCNN_OK);
  memset((uint8_t *)image.data, 0, 3 * 90 * 70);
  library_free(&image);
  if (EXPECT_INT(maskrcnn_next(m, -1, &after, &why), MASKRCNN_OK))
    EXPECT(library_same(before->images[0], after->images[0]));
  maskrcnn_results_free(before);
  maskrcnn_results_free(after);
  maskrcnn_close(m);
}

// The handle's thread is not in the child of a fork: calls there say so, and do not wait for it.
TEST(library_handles_do_not_survive_a_fork) {
  const maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  if (!m) return;
  const maskrcnn_image image = library_image(64, 64, 0, 1);
  maskrcnn_results *r;
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const bool ok = maskrcnn_run(m, &image, 1, &r, &why) == MASKRCNN_DEAD &&
                    maskrcnn_submit(m, &image, 1, 0, &why) == MASKRCNN_DEAD &&
                    maskrcnn_next(m, -1, &r, &why) == MASKRCNN_DEAD && strstr(why.message, "before a fork");
    maskrcnn_close(m);
    _exit(ok ? 0 : 1);
  }
  int status = -1;
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  free((void *)image.data);
}

// ---- bad input ------------------------------------------------------------------------------------------------------

TEST(library_refuses_images_and_goes_on) {
  const maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  if (!m) return;
  maskrcnn_image good = library_image(64, 64, 0, 1);
  maskrcnn_results *r;
  const struct {
    const void *data;
    int width, height;
    int64_t pitch;
    const char *want;
  } bad[] = {{NULL, 64, 64, 0, "data is NULL"},
             {good.data, 0, 64, 0, "it has 0 x 64 pixels"},
             {good.data, 64, -1, 0, "it has 64 x -1 pixels"},
             {good.data, 64, 64, -192, "pitch is -192"},
             {good.data, 64, 64, 191, "pitch is 191, but rows of 64 RGB pixels have 192 bytes"},
             {good.data, 64, 64, INT64_MAX, "pitch is 9223372036854775807: 64 rows of it exceed the "},
             {good.data, 64, 64, (int64_t)1 << 61, "pitch is 2305843009213693952: 64 rows of it"},
             {good.data, 257, 256, 0, "it has 257 x 256 pixels, more than max_pixels ("},
             {good.data, INT32_MAX, INT32_MAX, 0, " pixels, more than max_pixels ("}};
  for (int i = 0; i < COUNT(bad); i++) {
    maskrcnn_image images[] = {good, good, good};
    images[1].data = bad[i].data;
    images[1].width = bad[i].width;
    images[1].height = bad[i].height;
    images[1].pitch = bad[i].pitch;
    if (!EXPECT_INT(maskrcnn_run(m, images, 3, &r, &why), MASKRCNN_OK)) continue;
    EXPECT_INT(r->failed, 1);
    EXPECT_INT(r->images[1]->status, MASKRCNN_BAD_IMAGE);
    EXPECT(!r->images[1]->detections && !r->images[1]->classes);
    if (!EXPECT(strstr(r->images[1]->message, bad[i].want))) printf("    %s: %s\n", bad[i].want, r->images[1]->message);
    EXPECT(library_same(r->images[0], r->images[2]) && r->images[0]->detections->n > 0);
    maskrcnn_results_free(r);
    EXPECT_INT(maskrcnn_submit(m, images, 2, 9, &why), MASKRCNN_OK);
    if (EXPECT_INT(maskrcnn_wait(m, 9, -1, &r, &why), MASKRCNN_OK)) EXPECT_INT(r->failed, 1);
    maskrcnn_results_free(r);
  }
  EXPECT_INT(maskrcnn_run(m, NULL, 1, &r, &why), MASKRCNN_BAD_ARGUMENT);
  expect_message("images is NULL");
  EXPECT_INT(maskrcnn_run(m, &good, -1, &r, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_run(m, &good, 1, NULL, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_next(m, 0, NULL, &why), MASKRCNN_BAD_ARGUMENT);
  maskrcnn_image unknown[2] = {good, good};
  unknown[0].size = 0;
  EXPECT_INT(maskrcnn_run(m, unknown, 1, &r, &why), MASKRCNN_BAD_ARGUMENT);
  expect_message("images[0].size is 0: it must be sizeof(maskrcnn_image)");
  unknown[0].size = sizeof good;
  unknown[1].size = sizeof good + 8;
  EXPECT_INT(maskrcnn_submit(m, unknown, 2, 0, &why), MASKRCNN_BAD_ARGUMENT);
  expect_message("images[1].size is ");
  EXPECT_INT(maskrcnn_run(NULL, &good, 1, &r, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_submit(NULL, &good, 1, 0, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_next(NULL, 0, &r, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(strstr(why.message, "NULL"));
  const maskrcnn_image five[] = {good, good, good, good, good};
  EXPECT_INT(maskrcnn_submit(m, five, 5, 0, &why), MASKRCNN_BAD_ARGUMENT); // the queue has four places
  expect_message("more than the queue's length of 4");
  EXPECT_INT(maskrcnn_run(m, NULL, 0, &r, &why), MASKRCNN_OK);
  EXPECT_INT(r->n, 0);
  maskrcnn_results_free(r);
  EXPECT_INT(maskrcnn_run(m, five, 5, &r, &why), MASKRCNN_OK);
  EXPECT_INT(r->n, 5);
  maskrcnn_results_free(r);
  library_free(&good);
  maskrcnn_close(m);
}

// From one pixel to the largest that is allowed, as thin as can be.
TEST(library_takes_images_of_any_shape) {
  static const int shape[][2] = {{1, 1}, {1, 65536}, {65536, 1}, {2, 3}, {3, 20000}, {256, 256}};
  const maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  for (int i = 0; m && i < COUNT(shape); i++) {
    maskrcnn_image image = library_image(shape[i][0], shape[i][1], 0, 5);
    maskrcnn_results *r;
    if (!EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK)) printf("    %s\n", why.message);
    for (int k = 0; r && k < r->images[0]->detections->n; k++)
      EXPECT(maskrcnn_mask_string(r->images[0]->detections->masks[k], NULL, 0) > 0);
    maskrcnn_results_free(r);
    library_free(&image);
  }
  maskrcnn_close(m);
}

static void expect_open_fails(const maskrcnn_options *o, maskrcnn_status status, const char *want) {
  maskrcnn *m = (maskrcnn *)&why;
  EXPECT_INT(maskrcnn_open(&m, o, &why), status);
  EXPECT(!m);
  if (!EXPECT(strstr(why.message, want) && !strchr(why.message, '\n')))
    printf("    wanted %s: %s\n", want, why.message);
  EXPECT_INT(maskrcnn_open(&m, o, NULL), status);
}

static void write_file(const char *path, const char *text) {
  FILE *f = fopen(path, "wb");
  fputs(text, f);
  fclose(f);
}

// Weights whose box head is of more classes than the file says.
static const char *other_classes(void) {
  Engine e;
  ModelConfig config = small_config(NORM_FROZEN_BN, CLASSES);
  small_engine(&e, &config);
  e.config.classes = CLASSES - 1;
  const char *path = small_save(&e, "library-other", false);
  engine_close(&e);
  return path;
}

// NMS of 0 leaves no two boxes of a class that overlap; fields that the weights depend on stay as they are.
TEST(library_sets_fields) {
  const struct {
    float nms;
    const char *set, *complaint;
  } cases[] = {{0, NULL, NULL},
               {-1, "nms=0", NULL},
               {-1, "nms=2", "set nms=2: expected a number, 0 to 1"},
               {-1, "fpn_channels=8", "set fpn_channels: the weights were trained with its value"},
               {-1, "nmss=1", "set nmss: unknown field; did you mean nms?"}};
  maskrcnn_image image = library_image(90, 70, 0, 4);
  for (int i = 0; i < COUNT(cases); i++) {
    maskrcnn_options o = library_options();
    maskrcnn *m = NULL;
    maskrcnn_results *r = NULL;
    o.min_score = 0;
    o.nms = cases[i].nms;
    o.set = cases[i].set;
    if (cases[i].complaint) {
      EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_BAD_ARGUMENT);
      if (!EXPECT(strstr(why.message, cases[i].complaint) == why.message)) printf("    %s\n", why.message);
      continue;
    }
    if ((m = library_open(&o)) && EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK)) {
      const maskrcnn_detections *d = r->images[0]->detections;
      EXPECT(d->n > 0);
      for (size_t a = 0; a < (size_t)d->n; a++)
        for (size_t b = 0; b < a; b++) {
          const float *p = d->boxes + 4 * a, *q = d->boxes + 4 * b;
          const bool apart = p[0] >= q[2] || q[0] >= p[2] || p[1] >= q[3] || q[1] >= p[3];
          EXPECT(apart || d->labels[a] != d->labels[b]);
        }
    }
    maskrcnn_results_free(r);
    maskrcnn_close(m);
  }
  library_free(&image);
}

// Of a caller whose header ends before detections_per_image, or proposals_per_image, too: as trained.
TEST(library_finds_as_many_as_asked_for) {
  const int trained = small_config(NORM_FROZEN_BN, CLASSES).detections;
  const struct {
    size_t size, asked, proposals;
    int limit, found;
  } cases[] = {{offsetof(maskrcnn_options, detections_per_image), 3, 1, trained, trained},
               {offsetof(maskrcnn_options, proposals_per_image), 3, 1, 3, 3},
               {sizeof(maskrcnn_options), 0, 0, trained, trained},
               {sizeof(maskrcnn_options), 3, 0, 3, 3},
               {sizeof(maskrcnn_options), 150, 0, 150, 150},
               {sizeof(maskrcnn_options), 0, 1, trained, CLASSES - 1}}; // one of each class
  maskrcnn_image image = library_image(90, 70, 0, 4);
  for (int i = 0; i < COUNT(cases); i++) {
    maskrcnn_options o = library_options();
    o.size = cases[i].size;
    o.min_score = 0;
    o.detections_per_image = cases[i].asked;
    o.proposals_per_image = cases[i].proposals;
    maskrcnn *m = library_open(&o);
    maskrcnn_results *r = NULL;
    if (m && EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK)) {
      EXPECT_INT(maskrcnn_describe(m)->detections_per_image, cases[i].limit);
      EXPECT_INT(r->images[0]->detections->n, cases[i].found);
    }
    maskrcnn_results_free(r);
    maskrcnn_close(m);
  }
  library_free(&image);
}

TEST(library_refuses_what_cannot_be_opened) {
  char garbage[512];
  snprintf(garbage, sizeof garbage, "%s/garbage.safetensors", test_tmp());
  write_file(garbage, "no weights at all, but long enough for a header");
  const maskrcnn_size small[] = {{32, 32}}, huge[] = {{16384, 16384}};
  maskrcnn_options o = library_options();
  expect_open_fails(NULL, MASKRCNN_BAD_ARGUMENT, "options is NULL");
  EXPECT_INT(maskrcnn_open(NULL, &o, NULL), MASKRCNN_BAD_ARGUMENT);
  o.weights = "/nowhere/w.pth";
  expect_open_fails(&o, MASKRCNN_BAD_WEIGHTS, "/nowhere/w.pth");
  o.weights = garbage;
  expect_open_fails(&o, MASKRCNN_BAD_WEIGHTS, "garbage.safetensors");
  o.weights = other_classes();
  expect_open_fails(&o, MASKRCNN_BAD_WEIGHTS, ", misshaped roi_heads.box_predictor.");
  expect_open_fails(&o, MASKRCNN_BAD_WEIGHTS,
                    "its tensors do not match its model configuration: save it again"); // and no option of ./train
  o = library_options();
  o.device = "tpu";
  expect_open_fails(&o, MASKRCNN_BAD_DEVICE, "device tpu: this build supports ");
  o = library_options();
  o.amp = "bf16";
  expect_open_fails(&o, MASKRCNN_BAD_ARGUMENT, "amp needs a GPU");
  o = library_options();
  o.max_image_size = 40;
  expect_open_fails(&o, MASKRCNN_BAD_ARGUMENT, "max_size");
  o = library_options();
  o.canvases = huge;
  o.num_canvases = 1;
  o.batch = 1024;
  expect_open_fails(&o, MASKRCNN_NO_MEMORY, "reduce batch");
  o = library_options();
  o.canvases = small;
  o.num_canvases = 1;
  maskrcnn *m = library_open(&o);
  maskrcnn_image image = library_image(64, 64, 0, 1);
  maskrcnn_results *r;
  EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK);
  EXPECT_STR(
      r->images[0]->message,
      "it is resized to 64 x 64 (h x w), which fits no canvas: open with a larger canvas, or with canvases NULL");
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&image);
}

// A caller that rounds otherwise gets the same, and rounds as before.
TEST(library_finds_the_same_in_any_rounding_mode) {
  static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
  maskrcnn_options o = library_options();
  o.min_score = 0;
  maskrcnn_image image = library_image(97, 131, 0, 1);
  maskrcnn_results *r[COUNT(modes)] = {0};
  for (int i = 0; i < COUNT(modes); i++) {
    fesetround(modes[i]);
    maskrcnn *m = library_open(&o);
    EXPECT(m && !maskrcnn_run(m, &image, 1, &r[i], &why));
    const int after = fegetround();
    fesetround(FE_TONEAREST);
    EXPECT_INT(after, modes[i]);
    EXPECT(r[0] && r[i] && r[0]->images[0]->detections->n > 0 && library_same(r[0]->images[0], r[i]->images[0]));
    maskrcnn_close(m);
  }
  for (int i = 0; i < COUNT(modes); i++) maskrcnn_results_free(r[i]);
  library_free(&image);
}

// A caller's locale may write numbers with a comma, and its C library reads them so.
TEST(library_reads_weights_in_any_locale) {
  static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
  const maskrcnn_options o = library_options();
  const char *found = NULL;
  for (int i = 0; i < COUNT(with_comma) && !found; i++) found = setlocale(LC_NUMERIC, with_comma[i]);
  if (!found) {
    test_skip("no locale with a comma is installed");
    return;
  }
  maskrcnn_close(library_open(&o));
  setlocale(LC_NUMERIC, "C");
}
