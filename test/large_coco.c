// Writes an annotation file of any size, to measure what reads it and to find its limits:
//
//   build/large_coco --out FILE                       as instances_train2017.json: 118,287 images, 860,001 annotations,
//                                                     450 MB
//   build/large_coco --out FILE --images 100000 --annotations 10000000 --points 8
//
// The same options give the same bytes. There are no image files.
#include <inttypes.h>
#include "base/cli.h"
#include "base/file.h"
#include "base/output.h"
#include "base/rng.h"

// clang-format off
#define LARGE_COCO_OPTIONS(X)                                                                                          \
  X(STRING, out, NULL, "FILE", "file to write")                                                                        \
  X(INT, images, 118287, 1, 100000000, "N", "number of images")                                                        \
  X(INT, annotations, 860001, 0, 100000000, "N", "number of annotations, each in a randomly drawn image")              \
  X(INT, categories, 80, 1, 1000000, "N", "number of categories")                                                      \
  X(INT, points, 0, 3, 1000, "N", "points of each polygon", .usual = "12 to 34, and run lengths for one in a hundred") \
  X(FLAG, same_image, false, "give all annotations to the first image")
// clang-format on

typedef struct LargeCocoOptions {
  OPTION_FIELDS(LARGE_COCO_OPTIONS)
} LargeCocoOptions;

// As in COCO: one annotation in a hundred is a crowd, some have two parts; the number of points gives COCO's file size.
enum { WIDTH = 640, HEIGHT = 480, CROWD_ONE_IN = 100, TWO_PARTS_ONE_IN = 8, SHORTEST = 12, LONGEST = 34 };

static uint32_t draw(uint64_t key, uint64_t *at, uint32_t below) { return rng_u32(key, (*at)++) % below; }

// Writes hundredths of a pixel without trailing zeros, as Python does: 12.5, 12.0, 12.25.
static void print_hundredths(FILE *f, uint32_t v) {
  fprintf(f, v % 10 ? "%u.%02u" : "%u.%u", v / 100, v % 10 ? v % 100 : v / 10 % 10);
}

static void print_polygon(FILE *f, const LargeCocoOptions *o, uint64_t key, uint64_t *at) {
  const uint32_t points = o->points ? (uint32_t)o->points : SHORTEST + draw(key, at, LONGEST - SHORTEST + 1);
  for (uint32_t i = 0; i < points; i++) {
    fputc(i ? ',' : '[', f);
    print_hundredths(f, draw(key, at, 100 * WIDTH));
    fputc(',', f);
    print_hundredths(f, draw(key, at, 100 * HEIGHT));
  }
  fputc(']', f);
}

static void print_counts(FILE *f, uint64_t key, uint64_t *at) {
  uint32_t left = WIDTH * HEIGHT;
  fprintf(f, "{\"counts\": [");
  for (uint32_t run; left > 0; left -= run) {
    run = 1 + draw(key, at, 2 * HEIGHT);
    run = MIN(run, left);
    fprintf(f, "%s%u", left < WIDTH * HEIGHT ? "," : "", run);
  }
  fprintf(f, "],\"size\": [%u,%u]}", HEIGHT, WIDTH);
}

static void print_segmentation(FILE *f, const LargeCocoOptions *o, bool crowd, uint64_t key, uint64_t *at) {
  if (crowd) {
    print_counts(f, key, at);
    return;
  }
  const bool two = !o->points && draw(key, at, TWO_PARTS_ONE_IN) == 0;
  fputc('[', f);
  print_polygon(f, o, key, at);
  if (two) {
    fputc(',', f);
    print_polygon(f, o, key, at);
  }
  fputc(']', f);
}

static void print_annotation(FILE *f, const LargeCocoOptions *o, int i, uint64_t seed) {
  uint64_t key = rng_key(seed, (uint64_t)i), at = 0;
  const uint32_t drawn = 1 + draw(key, &at, (uint32_t)o->images), image = o->same_image ? 1 : drawn;
  const bool crowd = !o->points && draw(key, &at, CROWD_ONE_IN) == 0;
  fputs(i ? ",{\"segmentation\": " : "{\"segmentation\": ", f);
  print_segmentation(f, o, crowd, key, &at);
  const uint32_t area = draw(key, &at, 100000), fraction = draw(key, &at, 1000000000);
  fprintf(f, ",\"area\": %u.%09u,\"iscrowd\": %d,\"image_id\": %u,\"bbox\": [", area, fraction, crowd, 4 * image);
  for (int k = 0; k < 4; k++) {
    if (k) fputc(',', f);
    print_hundredths(f, 1 + draw(key, &at, 50 * (k % 2 ? HEIGHT : WIDTH)));
  }
  fprintf(f, "],\"category_id\": %u,\"id\": %d}", 1 + draw(key, &at, (uint32_t)o->categories), 1768 + i);
}

static void print_image(FILE *f, int i, uint64_t seed) {
  fprintf(f,
          "%s{\"license\": %d, \"file_name\": \"%012d.jpg\", \"coco_url\": \"http://localhost/train2017/%012d.jpg\", "
          "\"height\": %d, \"width\": %d, \"date_captured\": \"2013-11-14 11:18:45\", \"flickr_url\": "
          "\"http://localhost/%" PRIx64 "_z.jpg\", \"id\": %d}",
          i ? ", " : "", 1 + i % 8, 4 * (i + 1), 4 * (i + 1), HEIGHT, WIDTH, rng_key(seed, (uint64_t)i), 4 * (i + 1));
}

static bool write_file(const LargeCocoOptions *o, Err *err) {
  const uint64_t seed = rng_key(RNG_TEST, 2017);
  AtomicFile out;
  if (!file_begin(&out, o->out, err)) return false;
  FILE *f = out.f;
  fputs("{\"info\": {\"description\": \"made by test/large_coco\"}, \"images\": [", f);
  for (int i = 0; i < o->images; i++) print_image(f, i, seed);
  fputs("], \"annotations\": [", f);
  for (int i = 0; i < o->annotations; i++) print_annotation(f, o, i, seed);
  fputs("], \"categories\": [", f);
  for (int i = 0; i < o->categories; i++)
    fprintf(f, "%s{\"supercategory\": \"thing\", \"id\": %d, \"name\": \"category %d\"}", i ? ", " : "", i + 1, i + 1);
  fputs("]}", f);
  return file_commit(&out, err);
}

int main(int argc, char **argv) {
  LargeCocoOptions o = {OPTION_DEFAULTS(LARGE_COCO_OPTIONS)};
  OPTION_TABLE(table, LargeCocoOptions, LARGE_COCO_OPTIONS);
  Cli cli = {.usage = "--out FILE [options]",
             .about = "Writes a large annotation file in COCO format, without images.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.out) die(EXIT_USAGE, "--out FILE is missing; --help shows the usage");
  Err err;
  if (!write_file(&o, &err)) die(EXIT_USAGE, "%s", err.msg);
  stdout_close();
  return 0;
}
