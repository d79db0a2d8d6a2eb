// shapes: generates a data set of textured shapes, on which a small network learns in minutes: in COCO's layout, or as
// single shapes by class.
#include <math.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/clock.h"
#include "base/output.h"
#include "base/threads.h"
#include "classification/data/shapes_classes.h"

static void show_progress(int done, int total) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\rshapes: %d of %d images%s", done, total, done == total ? "\n" : "");
}

// clang-format off
#define SHAPES_OPTIONS(X)                                                                                              \
  X(STRING, out, NULL, "DIR", "folder to write, created if missing")                                                   \
  X(INT, train, 2000, 1, 999999, "N", "number of training images")                                                     \
  X(INT, val, 200, 1, 999999, "N", "number of validation images")                                                      \
  X(INT, size, 0, 1, 4096, "PIXELS", "height and width of an image", .usual = "128; 28 with --idx")                    \
  X(INT64, seed, 1, 0, INFINITY, "N", "seed of the random number generator")                                           \
  X(FLAG, idx, false, "write a classification data set instead: one gray shape per image, in IDX files like MNIST's")  \
  X(FLAG, folders, false, "write a classification data set instead: one shape per image, in train/CLASS, val/CLASS")
// clang-format on

typedef struct ShapesOptions {
  OPTION_FIELDS(SHAPES_OPTIONS)
} ShapesOptions;

int main(int argc, char **argv) {
  threads_limit();
  ShapesOptions o = {OPTION_DEFAULTS(SHAPES_OPTIONS)};
  OPTION_TABLE(table, ShapesOptions, SHAPES_OPTIONS);
  Cli cli = {.usage = "--out DIR [options]",
             .about = "Generates a data set of textured shapes in COCO format, or of single shapes for classifiers.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.out) die(EXIT_USAGE, "--out DIR is missing; --help shows the usage");
  if (o.idx && o.folders) die(EXIT_USAGE, "--idx and --folders cannot be combined; give one");
  const bool classes = o.idx || o.folders;
  const int least = classes ? SHAPES_MIN_SINGLE : SHAPES_MIN_SIZE;
  if (o.size == 0) o.size = o.idx ? 28 : 128;
  if (o.size < least) die(EXIT_USAGE, "--size %d: expected at least %d", o.size, least);
  if (classes && MIN(o.train, o.val) < SHAPE_CLASSES)
    die(EXIT_USAGE, "--train and --val need an image of each class, at least %d", SHAPE_CLASSES);
  ShapesConfig config = {.dir = o.out,
                         .train = o.train,
                         .val = o.val,
                         .size = o.size,
                         .seed = (uint64_t)o.seed,
                         .progress = show_progress};
  Err err;
  double start = now_seconds();
  const bool ok =
      classes ? shapes_write_classes(&config, o.idx ? SHAPES_IDX : SHAPES_FOLDERS, &err) : shapes_write(&config, &err);
  if (!ok) die(EXIT_USAGE, "%s", err.msg);
  line_print(stderr, "shapes: %d + %d images of %d×%d in %s, %.1f s", o.train, o.val, o.size, o.size, o.out,
             now_seconds() - start);
  stdout_close();
  return 0;
}
