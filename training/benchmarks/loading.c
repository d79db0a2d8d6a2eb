#include "training/benchmarks/loading.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/parallel.h"
#include "training/data.h"
#include "training/loading.h"

static bool take_batches(Loader *l, int batches, int64_t *images, int64_t *bytes, Err *err) {
  *images = *bytes = 0;
  for (int i = 0; i < batches; i++) {
    const Batch *b = loader_next(l, err);
    if (!b) return false;
    *images += b->used;
    *bytes += b->num_bytes;
  }
  return true;
}

// Percentages are of the threads' total wall time; the rest is waiting, for a core or for a free slot.
static void print_record(const LoaderOptions *o, int batches, int bad, int64_t images, int64_t bytes, double wall,
                         const double seconds[LOADER_STAGES]) {
  const int cores = parallel_cores();
  double left = 100;
  Record j = {0};
  record_begin(&j);
  record_str(&j, "bench", "loader");
  record_int(&j, "cores", cores);
  record_int(&j, "threads", o->threads);
  record_int(&j, "batch", o->batch);
  record_int(&j, "batches", batches);
  record_int(&j, "bad_images", bad);
  record_num(&j, "img_s", (double)images / wall);
  record_num(&j, "img_s_core", (double)images / wall / MIN(o->threads, cores));
  record_num(&j, "megapixels_s", (double)bytes / 3e6 / wall);
  for (int i = 0; i < LOADER_STAGES; i++) {
    char key[32];
    snprintf(key, sizeof key, "%s_percent", loader_stage_names[i]);
    double percent = 100 * seconds[i] / (wall * o->threads);
    record_num(&j, key, percent);
    left -= percent;
  }
  record_num(&j, "wait_percent", left);
  record_origin(&j, NULL);
  puts(record_end(&j));
  fflush(stdout);
  record_free(&j);
}

static bool run_threads(const Dataset *d, const LoaderOptions *o, int batches, Err *err) {
  Loader *l = loader_open(d, o, err);
  if (!l) return false;
  int64_t images, bytes;
  double before[LOADER_STAGES], after[LOADER_STAGES];
  bool ok = take_batches(l, batches / 2, &images, &bytes, err);
  loader_seconds(l, before);
  double start = now_seconds();
  ok = ok && take_batches(l, batches, &images, &bytes, err);
  double wall = now_seconds() - start;
  loader_seconds(l, after);
  for (int i = 0; i < LOADER_STAGES; i++) after[i] -= before[i];
  if (ok) print_record(o, batches, loader_bad_images(l), images, bytes, wall, after);
  loader_close(l);
  return ok;
}

// Measures 1, 2, 4 … threads up to options->threads (0 = one per core). False when an image stops the loader.
static bool loader_benchmark(const Dataset *d, const LoaderOptions *options, int batches, Err *err) {
  const int most = loader_threads(options);
  LoaderOptions o = *options;
  commit_warn();
  for (int threads = 1;; threads *= 2) {
    o.threads = MIN(threads, most);
    if (!run_threads(d, &o, batches, err)) return false;
    if (threads >= most) return true;
  }
}

void benchmark_loading(const TrainSpec *o) {
  Err err;
  Dataset train, val;
  TrainSpec alone = *o; // this process, whatever --gpus says
  alone.gpus = 1;
  const bool has_val = train_open_data(o, &o->config, &train, &val);
  const TrainingRun r = {.o = alone, .model = model_of(&o->config), .train = &train};
  dataset_print(r.train, stderr);
  const LoaderOptions options = run_loader_options(&r);
  if (!loader_benchmark(r.train, &options, o->benchmark_loader, &err)) die(EXIT_USAGE, "%s", err.msg);
  dataset_close(&train);
  if (has_val) dataset_close(&val);
}
