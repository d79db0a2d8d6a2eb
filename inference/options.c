#include "inference/options.h"
#include "base/file.h"
#include "comm/job.h"

const OptionWord infer_all[] = {{"all", 0}, {0}}, infer_never[] = {{"never", 0}, {0}}, infer_off[] = {{"off", 0}, {0}};

InferOptions infer_options(int argc, char **argv) {
  InferOptions o = {OPTION_DEFAULTS(INFER_OPTIONS)};
  OPTION_TABLE(table, InferOptions, INFER_OPTIONS);
  Cli cli = {
      .usage = "--weights FILE (IMAGE… | FOLDER… | - | --data DIR) [options]",
      .about =
          "Finds objects and their masks with a trained Mask R-CNN, or names what images show with a classifier.\n"
          "IMAGE is a JPEG or PNG file, FOLDER holds such files, - reads their paths from standard input, one a line.",
      .options = table,
      .num_options = COUNT(table),
      .values = &o,
      .positional = "IMAGE"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.weights) die(EXIT_USAGE, "--weights FILE is missing; --help lists the options");
  if (!o.data == !cli.num_args) die(EXIT_USAGE, "name either images or --data DIR");
  if ((o.eval || o.benchmark) && !o.data) die(EXIT_USAGE, "--%s needs --data DIR", o.eval ? "eval" : "benchmark");
  if ((o.profile || o.energy > 0) && !o.benchmark)
    die(EXIT_USAGE, "--%s needs --benchmark", o.profile ? "profile" : "energy");
  if (!o.data && o.gpus != 1) die(EXIT_USAGE, "--gpus shares out --data DIR: leave it out where images are named");
  if (o.data && (o.labels || o.crops))
    die(EXIT_USAGE, "--%s is for images that are named: name the folder of --data's images",
        o.labels ? "labels" : "crops");
  if (!o.data && (o.val_fraction > 0 || o.split_seed >= 0))
    die(EXIT_USAGE, "--%s splits --data DIR: leave it out where images are named",
        o.val_fraction > 0 ? "val-fraction" : "split-seed");
  if (o.split_seed >= 0 && o.val_fraction <= 0)
    die(EXIT_USAGE, "--split-seed draws the images of --val-fraction P: give that, too");
  if (o.data && o.tile) die(EXIT_USAGE, "--tile is for images that are named: name the folder of --data's images");
  if (o.tile && o.tile < CANVAS_MULTIPLE)
    die(EXIT_USAGE, "--tile %d is too small: tiles have at least %d pixels a side", o.tile, CANVAS_MULTIPLE);
  if (o.label_values && !o.labels) die(EXIT_USAGE, "--label-values needs --labels DIR");
  if (o.crop_alpha && !o.crops) die(EXIT_USAGE, "--crop-alpha needs --crops DIR");
  if (o.eval && o.benchmark) die(EXIT_USAGE, "--benchmark stops after its record: leave out --eval");
  if (o.data && !o.batch) o.batch = 1;
  o.images = (const char *const *)cli.args;
  o.num_images = cli.num_args;
  return o;
}

void infer_spare_folder(const InferOptions *o, const char *images) {
  if (path_is_same(o->out, images))
    die(EXIT_USAGE, "--out %s: that is the folder of the images; give another one", o->out);
}
