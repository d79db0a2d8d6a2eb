// Writes a data set of textured shapes in COCO's layout, on which a small network learns in minutes.
#include "data/formats/shapes.h"
#include <math.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/output.h"

static void show_progress(int done, int total) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\rshapes: %d of %d images%s", done, total, done == total ? "\n" : "");
}

// clang-format off
#define SHAPES_OPTIONS(X)                                                                                              \
  X(STRING, out,   NULL,            "DIR",               "folder to write, made if need be")                           \
  X(INT,    train, 2000, 1, 999999, "N",                 "images to train on")                                         \
  X(INT,    val,   200, 1, 999999,  "N",                 "images to evaluate on")                                      \
  X(INT,    size,  128, SHAPES_MIN_SIZE, 4096, "PIXELS", "height and width of an image")                               \
  X(INT64,  seed,  1, 0, INFINITY,  "N",                 "another seed, another data set")
// clang-format on

typedef struct ShapesOptions {
  OPTION_FIELDS(SHAPES_OPTIONS)
} ShapesOptions;

int main(int argc, char **argv) {
  ShapesOptions o = {OPTION_DEFAULTS(SHAPES_OPTIONS)};
  OPTION_TABLE(table, ShapesOptions, SHAPES_OPTIONS);
  Cli cli = {.usage = "--out DIR [options]",
             .about = "Writes a data set of textured shapes in COCO's layout.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.out) die(EXIT_USAGE, "--out DIR is missing; --help shows the usage");
  ShapesConfig config = {.dir = o.out,
                         .train = o.train,
                         .val = o.val,
                         .size = o.size,
                         .seed = (uint64_t)o.seed,
                         .progress = show_progress};
  Err err;
  double start = now_seconds();
  if (!shapes_write(&config, &err)) die(EXIT_USAGE, "%s", err.msg);
  line_print(stderr, "shapes: %d + %d images of %d×%d in %s, %.1f s", o.train, o.val, o.size, o.size, o.out,
             now_seconds() - start);
  stdout_close();
  return 0;
}
