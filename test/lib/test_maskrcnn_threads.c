// Catches races and leaks when handles of the library are used from several threads.
//
// Handles and threads in every combination: the same results, nothing left behind. make test-tsan runs these tests,
// too.
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>
#include "include/maskrcnn.h"
#include "nn/device.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

enum { THREADS = 4, IMAGES = 6 };

static maskrcnn_image images[IMAGES];
static maskrcnn_results *want;

static void setup(const char *device) {
  maskrcnn_options o = library_options();
  o.device = device;
  for (int i = 0; i < IMAGES; i++) images[i] = library_image(50 + 13 * i, 90 - 9 * i, i % 2, (uint64_t)i);
  maskrcnn *m = library_open(&o);
  EXPECT_INT(maskrcnn_run(m, images, IMAGES, &want, &why), MASKRCNN_OK);
  maskrcnn_close(m);
}

static void teardown(void) {
  for (int i = 0; i < IMAGES; i++) library_free(&images[i]);
  maskrcnn_results_free(want);
  want = NULL;
}

// What a thread found, for the test's own to report: checks are counted by one thread alone.
typedef struct Caller {
  pthread_t thread;
  maskrcnn_options options;
  maskrcnn *m;
  int number, failed;
} Caller;

static bool same_as_wanted(const maskrcnn_results *r, int first) {
  bool same = true;
  for (int i = 0; i < r->n; i++) same = same && library_same(r->images[i], want->images[first + i]);
  return same;
}

static bool runs(maskrcnn *m) {
  maskrcnn_results *r;
  const bool ok = maskrcnn_run(m, images, IMAGES, &r, &why) == MASKRCNN_OK && same_as_wanted(r, 0);
  maskrcnn_results_free(r);
  return ok;
}

// Starts `body` in every thread and waits for all.
static void in_threads(void *(*body)(void *), Caller *callers) {
  for (int i = 0; i < THREADS; i++) {
    callers[i].number = i;
    EXPECT_INT(pthread_create(&callers[i].thread, NULL, body, &callers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(callers[i].thread, NULL);
    EXPECT_INT(callers[i].failed, 0);
  }
}

// ---- a handle each --------------------------------------------------------------------------------------------------

static void *open_run_close(void *context) {
  Caller *c = context;
  for (int round = 0; round < 3; round++) {
    maskrcnn *m;
    c->options.batch = 1 + (c->number + round) % 3;
    c->options.queue = 4;
    if (maskrcnn_open(&m, &c->options, NULL) || !runs(m) || !runs(m)) c->failed++;
    maskrcnn_close(m);
  }
  return NULL;
}

static void a_handle_each(const char *device) {
  Caller callers[THREADS] = {{0}};
  test_limit(300);
  for (int i = 0; i < THREADS; i++) {
    callers[i].options = library_options();
    callers[i].options.device = device;
  }
  in_threads(open_run_close, callers);
}

TEST(library_four_threads_with_a_handle_each) {
  setup("cpu");
  a_handle_each("cpu");
  teardown();
}

// ---- one handle -----------------------------------------------------------------------------------------------------

static void *run_often(void *context) {
  Caller *c = context;
  for (int round = 0; round < 5; round++) {
    const maskrcnn_image bad[2] = {images[0], {.size = sizeof bad[1], .format = MASKRCNN_RGB, .width = 5, .height = 5}};
    maskrcnn_results *r;
    if (!runs(c->m)) c->failed++;
    if (maskrcnn_run(c->m, bad, 2, &r, &why) || r->failed != 1 || !library_same(r->images[0], want->images[0]) ||
        r->images[1]->status != MASKRCNN_BAD_IMAGE || strcmp(r->images[1]->message, "data is NULL"))
      c->failed++;
    maskrcnn_results_free(r);
  }
  return NULL;
}

TEST(library_four_threads_with_one_handle) {
  Caller callers[THREADS] = {{0}};
  maskrcnn_options o = library_options();
  test_limit(300);
  setup("cpu");
  o.batch = 2;
  maskrcnn *m = library_open(&o);
  for (int i = 0; i < THREADS; i++) callers[i].m = m;
  in_threads(run_often, callers);
  maskrcnn_close(m);
  teardown();
}

// One thread submits, another takes results; two more run concurrently.
enum { SUBMISSIONS = 40 };

static void *submit_all(void *context) {
  Caller *c = context;
  maskrcnn_status status = MASKRCNN_OK;
  for (int i = 0; i < SUBMISSIONS && status >= MASKRCNN_OK;) {
    status = maskrcnn_submit(c->m, &images[i % IMAGES], 1, (uint64_t)i, &why);
    if (status == MASKRCNN_OK) i++;
    if (status == MASKRCNN_FULL) usleep(500);
  }
  c->failed += status != MASKRCNN_OK;
  return NULL;
}

static void *take_all(void *context) {
  Caller *c = context;
  for (int i = 0; i < SUBMISSIONS;) {
    maskrcnn_results *r;
    const maskrcnn_status status = maskrcnn_next(c->m, -1, &r, &why);
    if (status == MASKRCNN_EMPTY) {
      usleep(500);
      continue;
    }
    if (status || r->tag != (uint64_t)i || !same_as_wanted(r, i % IMAGES)) c->failed++;
    maskrcnn_results_free(r);
    if (status) break;
    i++;
  }
  return NULL;
}

static void *takes_part(void *context) {
  static void *(*const parts[THREADS])(void *) = {submit_all, take_all, run_often, run_often};
  Caller *c = context;
  return parts[c->number](c);
}

TEST(library_submits_and_takes_in_two_threads) {
  Caller callers[THREADS] = {{0}};
  maskrcnn_options o = library_options();
  test_limit(300);
  setup("cpu");
  o.batch = 3;
  maskrcnn *m = library_open(&o);
  for (int i = 0; i < THREADS; i++) callers[i].m = m;
  in_threads(takes_part, callers);
  maskrcnn_close(m);
  teardown();
}

// ---- a handle that moves --------------------------------------------------------------------------------------------

static void *one_run(void *context) {
  Caller *c = context;
  if (!runs(c->m)) c->failed++;
  return NULL;
}

static void *one_open(void *context) {
  Caller *c = context;
  if (maskrcnn_open(&c->m, &c->options, NULL)) c->failed++;
  return NULL;
}

static void moves_between_threads(const char *device) {
  Caller c = {.options = library_options()};
  void *(*const steps[])(void *) = {one_open, one_run, one_run};
  c.options.device = device;
  for (int i = 0; i < 3; i++) {
    EXPECT_INT(pthread_create(&c.thread, NULL, steps[i], &c), 0);
    pthread_join(c.thread, NULL);
  }
  EXPECT_INT(c.failed, 0);
  maskrcnn_close(c.m);
}

TEST(library_handle_moves_between_threads) {
  setup("cpu");
  moves_between_threads("cpu");
  teardown();
}

TEST(cuda_library_handle_moves_between_threads) {
  if (!library_gpu()) return;
  setup("cuda:0");
  moves_between_threads("cuda:0");
  teardown();
}

TEST(cuda_library_four_threads_with_a_handle_each) {
  if (!library_gpu()) return;
  setup("cuda:0");
  a_handle_each("cuda:0");
  teardown();
}

// ---- nothing is left behind -----------------------------------------------------------------------------------------

static long resident_kib(void) {
  long pages = 0, resident = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f) {
    if (fscanf(f, "%ld %ld", &pages, &resident) != 2) resident = 0;
    fclose(f);
  }
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void open_and_close(int times) {
  const maskrcnn_options o = library_options();
  for (int i = 0; i < times; i++) {
    maskrcnn *m = NULL;
    if (maskrcnn_open(&m, &o, NULL) || (i % 10 == 0 && !runs(m))) {
      EXPECT(!"opens and runs");
      break;
    }
    maskrcnn_close(m);
  }
}

// Of malloc's memory nothing remains; of the rest, less than so many bytes each time: a tenth of a node of the smallest
// graph.
static void leaves_nothing(int times, long bytes) {
  setup("cpu");
  open_and_close(50); // malloc's arenas have their size
  const long before = resident_kib();
  const size_t used = mallinfo2().uordblks;
  open_and_close(times);
  const long grown = resident_kib() - before, more = (long)(mallinfo2().uordblks - used);
  if (!EXPECT(grown < times * bytes / 1024) || !EXPECT(more < 10 * times))
    printf("    %ld KiB more after %d times, of malloc's %ld bytes\n", grown, times, more);
  teardown();
}

TEST_TIER(library_opens_hundreds_of_times, 1) { leaves_nothing(300, 1024); }
TEST_TIER(library_opens_ten_thousand_times, 2) { leaves_nothing(10000, 100); }
