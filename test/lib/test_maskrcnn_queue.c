// Catches submissions that are lost, waited for in vain or computed although they were cancelled, and weights, memory,
// logs and pictures of the library that are not as its header says.
#define _GNU_SOURCE // feenableexcept
#include <dlfcn.h>
#include <fenv.h>
#include <pthread.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "data/images/png.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

enum { N = 8 };

static maskrcnn *open_queue(maskrcnn_image images[N]) {
  maskrcnn_options o = library_options();
  o.batch = 1;
  o.queue = N;
  for (int i = 0; i < N; i++) images[i] = library_image(60 + 3 * i, 60, 0, (uint64_t)i);
  return library_open(&o);
}

static void close_queue(maskrcnn *m, maskrcnn_image images[N]) {
  maskrcnn_close(m);
  for (int i = 0; i < N; i++) library_free(&images[i]);
}

TEST(library_waits_by_tag) {
  maskrcnn_image images[N];
  maskrcnn_results *r, *all;
  int done = -1, failed = -1;
  test_limit(60);
  maskrcnn *m = open_queue(images);
  if (!m) return;
  EXPECT_INT(maskrcnn_run(m, images, N, &all, &why), MASKRCNN_OK);
  EXPECT_INT(maskrcnn_wait(m, 3, -1, &r, &why), MASKRCNN_EMPTY);
  EXPECT_INT(maskrcnn_poll(m, 3, NULL, NULL, &why), MASKRCNN_EMPTY);
  for (int i = 0; i < N; i++) EXPECT_INT(maskrcnn_submit(m, &images[i], 1, (uint64_t)i, &why), MASKRCNN_OK);
  EXPECT_INT(maskrcnn_submit(m, &images[0], 1, 9, &why) == MASKRCNN_BAD_ARGUMENT, 0);
  for (int i = N - 1; i > 0; i--) { // the youngest first
    if (!EXPECT_INT(maskrcnn_wait(m, (uint64_t)i, 60000, &r, &why), MASKRCNN_OK)) break;
    EXPECT(r->tag == (uint64_t)i && library_same(r->images[0], all->images[i]));
    maskrcnn_results_free(r);
  }
  EXPECT_INT(maskrcnn_poll(m, 0, &done, &failed, &why), MASKRCNN_OK);
  EXPECT(done == 1 && failed == 0);
  EXPECT_INT(maskrcnn_next(m, 0, &r, &why), MASKRCNN_OK);
  EXPECT_INT((long long)r->tag, 0);
  maskrcnn_results_free(r);
  maskrcnn_results_free(all);
  close_queue(m, images);
}

// What is not computed yet is not computed; every submission has its results all the same.
TEST(library_cancels) {
  maskrcnn_image images[N];
  maskrcnn_results *r;
  int cancelled = 0;
  test_limit(60);
  maskrcnn *m = open_queue(images);
  if (!m) return;
  EXPECT_INT(maskrcnn_cancel(m, 1, &why), MASKRCNN_EMPTY);
  EXPECT_INT(maskrcnn_submit(m, images, N, 1, &why), MASKRCNN_OK);
  EXPECT_INT(maskrcnn_cancel(m, 1, &why), MASKRCNN_OK);
  if (EXPECT_INT(maskrcnn_wait(m, 1, -1, &r, &why), MASKRCNN_OK)) {
    for (int i = 0; i < N; i++) cancelled += r->images[i]->status == MASKRCNN_CANCELLED;
    EXPECT(cancelled > 0 && cancelled == r->failed);
    EXPECT(r->images[N - 1]->width == images[N - 1].width && !r->images[N - 1]->detections);
    maskrcnn_picture *p = NULL;
    EXPECT_INT(maskrcnn_draw(m, &images[N - 1], r->images[N - 1], &p, &why), MASKRCNN_BAD_ARGUMENT);
    EXPECT(!p && strstr(why.message, "\"cancelled\""));
    maskrcnn_results_free(r);
  }
  for (int round = 0; round < 40; round++) { // the queue has all its places again
    EXPECT_INT(maskrcnn_submit(m, images, N - round % 3, 2, &why), MASKRCNN_OK);
    if (round % 2) EXPECT_INT(maskrcnn_cancel(m, 2, &why), MASKRCNN_OK);
    if (EXPECT_INT(maskrcnn_next(m, -1, &r, &why), MASKRCNN_OK)) EXPECT(round % 2 || !r->failed);
    maskrcnn_results_free(r);
  }
  close_queue(m, images);
}

TEST(library_waits_for_so_long) {
  maskrcnn_options o = library_options();
  maskrcnn_image image = library_image(2000, 2000, 0, 1);
  maskrcnn_results *r;
  o.image_size = 640;
  o.max_pixels = 4 << 20;
  maskrcnn *m = library_open(&o);
  if (!m) return;
  EXPECT_INT(maskrcnn_submit(m, &image, 1, 1, &why), MASKRCNN_OK);
  const double start = now_seconds();
  const maskrcnn_status status = maskrcnn_next(m, 1, &r, &why);
  EXPECT(status == MASKRCNN_NOT_YET || status == MASKRCNN_OK); // the machine may be as fast
  EXPECT(status == MASKRCNN_OK || now_seconds() - start >= 0.001);
  if (status == MASKRCNN_NOT_YET) EXPECT_INT(maskrcnn_next(m, -1, &r, &why), MASKRCNN_OK);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&image);
}

// ---- weights and memory ---------------------------------------------------------------------------------------------

TEST(library_reads_weights_in_memory) {
  size_t size;
  maskrcnn_options o = library_options(), of_memory = o;
  char *file = file_read(o.weights, &size, NULL);
  maskrcnn_image image = library_image(80, 70, 0, 1);
  maskrcnn_results *r[2] = {NULL};
  of_memory.weights = NULL;
  of_memory.weights_data = file;
  of_memory.weights_bytes = size;
  maskrcnn *m[2] = {library_open(&o), library_open(&of_memory)}, *none;
  memset(file, 0, size); // it was read
  for (int i = 0; i < 2; i++) EXPECT(m[i] && !maskrcnn_run(m[i], &image, 1, &r[i], &why));
  EXPECT(r[0] && r[1] && library_same(r[0]->images[0], r[1]->images[0]));
  EXPECT_INT(maskrcnn_open(&none, &of_memory, &why) == MASKRCNN_BAD_WEIGHTS, 1);
  EXPECT(strstr(why.message, "the weights in memory: "));
  of_memory.weights = "file";
  EXPECT_INT(maskrcnn_open(&none, &of_memory, &why), MASKRCNN_BAD_ARGUMENT);
  for (int i = 0; i < 2; i++) {
    maskrcnn_results_free(r[i]);
    maskrcnn_close(m[i]);
  }
  library_free(&image);
  free(file);
}

TEST(library_plans_and_limits_memory) {
  maskrcnn_options o = library_options();
  maskrcnn_memory plan = {.size = sizeof plan}, unknown = {.size = 3};
  maskrcnn *m = library_open(&o);
  if (!m) return;
  EXPECT_INT(maskrcnn_plan(&o, &plan, &why), MASKRCNN_OK);
  EXPECT_INT((long long)plan.host_bytes, (long long)maskrcnn_describe(m)->host_bytes);
  EXPECT(plan.device_bytes == 0 && plan.host_free > 0);
  EXPECT_INT(maskrcnn_plan(&o, &unknown, &why), MASKRCNN_BAD_ARGUMENT);
  maskrcnn_close(m);
  o.max_host_bytes = plan.host_bytes - 1;
  plan.host_bytes = 0;
  EXPECT_INT(maskrcnn_plan(&o, &plan, &why), MASKRCNN_NO_MEMORY);
  EXPECT(plan.host_bytes == o.max_host_bytes + 1 && strstr(why.message, " allowed on the host"));
  EXPECT_INT(maskrcnn_open(&m, &o, &why), MASKRCNN_NO_MEMORY);
  // Room for small images, and none for a large one.
  o.max_host_bytes += 1 << 20;
  o.max_pixels = 2000 * 2000;
  if (!(m = library_open(&o))) return;
  maskrcnn_image images[] = {library_image(70, 70, 0, 1), library_image(2000, 2000, 0, 1)};
  maskrcnn_results *r = NULL;
  if (EXPECT_INT(maskrcnn_run(m, images, 2, &r, &why), MASKRCNN_OK)) {
    EXPECT(r->images[0]->status == MASKRCNN_OK && r->images[1]->status == MASKRCNN_NO_MEMORY);
    EXPECT(strstr(r->images[1]->message, "raise max_host_bytes"));
  }
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  for (int i = 0; i < 2; i++) library_free(&images[i]);
}

TEST(library_lists_devices) {
  maskrcnn_devices *d = NULL;
  if (!EXPECT_INT(maskrcnn_list_devices(&d, &why), MASKRCNN_OK)) return;
  const maskrcnn_device *cpu = d->devices[d->n - 1];
  EXPECT_STR(cpu->name, "cpu");
  EXPECT(strstr(cpu->description, "CPU") && cpu->total_bytes > 0);
  EXPECT(d->n > 1 || *d->why_no_gpu);
  maskrcnn_devices_free(d);
  maskrcnn_devices_free(NULL);
}

// ---- logs and pictures ----------------------------------------------------------------------------------------------

typedef struct LogLines {
  char text[4096];
  int levels[4];
} LogLines;

static void keep(void *context, maskrcnn_log_level level, const char *message) {
  LogLines *l = context;
  const size_t used = strlen(l->text);
  snprintf(l->text + used, sizeof l->text - used, "%s\n", message);
  l->levels[level]++;
}

TEST(library_logs) {
  LogLines l = {.text = ""};
  maskrcnn_options o = library_options();
  o.log = keep;
  o.log_context = &l;
  maskrcnn *m = library_open(&o);
  maskrcnn_image bad = {.size = sizeof bad, .format = MASKRCNN_RGB, .width = 4, .height = 4};
  maskrcnn_results *r = NULL;
  if (m) EXPECT_INT(maskrcnn_run(m, &bad, 1, &r, &why), MASKRCNN_OK);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  EXPECT(strstr(l.text, "opened maskrcnn on CPU") && l.levels[MASKRCNN_LOG_INFO] >= 1);
  EXPECT(strstr(l.text, "image 0: data is NULL\n") && l.levels[MASKRCNN_LOG_WARNING] == 1);
}

TEST(library_draws_and_writes) {
  Err err;
  Image read;
  maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  maskrcnn_image image = library_image(80, 70, 3, 1), other = library_image(70, 80, 0, 1);
  maskrcnn_results *r = NULL;
  maskrcnn_picture *plain = NULL, *drawn = NULL, *none;
  if (!m) return;
  EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK);
  EXPECT_INT(maskrcnn_draw(m, &image, NULL, &plain, &why), MASKRCNN_OK);
  EXPECT_INT(maskrcnn_draw(m, &image, r->images[0], &drawn, &why), MASKRCNN_OK);
  for (int y = 0; y < 70; y++)
    EXPECT(!memcmp(plain->rgb + (size_t)y * 240, (const uint8_t *)image.data + y * image.pitch, 240));
  EXPECT(memcmp(plain->rgb, drawn->rgb, 240 * 70));
  EXPECT_INT(maskrcnn_draw(m, &other, r->images[0], &none, &why), MASKRCNN_BAD_ARGUMENT);
  EXPECT(!none && strstr(why.message, "the result is of an image of 80 x 70 pixels, but this one has 70 x 80"));
  const char *path = in_tmp("drawn.png");
  EXPECT_INT(maskrcnn_write_png(drawn, path, &why), MASKRCNN_OK);
  if (EXPECT(image_load(&read, path, &err))) EXPECT(!memcmp(read.rgb, drawn->rgb, 240 * 70));
  EXPECT_INT(maskrcnn_write_png(drawn, "/nowhere/a.png", &why), MASKRCNN_BAD_FILE);
  EXPECT_INT(maskrcnn_write_png(NULL, path, &why), MASKRCNN_BAD_ARGUMENT);
  image_free(&read);
  maskrcnn_picture_free(plain);
  maskrcnn_picture_free(drawn);
  maskrcnn_results_free(r);
  maskrcnn_close(m);
  library_free(&image);
  library_free(&other);
}

// ---- hosts ----------------------------------------------------------------------------------------------------------

#define MUST(condition) (void)((condition) || (fprintf(stderr, "line %d: %s\n", __LINE__, #condition), exit(1), 0))

// A host that loads the library, uses it and unloads it, with floating-point traps set.
static void load_and_unload(void *traps) {
  maskrcnn_options o = library_options();
  maskrcnn_image image = library_image(97, 131, 0, 1);
  o.threads = 3;
  for (int round = 0; round < 5; round++) {
    void *library = dlopen(tool("libmaskrcnn.so"), RTLD_NOW | RTLD_LOCAL);
    MUST(library);
#define CALL(name) __typeof__(&maskrcnn_##name) name = (__typeof__(name))dlsym(library, "maskrcnn_" #name)
    CALL(open);
    CALL(run);
    CALL(draw);
    CALL(close);
    CALL(results_free);
    CALL(picture_free);
#undef CALL
    maskrcnn *m;
    maskrcnn_results *r;
    maskrcnn_picture *p;
    feclearexcept(FE_ALL_EXCEPT); // of earlier tests, which would trap at once
    if (traps) feenableexcept(FE_ALL_EXCEPT);
    MUST(!open(&m, &o, &why) && !run(m, &image, 1, &r, &why) && !draw(m, &image, r->images[0], &p, &why));
    MUST(!traps || fegetexcept() == FE_ALL_EXCEPT);
    results_free(r);
    picture_free(p);
    close(m);
    fedisableexcept(FE_ALL_EXCEPT);
    MUST(!dlclose(library));
  }
}

TEST(library_is_unloaded_and_meets_no_trap) {
  const char *said;
  if (!allocations_counted()) {
    test_skip("a sanitizer's library cannot be loaded");
    return;
  }
  library_weights(NORM_FROZEN_BN);
  for (int traps = 0; traps < 2; traps++)
    if (!EXPECT_INT(run_in_child(load_and_unload, traps ? &traps : NULL, &said), 0)) printf("    %s\n", said);
}

static maskrcnn_image shared_image;

static void *run_for_long(void *context) {
  for (int i = 0; i < 1000000; i++) {
    maskrcnn_results *r = NULL;
    maskrcnn_run(context, &shared_image, 1, &r, NULL);
    maskrcnn_results_free(r);
    pthread_testcancel();
  }
  return NULL;
}

// A thread that is cancelled within calls leaves no lock behind.
TEST(library_outlives_a_cancelled_thread) {
  enum { THREADS = 3 };
  test_limit(60);
  const maskrcnn_options o = library_options();
  maskrcnn *m = library_open(&o);
  const maskrcnn_image image = shared_image = library_image(64, 64, 0, 1);
  maskrcnn_results *r = NULL;
  if (!m) return;
  for (int round = 0; round < 5; round++) {
    pthread_t id[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(!pthread_create(&id[i], NULL, run_for_long, m));
    usleep(20000);
    for (int i = 0; i < THREADS; i++) {
      void *end;
      EXPECT(!pthread_cancel(id[i]) && !pthread_join(id[i], &end) && end == PTHREAD_CANCELED);
    }
    EXPECT_INT(maskrcnn_run(m, &image, 1, &r, &why), MASKRCNN_OK);
    maskrcnn_results_free(r);
  }
  maskrcnn_close(m);
  library_free(&shared_image);
}
