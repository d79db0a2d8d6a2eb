// Measures the library as services use it: threads that call maskrcnn_run with an image each, on handles of their own
// or one for all, for some seconds. One record: images/s, CPU seconds for an image, and how memory grows.
//
//   taskset -c 0-3 build/bench_callers --weights FILE --callers 4 --threads 1 --device cpu     # against --callers 1
//   build/bench_callers --weights FILE --callers 24 --shared --seconds 300 --device cuda:0     # grows?
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/output.h"
#include "base/rng.h"
#include "include/maskrcnn.h"
#include "nn/device.h"

#define CALLERS_OPTIONS(X)                                                                                             \
  X(STRING, weights, NULL, "FILE", "weights")                                                                          \
  X(STRING, device, "auto", "NAME", "cpu, cuda:0")                                                                     \
  X(INT, callers, 4, 1, 1024, "N", "threads that call")                                                                \
  X(INT, threads, 1, 0, 1024, "N", "threads that each handle computes with on the CPU; 0: one per core")               \
  X(INT, batch, 1, 1, 64, "N", "images that a handle computes at a time")                                              \
  X(FLAG, shared, false, "one handle for all, instead of one each")                                                    \
  X(INT, reopen, 0, 0, 1000, "N", "close and open the handle after so many images; 0: never")                          \
  X(INT, seconds, 10, 1, 86400, "N", "how long; the first fifth is not counted")                                       \
  X(INT, side, 0, 0, 8192, "N", "shorter side that images are resized to; 0: as trained")

typedef struct CallersOptions {
  OPTION_FIELDS(CALLERS_OPTIONS)
} CallersOptions;

enum { PICTURES = 5 };

typedef struct Bench {
  CallersOptions o;
  maskrcnn_image image[PICTURES];
  maskrcnn *shared;
  atomic_bool stop;
  _Atomic int64_t images;
} Bench;

static maskrcnn *open_one(const Bench *b) {
  maskrcnn *m;
  maskrcnn_error error;
  maskrcnn_options options;
  maskrcnn_options_init(&options, sizeof options);
  options.weights = b->o.weights;
  options.device = b->o.device;
  options.threads = b->o.threads;
  options.batch = b->o.batch;
  options.image_size = b->o.side;
  if (maskrcnn_open(&m, &options, &error)) die(EXIT_USAGE, "%s", error.message);
  return m;
}

static void *call(void *context) {
  Bench *b = context;
  maskrcnn_error error;
  maskrcnn *m = b->shared ? b->shared : open_one(b);
  for (int64_t i = 0; !atomic_load(&b->stop); i++) {
    maskrcnn_results *r;
    if (maskrcnn_run(m, &b->image[i % PICTURES], 1, &r, &error) || r->failed) die(EXIT_RUN, "%s", error.message);
    maskrcnn_results_free(r);
    atomic_fetch_add(&b->images, 1);
    if (b->shared || !b->o.reopen || (i + 1) % b->o.reopen) continue;
    maskrcnn_close(m);
    m = open_one(b);
  }
  if (!b->shared) maskrcnn_close(m);
  return NULL;
}

// Noise with rectangles, of sizes between 400 and 1000 pixels.
static void make_images(Bench *b) {
  for (int i = 0; i < PICTURES; i++) {
    const int w = 1000 - 120 * i, h = 520 + 60 * i;
    uint64_t key = rng_key((uint64_t)i, RNG_TEST);
    uint8_t *rgb = xmalloc(3 * (size_t)w * (size_t)h);
    for (int k = 0; k < 3 * w * h; k++) {
      key = rng_key(key, RNG_TEST);
      rgb[k] = (uint8_t)((k / 3 % w / 50 + k / 3 / w / 40) % 2 ? 200 + key % 56 : key % 56);
    }
    b->image[i] =
        (maskrcnn_image){.size = sizeof b->image[i], .data = rgb, .format = MASKRCNN_RGB, .width = w, .height = h};
  }
}

static double cpu_seconds(void) {
  struct timespec t;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The most so far: what a handle takes while it is open does not count as growth.
static double resident_mb(void) {
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return (double)usage.ru_maxrss * 1024 / 1e6;
}

typedef struct Sample {
  double at, cpu, resident, gpu_free;
  int64_t images;
} Sample;

static Sample sample(const Bench *b, Device *dev) {
  return (Sample){.at = now_seconds(),
                  .cpu = cpu_seconds(),
                  .resident = resident_mb(),
                  .gpu_free = dev->gpu ? (double)device_available(dev) / 1e6 : 0,
                  .images = atomic_load(&b->images)};
}

static void print_record(const Bench *b, Device *dev, const Sample *from, const Sample *to) {
  Record r = {0};
  const double images = (double)(to->images - from->images), seconds = to->at - from->at;
  record_begin(&r);
  record_str(&r, "bench", "callers");
  record_int(&r, "callers", b->o.callers);
  record_int(&r, "threads", b->o.threads);
  record_int(&r, "batch", b->o.batch);
  record_bool(&r, "shared", b->o.shared);
  record_int(&r, "reopen", b->o.reopen);
  record_num(&r, "seconds", seconds);
  record_num(&r, "images_per_second", images / seconds);
  record_num(&r, "cpu_seconds_per_image", (to->cpu - from->cpu) / images);
  record_num(&r, "peak_resident_mb", to->resident);
  record_num(&r, "peak_growth_mb", to->resident - from->resident);
  record_num(&r, "gpu_growth_mb", from->gpu_free - to->gpu_free);
  device_origin(dev, &r);
  printf("%s\n", record_end(&r));
  record_free(&r);
}

int main(int argc, char **argv) {
  Err err;
  Bench b = {.o = {OPTION_DEFAULTS(CALLERS_OPTIONS)}};
  OPTION_TABLE(table, CallersOptions, CALLERS_OPTIONS);
  Cli cli = {.usage = "--weights FILE [options]",
             .about = "Measures the library when several threads call it.",
             .options = table,
             .num_options = COUNT(table),
             .values = &b.o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!b.o.weights) die(EXIT_USAGE, "--weights FILE is missing");
  Device *dev = device_open(b.o.device, &err);
  if (!dev) die(EXIT_USAGE, "%s", err.msg);
  commit_warn();
  make_images(&b);
  if (b.o.shared) b.shared = open_one(&b);
  pthread_t *id = xcalloc((size_t)b.o.callers, sizeof *id);
  for (int i = 0; i < b.o.callers; i++) CHECK(!pthread_create(&id[i], NULL, call, &b));
  usleep((unsigned)(200000 * (int64_t)b.o.seconds));
  const Sample from = sample(&b, dev);
  usleep((unsigned)(800000 * (int64_t)b.o.seconds));
  const Sample to = sample(&b, dev);
  atomic_store(&b.stop, true);
  for (int i = 0; i < b.o.callers; i++) pthread_join(id[i], NULL);
  print_record(&b, dev, &from, &to);
  maskrcnn_close(b.shared);
  for (int i = 0; i < PICTURES; i++) free((void *)b.image[i].data);
  free(id);
  device_close(dev);
  stdout_close();
  return 0;
}
