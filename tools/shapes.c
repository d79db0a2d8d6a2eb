// Writes a data set of textured shapes in COCO's layout, on which a small network learns in minutes.
#include "data/formats/shapes.h"
#include <math.h>
#include <unistd.h>
#include "base/cli.h"

static void show_progress(int done, int total) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\rshapes: %d of %d images%s", done, total, done == total ? "\n" : "");
}

int main(int argc, char **argv) {
  const char *out = NULL;
  ShapesConfig config = {.train = 2000, .val = 200, .size = 128, .seed = 1, .progress = show_progress};
  int64_t seed = 1;
  Option options[] = {
      {.name = "out", .kind = OPT_STRING, .target = &out, .arg = "DIR", .help = "folder to write, made if need be"},
      {.name = "train",
       .kind = OPT_INT,
       .target = &config.train,
       .arg = "N",
       .help = "images to train on",
       .min = 1,
       .max = 999999},
      {.name = "val",
       .kind = OPT_INT,
       .target = &config.val,
       .arg = "N",
       .help = "images to evaluate on",
       .min = 1,
       .max = 999999},
      {.name = "size",
       .kind = OPT_INT,
       .target = &config.size,
       .arg = "PIXELS",
       .help = "height and width of an image",
       .min = SHAPES_MIN_SIZE,
       .max = 4096},
      {.name = "seed",
       .kind = OPT_INT64,
       .target = &seed,
       .arg = "N",
       .help = "another seed, another data set",
       .min = 0,
       .max = INFINITY},
  };
  Cli cli = {.usage = "--out DIR [options]",
             .about = "Writes a data set of textured shapes in COCO's layout.",
             .options = options,
             .num_options = COUNT(options)};
  cli_parse_or_exit(&cli, argc, argv);
  if (!out) die(EXIT_USAGE, "--out DIR is missing; --help shows the usage");
  config.dir = out;
  config.seed = (uint64_t)seed;
  Err err;
  double start = now_seconds();
  if (!shapes_write(&config, &err)) die(EXIT_USAGE, "%s", err.msg);
  fprintf(stderr, "shapes: %d + %d images of %d×%d in %s, %.1f s\n", config.train, config.val, config.size, config.size,
          out, now_seconds() - start);
  return 0;
}
