// export: turns detections into annotation files of labelme or YOLO, so that a person can correct them and train again;
// or a trained model into ONNX, for other runtimes.
#include "data/import/export.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/command.h"
#include "base/file_set.h"
#include "base/output.h"
#include "base/own_files.h"
#include "engine/state.h"
#include "onnx/export.h"

// clang-format off
#define EXPORT_OPTIONS(X)                                                                                              \
  X(STRING, to, NULL, "DIR", "folder to write, created if missing; it must be empty")                                  \
  X(FLAG, labelme, false, "write labelme's JSON files, beside the images")                                             \
  X(FLAG, yolo, false, "write YOLO's label files and data.yaml")                                                       \
  X(STRING, images, NULL, "DIR", "folder of the images, which are all exported",                                       \
    .usual = "those with detections, under the names that infer was given")                                            \
  X(FLOAT, score, 0.5f, 0, 1, "SCORE", "only detections with at least this score")                                     \
  X(STRING, onnx, NULL, "FILE.onnx", "write the model of WEIGHTS as ONNX, opset 21")                                   \
  X(FLAG, uint8, false, "--onnx: the model takes pictures as bytes, and resizes and normalizes them itself")           \
  X(STRING, paste, NULL, "FILE.onnx", "--onnx: also write a model that pastes masks into the picture")                 \
  X(INT, size, 0, 0, 8192, "PIXELS", "--uint8: length of the input's shorter side", .usual = "as trained")             \
  X(STRING, set, NULL, "FIELD=VALUE", "--onnx: set fields of the model's configuration, as infer's --set does") \
  X(FLAG, force, false, "--onnx: overwrite a file that this program did not write")
// clang-format on

typedef struct ExportOptions {
  OPTION_FIELDS(EXPORT_OPTIONS)
} ExportOptions;

// ---- a model --------------------------------------------------------------------------------------------------------

// Sides of the input for which the network is built to be walked, pixels. A detector is the same for all.
enum { WALK_H = 256, WALK_W = 384 };
// A classifier is walked at another size than its own, at which poolings that round up differ from those that round
// down; its weights fit then only if it takes any size.
enum { OTHER_SIZE = 16 };

typedef struct Exported {
  const ExportOptions *o;
  const Checkpoint *weights;
  ModelConfig config;
  Category *category;
  const char *categories;
} Exported;

static bool write_walked(const Exported *x, int h, int w, bool any_size, Err *err) {
  Engine e;
  const Compute compute = {.device = "cpu", .conv = "reference", .every_value = true};
  const Shapes none = {0}, infer = {.canvases = 1,
                                    .canvas = {{h, w, 1}},
                                    .images = 1,
                                    .max_objects = 1,
                                    .max_bytes = (int64_t)h * w * 3,
                                    .set_images = 1};
  bool ok = engine_open(&e, &compute, model_of(&x->config), &x->config, x->category, &none, &infer, false, err) &&
            state_load(&e, x->weights, &(LoadOptions){0}, err);
  const OnnxOptions onnx = {
      .path = x->o->onnx, .bytes = x->o->uint8, .any_size = any_size, .categories = x->categories};
  ok = ok && onnx_export(&e.infer.network[0], &onnx, err);
  engine_close(&e);
  return ok;
}

static bool write_model(const Exported *x, Err *err) {
  const ModelConfig *c = &x->config;
  if (model_of(c)->traits & MODEL_DETECTOR) return write_walked(x, WALK_H, WALK_W, true, err);
  return write_walked(x, c->size + OTHER_SIZE, c->size + OTHER_SIZE, true, err) ||
         write_walked(x, c->size, c->size, false, err);
}

static void export_model(const ExportOptions *o, const char *path) {
  Exported x = {.o = o};
  Checkpoint weights;
  Err err;
  FileSet inputs = {0};
  file_set_add(&inputs, path);
  if (!file_set_spares(&inputs, o->onnx, &err)) die(EXIT_USAGE, "--onnx %s", err.msg);
  if (o->paste && !file_set_spares(&inputs, o->paste, &err)) die(EXIT_USAGE, "--paste %s", err.msg);
  file_set_free(&inputs);
  if (!output_is_own(o->onnx, OWN_ONNX, o->force, &err)) die(EXIT_USAGE, "--onnx %s", err.msg);
  if (o->paste && !output_is_own(o->paste, OWN_ONNX, o->force, &err)) die(EXIT_USAGE, "--paste %s", err.msg);
  if (o->paste && !strcmp(o->paste, o->onnx)) die(EXIT_USAGE, "--paste %s: --onnx has the same name", o->paste);
  if (!state_open(&weights, path, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!state_config(&weights, &x.config, &x.category, &err)) die(EXIT_USAGE, "%s: %s", path, err.msg);
  const Model *model = model_of(&x.config);
  if (o->size) config_resize(&x.config, o->size);
  if (o->set && !model_set_list(&x.config, o->set, true, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!config_check(&x.config, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!(model->traits & MODEL_MASKS) && o->paste)
    die(EXIT_USAGE, "%s: --paste needs a model with masks; this is a %s", path, model->name);
  x.weights = &weights;
  x.categories = ckpt_find_meta(&weights, "categories");
  if (!write_model(&x, &err)) die(err_exit(&err), "%s: %s", path, err.msg);
  line_print(stdout, "written: %s (%s, opset 21)", o->onnx, model->name);
  if (o->paste && !onnx_export_paste(&x.config, MASK_THRESHOLD, o->paste, &err)) die(err_exit(&err), "%s", err.msg);
  if (o->paste) line_print(stdout, "written: %s (pastes masks)", o->paste);
  free(x.category);
  ckpt_close(&weights);
  stdout_close();
}

// ---- detections -----------------------------------------------------------------------------------------------------

static void export_detections(const ExportOptions *o, const char *path) {
  Err err;
  Tree tree = {0};
  if (!o->to) die(EXIT_USAGE, "--to DIR is missing; --help shows the usage");
  if (o->labelme == o->yolo) die(EXIT_USAGE, "give one of --labelme and --yolo");
  if (!import_may_write(o->to, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o->images && !tree_open(&tree, o->images, NULL, &err)) die(EXIT_USAGE, "%s", err.msg);
  ImportSet set = {.tree = &tree};
  export_read(&set, path, float_decimal(o->score));
  if (set.refused) die(EXIT_USAGE, "%s", set.refused);
  import_settle(&set);
  if (set.n == 0) die(EXIT_USAGE, "%s: none of its images is found; give --images DIR; nothing was written", path);
  uint64_t lost = 0;
  if (!(o->labelme ? export_labelme : export_yolo)(&set, o->to, &lost, &err)) die(err_exit(&err), "%s", err.msg);
  int objects = 0;
  for (int i = 0; i < set.n; i++) objects += set.images[i].n;
  import_print_counts(&set);
  line_print(stdout, "written: %d images, %d objects in %s; pixels lost: %llu", set.n, objects, o->to,
             (unsigned long long)lost);
  line_print(stdout, "next, once they are corrected: %s %s --to OUT", command_name("import"), o->to);
  import_free(&set);
  tree_free(&tree);
  stdout_close();
}

int main(int argc, char **argv) {
  ExportOptions o = {OPTION_DEFAULTS(EXPORT_OPTIONS)};
  OPTION_TABLE(table, ExportOptions, EXPORT_OPTIONS);
  Cli cli = {.usage = "DETECTIONS.json --to DIR --labelme [options], or WEIGHTS --onnx FILE.onnx [options]",
             .about =
                 "Turns detections, as infer writes them, into annotations of labelme or YOLO, to be corrected there "
                 "and read by import; or a trained model into ONNX, for other runtimes (docs/deploy.md).",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "DETECTIONS or WEIGHTS"};
  cli_parse_or_exit(&cli, argc, argv);
  if (cli.num_args != 1)
    die(EXIT_USAGE, "expected one file, of detections or, with --onnx, of weights; found %d", cli.num_args);
  if (!o.onnx && (o.uint8 || o.paste || o.set || o.size || o.force))
    die(EXIT_USAGE, "--%s needs --onnx FILE.onnx",
        o.uint8   ? "uint8"
        : o.paste ? "paste"
        : o.set   ? "set"
        : o.size  ? "size"
                  : "force");
  if (o.onnx && (o.to || o.labelme || o.yolo || o.images || o.from.score == FROM_GIVEN))
    die(EXIT_USAGE, "--onnx writes a model; leave out the options for annotations%s",
        o.from.score == FROM_GIVEN ? " (minimum score of the model: --set min_score=X)" : "");
  (o.onnx ? export_model : export_detections)(&o, cli.args[0]);
  return 0;
}
