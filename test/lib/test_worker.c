// Catches a library handle that hangs or loses batches when memory, threads or the GPU fail.
#define _GNU_SOURCE // pthread_setattr_default_np
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include "include/maskrcnn.h"
#include "nn/device.h"
#include "test/harness/allocations.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

// ---- room -----------------------------------------------------------------------------------------------------------

enum { SMALL = 70, LARGE = 500, SIZES = 4 }; // sides; a canvas has 96 at most

// Images many times as large as a canvas among others, alone and beside them, before and after a program is recorded:
// each as in a handle that has seen no other.
static void grows_with_its_images(const char *device, int batch) {
  static const int side[SIZES] = {SMALL, LARGE, SMALL, LARGE / 2};
  maskrcnn_options o = library_options();
  maskrcnn_image images[SIZES];
  maskrcnn_results *want[SIZES], *got;
  o.device = device;
  o.max_pixels = LARGE * LARGE;
  for (int i = 0; i < SIZES; i++) {
    images[i] = library_image(side[i], side[i] - 1, 0, (uint64_t)i);
    maskrcnn *m = library_open(&o);
    EXPECT_INT(maskrcnn_run(m, &images[i], 1, &want[i], &why), MASKRCNN_OK);
    maskrcnn_close(m);
  }
  o.batch = batch;
  maskrcnn *m = library_open(&o);
  for (int round = 0; m && round < 4; round++) {
    const int n = round < 2 ? 1 : SIZES; // the small one alone, at first
    if (!EXPECT_INT(maskrcnn_run(m, images, n, &got, &why), MASKRCNN_OK)) printf("    %s\n", why.message);
    for (int i = 0; got && i < n; i++) EXPECT(library_same(got->images[i], want[i]->images[0]));
    maskrcnn_results_free(got);
  }
  maskrcnn_close(m);
  for (int i = 0; i < SIZES; i++) {
    maskrcnn_results_free(want[i]);
    library_free(&images[i]);
  }
}

TEST(library_grows_with_its_images) {
  for (int batch = 1; batch <= 3; batch++) grows_with_its_images("cpu", batch);
}
TEST(cuda_library_grows_with_its_images) {
  Err err;
  Device *gpu = device_open("cuda:0", &err);
  device_close(gpu);
  if (!gpu) {
    test_skip(err.msg);
    return;
  }
  for (int batch = 1; batch <= 3; batch++) grows_with_its_images("cuda:0", batch);
}

// What a handle takes when it opens does not grow with the largest image that it may be given.
TEST(library_takes_memory_for_usual_images) {
  maskrcnn_options o = library_options();
  size_t bytes[2];
  for (int i = 0; i < 2; i++) {
    o.max_pixels = i ? 1 << 28 : 1 << 14;
    maskrcnn *m = library_open(&o);
    if (!m) return;
    bytes[i] = maskrcnn_describe(m)->host_bytes;
    maskrcnn_close(m);
  }
  EXPECT_INT((long long)bytes[1], (long long)bytes[0]);
}

static rlim_t address_space(void) {
  long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  CHECK(f && fscanf(f, "%ld", &pages) == 1);
  fclose(f);
  return (rlim_t)pages * 4096;
}

#define MUST(condition) (void)((condition) || (fprintf(stderr, "line %d: %s\n", __LINE__, #condition), exit(1), 0))

// With memory for everything but its pixels' room, an image is refused, alone; later there is memory.
static void refused_room(void *nothing) {
  (void)nothing;
  enum { SIDE = 8192 }; // 201 MB
  maskrcnn_options o = library_options();
  o.max_pixels = SIDE * SIDE;
  maskrcnn *m = library_open(&o);
  maskrcnn_image large = library_image(1, 1, 0, 1), small = library_image(SMALL, SMALL, 0, 2);
  maskrcnn_results *before, *after;
  struct rlimit limit;
  large.width = large.height = SIDE;
  large.data = calloc(SIDE * SIDE, 3); // black
  MUST(large.data && maskrcnn_run(m, &small, 1, &before, &why) == MASKRCNN_OK);
  MUST(!getrlimit(RLIMIT_AS, &limit));
  const rlim_t most = limit.rlim_cur;
  limit.rlim_cur = address_space() + (100 << 20);
  MUST(!setrlimit(RLIMIT_AS, &limit));
  for (int round = 0; round < 3; round++) {
    const maskrcnn_image both[] = {large, small};
    MUST(maskrcnn_run(m, both, 2, &after, &why) == MASKRCNN_OK && after->failed == 1);
    MUST(after->images[0]->status == MASKRCNN_NO_MEMORY);
    MUST(strstr(after->images[0]->message, "out of memory: cannot allocate 201.3 MB"));
    MUST(library_same(before->images[0], after->images[1]));
  }
  limit.rlim_cur = most;
  MUST(!setrlimit(RLIMIT_AS, &limit));
  MUST(maskrcnn_run(m, &large, 1, &after, &why) == MASKRCNN_OK);
  maskrcnn_close(m);
}

TEST(library_refuses_an_image_without_room) {
  const char *said;
  if (!allocations_counted()) {
    test_skip("a sanitizer has an allocator of its own");
    return;
  }
  library_weights(NORM_FROZEN_BN); // for the child, too
  if (!EXPECT_INT(run_in_child(refused_room, NULL, &said), 0)) printf("    %s\n", said);
}

// ---- threads --------------------------------------------------------------------------------------------------------

static void *never(void *context) { return context; }

// The system starts a handle's thread and none of OpenMP's, which would end the program.
static void opened_without_threads(void *nothing) {
  (void)nothing;
  pthread_attr_t attr;
  pthread_t id;
  maskrcnn_options o = library_options();
  maskrcnn_image image = library_image(SMALL, SMALL, 0, 1);
  maskrcnn_results *want, *got;
  maskrcnn *m = library_open(&o);
  MUST(m && maskrcnn_run(m, &image, 1, &want, &why) == MASKRCNN_OK);
  maskrcnn_close(m);
  MUST(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, (size_t)1 << 50)); // there is no such room
  MUST(!pthread_setattr_default_np(&attr) && pthread_create(&id, NULL, never, NULL));
  o.threads = 4;
  m = library_open(&o);
  MUST(m && maskrcnn_run(m, &image, 1, &got, &why) == MASKRCNN_OK);
  MUST(library_same(want->images[0], got->images[0]));
  maskrcnn_close(m);
}

TEST(library_goes_on_where_threads_are_refused) {
  const char *said;
  library_weights(NORM_FROZEN_BN); // for the child, too
  if (!EXPECT_INT(run_in_child(opened_without_threads, NULL, &said), 0)) printf("    %s\n", said);
}

// ---- a GPU that fails -----------------------------------------------------------------------------------------------

// The library that knows the stand-in, beside the one that is linked.
typedef struct Faulty {
  __typeof__(maskrcnn_open) *open;
  __typeof__(maskrcnn_submit) *submit;
  __typeof__(maskrcnn_next) *next;
  __typeof__(maskrcnn_run) *run;
  __typeof__(maskrcnn_results_free) *free_results;
  __typeof__(maskrcnn_close) *close;
} Faulty;

static void *function(void *library, const char *name) {
  void *f = dlsym(library, name);
  MUST(f);
  return f;
}

static Faulty faulty_library(void) {
  void *library = dlopen(tool("faulty/libmaskrcnn.so"), RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  MUST(library);
  return (Faulty){.open = function(library, "maskrcnn_open"),
                  .submit = function(library, "maskrcnn_submit"),
                  .next = function(library, "maskrcnn_next"),
                  .run = function(library, "maskrcnn_run"),
                  .free_results = function(library, "maskrcnn_results_free"),
                  .close = function(library, "maskrcnn_close")};
}

// A batch is found to have failed while others lie before and behind it: what was done can no longer be had, either,
// and all that waits is told.
static void fails_under_way(void *fault) {
  enum { N = 8 };
  setenv("FAULT", fault, 1);
  const Faulty l = faulty_library();
  maskrcnn_options o = library_options();
  maskrcnn_image images[N];
  maskrcnn_results *r;
  maskrcnn *m;
  o.device = "cuda:0";
  o.queue = N;
  MUST(l.open(&m, &o, &why) == MASKRCNN_OK);
  for (int i = 0; i < N; i++) images[i] = library_image(60 + i, 60, 0, (uint64_t)i);
  MUST(l.submit(m, images, N, 7, &why) == MASKRCNN_OK);
  MUST(l.next(m, -1, &r, &why) == MASKRCNN_DEAD && !r);
  MUST(strstr(why.message, "a kernel failed") && strstr(why.message, "the handle can only be closed"));
  MUST(l.submit(m, images, 1, 8, &why) == MASKRCNN_DEAD);
  MUST(l.next(m, 0, &r, &why) == MASKRCNN_DEAD);
  MUST(l.run(m, images, 1, &r, &why) == MASKRCNN_DEAD && !r);
  l.close(m);
  for (int i = 0; i < N; i++) library_free(&images[i]);
}

TEST(library_fails_with_batches_under_way) {
  static char *const faults[] = {"mark_reached:2:cudaErrorLaunchFailure", "mark_wait:3:cudaErrorLaunchFailure",
                                 "stage:9:cudaErrorLaunchFailure", "kernel:200:cudaErrorLaunchFailure"};
  const char *said;
  library_weights(NORM_FROZEN_BN);
  for (int i = 0; i < COUNT(faults); i++)
    if (!EXPECT_INT(run_in_child(fails_under_way, faults[i], &said), 0)) printf("    %s: %s\n", faults[i], said);
}

// A batch that forms is given room on the device and on the host; whichever is refused, the next attempt finds it.
static void refused_once(void *fault) {
  setenv("FAULT", fault, 1);
  const Faulty l = faulty_library();
  maskrcnn_options o = library_options();
  maskrcnn_image small = library_image(SMALL, SMALL, 0, 1), large = library_image(LARGE, LARGE, 0, 2);
  maskrcnn_results *before, *after;
  maskrcnn *m;
  o.device = "cuda:0";
  o.max_pixels = LARGE * LARGE;
  if (l.open(&m, &o, &why)) exit(2);               // it was an allocation of the opening's
  if (l.run(m, &small, 1, &before, &why)) exit(3); // of the first batch's
  MUST(l.run(m, &large, 1, &after, &why) == MASKRCNN_OK);
  const maskrcnn_result *first = after->images[0];
  MUST(!after->failed || (first->status == MASKRCNN_NO_MEMORY && strstr(first->message, "out of memory")));
  MUST(l.run(m, &large, 1, &after, &why) == MASKRCNN_OK && !after->failed);
  MUST(l.run(m, &small, 1, &after, &why) == MASKRCNN_OK && library_same(before->images[0], after->images[0]));
  l.close(m);
}

TEST(library_refused_room_is_asked_for_again) {
  static const char *const calls[] = {"alloc", "host_alloc"};
  library_weights(NORM_FROZEN_BN);
  for (int i = 0; i < COUNT(calls); i++) {
    int ends[4] = {0};
    for (int n = 1; n < 100 && ends[0] < 4; n++) {
      const char *said;
      char fault[32];
      snprintf(fault, sizeof fault, "%s:%d:", calls[i], n);
      const int status = run_in_child(refused_once, fault, &said);
      if (!EXPECT(status == 0 || status == 2 || status == 3)) printf("    %s %s\n", fault, said);
      if (status >= 0 && status < 4) ends[status]++;
    }
    EXPECT(ends[0] == 4 && ends[2] > 0); // every allocation of the opening, then those of the large image, then none
  }
}
