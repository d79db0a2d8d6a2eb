// Measures the time and memory that it takes to read a data set of COCO's size.
//
//   build/bench_index --write FILE     an annotation file like instances_train2017.json: 118,287 images, 860,001
//                                      annotations, 450 MB; the same bytes every time
//   build/bench_index --read FILE [--index DIR]    one record: seconds, peak memory, what was read and how
#include <inttypes.h>
#include <math.h>
#include <sys/resource.h>
#include "base/cli.h"
#include "base/clock.h"
#include "base/machine.h"
#include "base/output.h"
#include "base/rng.h"
#include "data/coco/coco_index.h"

// As in COCO: one annotation in a hundred is a crowd, some have two parts; the number of points gives COCO's file size.
enum {
  IMAGES = 118287,
  ANNOTATIONS = 860001,
  CATEGORIES = 80,
  CROWD_ONE_IN = 100,
  TWO_PARTS_ONE_IN = 8,
  SHORTEST = 12,
  LONGEST = 34
};

static uint32_t draw(uint64_t key, uint64_t *at, uint32_t below) { return rng_u32(key, (*at)++) % below; }

// Writes hundredths of a pixel without trailing zeros, as Python does: 12.5, 12.0, 12.25.
static void print_hundredths(FILE *f, uint32_t v) {
  fprintf(f, v % 10 ? "%u.%02u" : "%u.%u", v / 100, v % 10 ? v % 100 : v / 10 % 10);
}

static void print_polygon(FILE *f, uint64_t key, uint64_t *at, uint32_t w, uint32_t h) {
  uint32_t points = SHORTEST + draw(key, at, LONGEST - SHORTEST + 1);
  for (uint32_t i = 0; i < points; i++) {
    fputc(i ? ',' : '[', f);
    print_hundredths(f, draw(key, at, 100 * w));
    fputc(',', f);
    print_hundredths(f, draw(key, at, 100 * h));
  }
  fputc(']', f);
}

static void print_counts(FILE *f, uint64_t key, uint64_t *at, uint32_t w, uint32_t h) {
  uint32_t left = w * h;
  fprintf(f, "{\"counts\": [");
  for (uint32_t run; left > 0; left -= run) {
    run = 1 + draw(key, at, 2 * h);
    run = MIN(run, left);
    fprintf(f, "%s%u", left < w * h ? "," : "", run);
  }
  fprintf(f, "],\"size\": [%u,%u]}", h, w);
}

static void print_annotation(FILE *f, int i, uint64_t seed) {
  uint64_t key = rng_key(seed, (uint64_t)i), at = 0;
  uint32_t w = 640, h = 480, image = 1 + draw(key, &at, IMAGES);
  bool crowd = draw(key, &at, CROWD_ONE_IN) == 0;
  fputs(i ? ",{\"segmentation\": " : "{\"segmentation\": ", f);
  if (crowd) {
    print_counts(f, key, &at, w, h);
  } else {
    bool two = draw(key, &at, TWO_PARTS_ONE_IN) == 0;
    fputc('[', f);
    print_polygon(f, key, &at, w, h);
    if (two) {
      fputc(',', f);
      print_polygon(f, key, &at, w, h);
    }
    fputc(']', f);
  }
  uint32_t area = draw(key, &at, 100000), fraction = draw(key, &at, 1000000000);
  fprintf(f, ",\"area\": %u.%09u,\"iscrowd\": %d,\"image_id\": %u,\"bbox\": [", area, fraction, crowd, 4 * image);
  for (int k = 0; k < 4; k++) {
    if (k) fputc(',', f);
    print_hundredths(f, 1 + draw(key, &at, 50 * (k % 2 ? h : w)));
  }
  fprintf(f, "],\"category_id\": %u,\"id\": %d}", 1 + draw(key, &at, CATEGORIES), 1768 + i);
}

static bool write_file(const char *path, Err *err) {
  const uint64_t seed = rng_key(RNG_TEST, 2017);
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  FILE *f = out.f;
  fputs("{\"info\": {\"description\": \"made by lab/bench_index\"}, \"images\": [", f);
  for (int i = 0; i < IMAGES; i++)
    fprintf(f,
            "%s{\"license\": %d, \"file_name\": \"%012d.jpg\", \"coco_url\": \"http://localhost/train2017/%012d.jpg\", "
            "\"height\": 480, \"width\": 640, \"date_captured\": \"2013-11-14 11:18:45\", \"flickr_url\": "
            "\"http://localhost/%" PRIx64 "_z.jpg\", \"id\": %d}",
            i ? ", " : "", 1 + i % 8, 4 * (i + 1), 4 * (i + 1), rng_key(seed, (uint64_t)i), 4 * (i + 1));
  fputs("], \"annotations\": [", f);
  for (int i = 0; i < ANNOTATIONS; i++) print_annotation(f, i, seed);
  fputs("], \"categories\": [", f);
  for (int i = 0; i < CATEGORIES; i++)
    fprintf(f, "%s{\"supercategory\": \"thing\", \"id\": %d, \"name\": \"category %d\"}", i ? ", " : "", i + 1, i + 1);
  fputs("]}", f);
  return file_commit(&out, err);
}

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
  X(STRING, write, NULL, "FILE", "write a file of annotations")                                                        \
  X(STRING, read, NULL, "FILE", "read it, and print how long that took")                                               \
  X(STRING, index, NULL, "DIR", "folder for its index", .usual = "no index")
// clang-format on

typedef struct BenchIndexOptions {
  OPTION_FIELDS(BENCH_INDEX_OPTIONS)
} BenchIndexOptions;

int main(int argc, char **argv) {
  BenchIndexOptions o = {OPTION_DEFAULTS(BENCH_INDEX_OPTIONS)};
  OPTION_TABLE(table, BenchIndexOptions, BENCH_INDEX_OPTIONS);
  Cli cli = {.usage = "--write FILE | --read FILE [--index DIR]",
             .about = "Times the reading of an annotation file of the size of COCO's.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.write == !o.read) die(EXIT_USAGE, "give --write FILE or --read FILE; --help shows the usage");
  Err err;
  if (o.write && !write_file(o.write, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o.read) {
    commit_warn();
    measure(o.read, o.index);
  }
  stdout_close();
  return 0;
}
