// Measures how long it takes to open a file of weights that is in the page cache, with and without comparing its
// tensors with their digests, in turns; then with reading all values, as a program does that loads them.
//
//   build/bench_weights --read FILE    one record: medians of nine, in milliseconds
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/output.h"
#include "base/parallel.h"
#include "weights/checkpoint.h"

enum { TURNS = 9 };

typedef bool OpenWeights(Checkpoint *c, const char *path, Err *err);

static void read_values(const Checkpoint *c, float *values) {
  for (size_t i = 0; i < c->num_tensors; i++) ckpt_read_floats(&c->tensors[i], values);
}

static double cpu_seconds(void) {
  struct timespec t;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Milliseconds of one opening and, with `values`, of reading them all, as `now` counts them.
static double time_once(double (*now)(void), OpenWeights *open, const char *path, float *values) {
  Err err;
  Checkpoint c;
  const double start = now();
  if (!open(&c, path, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (values) read_values(&c, values);
  const double taken = now() - start;
  ckpt_close(&c);
  return 1e3 * taken;
}

static int compare_times(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *of) {
  qsort(of, TURNS, sizeof *of, compare_times);
  return round(1e3 * of[TURNS / 2]) / 1e3;
}

static void measure(const char *path) {
  Err err;
  Checkpoint c;
  size_t most = 1;
  if (!ckpt_open(&c, path, &err)) die(EXIT_USAGE, "%s", err.msg);
  for (size_t i = 0; i < c.num_tensors; i++) most = MAX(most, c.tensors[i].elements);
  float *values = xmalloc(most * sizeof *values);
  read_values(&c, values); // touches the memory
  double before[TURNS], with[TURNS], before_read[TURNS], with_read[TURNS], cpu[TURNS];
  for (int i = 0; i < TURNS; i++) {
    before[i] = time_once(now_seconds, ckpt_open_header, path, NULL);
    with[i] = time_once(now_seconds, ckpt_open, path, NULL);
    before_read[i] = time_once(now_seconds, ckpt_open_header, path, values);
    with_read[i] = time_once(now_seconds, ckpt_open, path, values);
    cpu[i] = time_once(cpu_seconds, ckpt_open, path, NULL);
  }
  Record r = {0};
  record_begin(&r);
  record_str(&r, "bench", "weights");
  record_num(&r, "mb", round((double)c.size / 1e5) / 10);
  record_int(&r, "tensors", (int64_t)c.num_tensors);
  record_bool(&r, "digests", c.has_digests);
  record_int(&r, "threads", parallel_cores());
  record_num(&r, "open_without_ms", median(before));
  record_num(&r, "open_ms", median(with));
  record_num(&r, "cpu_ms", median(cpu)); // of all threads; other load on the machine does not change it
  record_num(&r, "read_without_ms", median(before_read));
  record_num(&r, "read_ms", median(with_read));
  record_origin(&r, NULL);
  puts(record_end(&r));
  record_free(&r);
  ckpt_close(&c);
  free(values);
}

// clang-format off
#define BENCH_WEIGHTS_OPTIONS(X)                                                                                       \
  X(STRING, read, NULL, "FILE", "open this file of weights, and print how long that took")
// clang-format on

typedef struct BenchWeightsOptions {
  OPTION_FIELDS(BENCH_WEIGHTS_OPTIONS)
} BenchWeightsOptions;

int main(int argc, char **argv) {
  BenchWeightsOptions o = {OPTION_DEFAULTS(BENCH_WEIGHTS_OPTIONS)};
  OPTION_TABLE(table, BenchWeightsOptions, BENCH_WEIGHTS_OPTIONS);
  Cli cli = {.usage = "--read FILE",
             .about = "Times the opening of a file of weights.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.read) die(EXIT_USAGE, "--read FILE is missing; --help shows the usage");
  commit_warn();
  measure(o.read);
  stdout_close();
  return 0;
}
