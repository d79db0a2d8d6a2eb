// Measures the time and memory that it takes to read a large file of annotations, as build/large_coco writes them.
//
//   build/bench_index --read FILE [--index DIR]    one record: seconds, peak memory, what was read and how
#include <math.h>
#include <sys/resource.h>
#include "base/cli.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/output.h"
#include "data/coco/coco_index.h"

static double seconds_of(struct timeval t) { return (double)t.tv_sec + 1e-6 * (double)t.tv_usec; }

static double rounded(double value) { return round(1e3 * value) / 1e3; }

// "cpu" is CPU time, which other load on the machine does not change.
static void measure(const char *path, const char *index) {
  Err err;
  Coco c;
  struct rusage use;
  double start = now_seconds();
  if (!coco_open(&c, path, index, &err)) die(EXIT_USAGE, "%s", err.msg);
  double seconds = now_seconds() - start;
  CHECK(getrusage(RUSAGE_SELF, &use) == 0);
  Record r = {0};
  record_begin(&r);
  record_str(&r, "bench", "index");
  record_num(&r, "seconds", rounded(seconds));
  record_num(&r, "cpu_seconds", rounded(seconds_of(use.ru_utime) + seconds_of(use.ru_stime)));
  record_num(&r, "peak_mb", round(use.ru_maxrss / 1024.0));
  record_int(&r, "images", c.num_images);
  record_int(&r, "annotations", c.num_anns);
  record_int(&r, "numbers", (int64_t)(c.num_xy + c.num_runs));
  record_str(&r, "origin", c.origin);
  record_origin(&r, NULL);
  puts(record_end(&r));
  record_free(&r);
  coco_free(&c);
}

// clang-format off
#define BENCH_INDEX_OPTIONS(X)                                                                                         \
  X(STRING, read, NULL, "FILE", "annotation file to read")                                                             \
  X(STRING, index, NULL, "DIR", "folder for its index", .usual = "no index")
// clang-format on

typedef struct BenchIndexOptions {
  OPTION_FIELDS(BENCH_INDEX_OPTIONS)
} BenchIndexOptions;

int main(int argc, char **argv) {
  BenchIndexOptions o = {OPTION_DEFAULTS(BENCH_INDEX_OPTIONS)};
  OPTION_TABLE(table, BenchIndexOptions, BENCH_INDEX_OPTIONS);
  Cli cli = {.usage = "--read FILE [--index DIR]",
             .about = "Measures how long it takes to read an annotation file.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.read) die(EXIT_USAGE, "--read FILE is missing; --help shows the usage");
  commit_warn();
  measure(o.read, o.index);
  stdout_close();
  return 0;
}
