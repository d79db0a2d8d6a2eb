#include "inference/options.h"
#include <string.h>
#include "base/file.h"
#include "base/folder.h"
#include "base/run_folder.h"
#include "comm/job.h"
#include "data/coco/csv.h"

const OptionWord infer_all[] = {{"all", 0}, {0}}, infer_never[] = {{"never", 0}, {0}}, infer_off[] = {{"off", 0}, {0}};

// Weights store what training held out.
static const RenamedOption removed[] = {
    {.was = "val-fraction", .since = "1.3"}, {.was = "split-seed", .since = "1.3"}, {0}};

InferOptions infer_options(int argc, char **argv) {
  InferOptions o = {OPTION_DEFAULTS(INFER_OPTIONS)};
  OPTION_TABLE(table, InferOptions, INFER_OPTIONS);
  Cli cli = {
      .usage = "--weights FILE (IMAGE… | FOLDER… | - | --data DIR) [options]",
      .about =
          "Detects and segments objects with a trained Mask R-CNN, or classifies images with a trained classifier.\n"
          "IMAGE is a JPEG or PNG file, FOLDER holds such files, - reads their paths from standard input, one per "
          "line.",
      .options = table,
      .num_options = COUNT(table),
      .values = &o,
      .positional = "IMAGE",
      .renamed = removed};
  cli_parse_or_exit(&cli, argc, argv);
  Err err;
  if (!config_list_alone(o.set, table, COUNT(table), &o, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!o.weights) die(EXIT_USAGE, "--weights FILE is missing; --help lists the options");
  if (o.val_images && !o.val_json) die(EXIT_USAGE, "--val-images needs --val-json FILE");
  if (o.val_json && !o.data && !cli.num_args) o.data = o.val_json; // the name of the data
  if (!o.data == !cli.num_args) die(EXIT_USAGE, "give either images or --data DIR");
  if ((o.eval || o.benchmark) && !o.data) die(EXIT_USAGE, "--%s needs --data DIR", o.eval ? "eval" : "benchmark");
  if ((o.profile || o.energy > 0) && !o.benchmark)
    die(EXIT_USAGE, "--%s needs --benchmark", o.profile ? "profile" : "energy");
  if (!o.data && o.gpus != 1) die(EXIT_USAGE, "--gpus needs --data DIR: named images are processed on one GPU");
  if (o.data && (o.labels || o.crops))
    die(EXIT_USAGE, "--%s works on named images only: instead of --data, name the folder with its images",
        o.labels ? "labels" : "crops");
  if (o.data && o.tile)
    die(EXIT_USAGE, "--tile works on named images only: instead of --data, name the folder with its images");
  if (o.tile && o.tile < CANVAS_MULTIPLE)
    die(EXIT_USAGE, "--tile %d is too small: a tile's side must be at least %d pixels", o.tile, CANVAS_MULTIPLE);
  if (o.label_values && !o.labels) die(EXIT_USAGE, "--label-values needs --labels DIR");
  if (o.crop_alpha && !o.crops) die(EXIT_USAGE, "--crop-alpha needs --crops DIR");
  if (o.eval && o.benchmark) die(EXIT_USAGE, "--benchmark cannot be combined with --eval: leave one of them out");
  if (o.data && !o.batch) o.batch = 1;
  o.images = (const char *const *)cli.args;
  o.num_images = cli.num_args;
  return o;
}

bool infer_take_folder(const InferOptions *o, OwnFile results, bool scores, Err *err) {
  static const OwnName written[] = {{SCORES, OWN_SCORES},
                                    {SCORES_PAGE, OWN_PAGE},
                                    {RUN_DEFECTS, OWN_DEFECTS},
                                    {"confusion.txt", OWN_CONFUSION_TEXT},
                                    {"confusion.json", OWN_CONFUSION}};
  static const OwnName tables[] = {{CSV_OBJECTS, OWN_CSV_OBJECTS}, {CSV_COUNTS, OWN_CSV_COUNTS}};
  const bool detects = results == OWN_RESULTS;
  if (detects && o->format == RESULTS_JSONL) results = OWN_RESULT_LINES;
  const size_t n = strlen(o->out);
  const bool within = !strncmp(o->json, o->out, n) && o->json[n] == '/' && !strchr(o->json + n + 1, '/');
  const OwnName of_results = {within ? o->json + n + 1 : NULL, results};
  return (within || output_is_own(o->json, results, o->force, err)) &&
         folder_is_own(o->out, &of_results, within, o->force, err) &&
         folder_is_own(o->out, tables, detects ? COUNT(tables) : 0, o->force, err) &&
         folder_is_own(o->out, written, scores ? COUNT(written) : 0, o->force, err) && folder_take(o->out, err);
}

void infer_spare_folder(const InferOptions *o, const char *images) {
  if (path_is_same(o->out, images))
    die(EXIT_USAGE, "--out %s is the folder of the input images; choose another one", o->out);
}
