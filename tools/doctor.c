// doctor: loads a data set as train does; prints an overview, errors, hints and a suggested command.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cli.h"
#include "base/command.h"
#include "base/file.h"
#include "base/file_set.h"
#include "base/mapped.h"
#include "base/output.h"
#include "base/own_files.h"
#include "base/record.h"
#include "base/text.h"
#include "base/threads.h"
#include "data/batches/detection_limit.h"
#include "data/batches/source.h"
#include "data/batches/upright.h"
#include "data/coco/layout.h"
#include "data/import/formats.h"
#include "data/survey/checkup.h"
#include "data/survey/checkup_json.h"
#include "engine/state.h"
#include "models/model.h"
#include "models/torchvision_files.h"
#include "nn/device.h"
#include "page/doctor_page.h"
#include "page/document.h"
#include "page/picture_folder.h"

// clang-format off
#define DOCTOR_OPTIONS(X)                                                                                              \
  X(STRING, data, NULL, "DIR", "data set in COCO format; for classifiers, IDX files or a folder per class in "         \
    "train/ and val/")                                                                                                 \
  X(STRING, train_split, "train", "NAME", "split to train on")                                                         \
  X(STRING, val_split, "val", "NAME", "split to evaluate on")                                                          \
  X(STRING, train_json, NULL, "FILE", "annotations in COCO format to train on, instead of a split of --data")          \
  X(STRING, train_images, NULL, "DIR", "folder of the images of --train-json", .usual = "the file's folder")           \
  X(STRING, val_json, NULL, "FILE", "annotations in COCO format to evaluate on")                                       \
  X(STRING, val_images, NULL, "DIR", "folder of the images of --val-json", .usual = "the file's folder")               \
  X(FLOAT, val_fraction, 0, 0, 0.9, "P", "hold out this fraction of the training images, as with train --val-fraction")\
  X(STRING, fold, NULL, "I/N", "hold out the I-th of N parts, as with train --fold")                                   \
  X(STRING, group, NULL, "REGEX", "keep images together by their names, as with train --group")                        \
  X(INT64, split_seed, 1, 0, 9e15, "N", "seed that draws the images of --val-fraction or --fold, as with train")       \
  X(STRING, model, DEFAULT_MODEL, "NAME", "model that sets the default input size")                                    \
  X(STRING, weights, NULL, "FILE", "weights that training is to start from")                                           \
  X(INT, size, 0, 1, 8192, "PIXELS", "length of the input's shorter side", .usual = "the model's")                     \
  X(INT, max_size, 0, 1, 16384, "PIXELS", "maximum length of the input's longer side",                                 \
    .usual = "the model's; 5/3 of --size if that is given")                                                            \
  X(INT, canvases, 2, 1, MAX_CANVASES, "N", "number of input shapes that images are padded to")                        \
  X(STRING, classes, NULL, "LIST", "examine these classes alone, as train --classes does")                             \
  X(FLAG, keep_empty, false, "include images without objects, as train --keep-empty does")                             \
  X(CHOICE, crowd, CROWD_OBJECT, crowd_choices, "treatment of crowd annotations that cover one object each, as "       \
    "with train --crowd")                                                                                              \
  X(CHOICE, areas, MEASURE_FILE, measure_choices, "where the area of an object with a mask comes from, by which "      \
    "scores call it small, medium or large: the annotations or the mask")                                              \
  X(CHOICE, boxes, MEASURE_FILE, measure_choices, "where the box of an object with a mask comes from: the "            \
    "annotations or the mask")                                                                                         \
  X(CHOICE_IMPLIED, exif, EXIF_AUTO, exif_choices, "yes", "rotate images by their EXIF orientation, as train --exif "  \
    "does")                                                                                                            \
  X(STRING, range, "auto", "LOW,HIGH|auto|type", "16-bit images: values that become black and white, as "              \
    "with train --range")                                                                                              \
  X(FLAG, decode, true, "decode all images and rasterize all masks; --decode=false reads the annotations only")        \
  X(FLAG, json, false, "print one JSON object instead of text")                                                        \
  X(STRING, html, NULL, "FILE", "also write an HTML page: errors, hints, histograms, and images with their masks "     \
    "(in FILE-pictures/)")                                                                                             \
  X(FLAG, single_file, false, "with --html: embed the pictures in the page instead of writing them to "                \
    "FILE-pictures/")                                                                                                  \
  X(CHOICE, augment, AUGMENT_NONE, augment_presets, "with --html: also show 24 training images before and after "     \
    "train --augment of this preset, with their masks")                                                                \
  X(FLAG, force, false, "with --html: overwrite a page that this program did not write")                               \
  X(INT, html_images, 200, 1, 2000, "N", "with --html: number of images to show, those with errors first")
// clang-format on

typedef struct DoctorOptions {
  OPTION_FIELDS(DOCTOR_OPTIONS)
  HoldoutOptions holdout;
  ModelConfig trained; // of --weights or --model
} DoctorOptions;

// The source whose survey applies to the folder; NULL: a detection data set, which is examined object by object.
static const Source *surveyed_by(const char *dir) {
  for (int i = 0; models[i]; i++) {
    const Source *s = models[i]->source;
    if (s->survey && s->contents(dir)) return s;
  }
  return NULL;
}

// Ends the program where there is nothing to examine: no folder, or annotations that have to be converted first.
static void check_folder(const DoctorOptions *o) {
  CocoLayout layout;
  Err err;
  if (o->train_json) return;
  if (coco_layout_find(&layout, o->data, o->train_split, NULL, NULL, &err))
    coco_layout_free(&layout);
  else if (!path_is_dir(o->data) || !import_is_done(o->data, surveyed_by(o->data), &err))
    die(EXIT_USAGE, "%s", err.msg);
}

// The configuration to train: that of --weights, if given, or of --model.
static void read_config(DoctorOptions *o) {
  Checkpoint c;
  ModelConfig named;
  Err err;
  if (!config_init(&named, o->model, &err)) die(EXIT_USAGE, "%s", err.msg);
  o->trained = named;
  if (!o->weights) return;
  const ModelConfig *asked = o->from.model == FROM_GIVEN ? &named : NULL;
  if (!state_open(&c, o->weights, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!state_config_for(&c, asked, &o->trained, &err)) die(EXIT_USAGE, "%s: %s", o->weights, err.msg);
  if (!(model_of(&o->trained)->traits & MODEL_DETECTOR))
    die(EXIT_USAGE, "%s is of a classifier, %s, but %s is for a detector", o->weights, model_of(&o->trained)->name,
        o->data);
  ckpt_close(&c);
}

static DoctorOptions doctor_options(int argc, char **argv) {
  DoctorOptions o = {OPTION_DEFAULTS(DOCTOR_OPTIONS)};
  OPTION_TABLE(table, DoctorOptions, DOCTOR_OPTIONS);
  Cli cli = {
      .usage = "--data DIR [options]",
      .about =
          "Checks a data set as train would load it, and prints an overview, errors, hints and a suggested command.\n"
          "Exits 0 when there are no errors, 1 otherwise.",
      .options = table,
      .num_options = COUNT(table),
      .values = &o};
  cli_parse_or_exit(&cli, argc, argv);
  if (o.train_images && !o.train_json) die(EXIT_USAGE, "--train-images needs --train-json FILE");
  if (o.val_images && !o.val_json) die(EXIT_USAGE, "--val-images needs --val-json FILE");
  if (!o.data) o.data = o.train_json;
  if (!o.data) die(EXIT_USAGE, "--data DIR is missing; --help lists the options");
  if (o.augment != AUGMENT_NONE && !o.html) die(EXIT_USAGE, "--augment needs --html FILE");
  if (o.single_file && !o.html) die(EXIT_USAGE, "--single-file needs --html FILE");
  SampleRange range;
  Err bad;
  if (!holdout_options(&o.holdout, o.val_fraction, o.fold, o.group, (uint64_t)o.split_seed, &bad))
    die(EXIT_USAGE, "%s", bad.msg);
  if (o.from.split_seed == FROM_GIVEN && !holdout_wanted(&o.holdout))
    die(EXIT_USAGE, "--split-seed needs --val-fraction P or --fold I/N");
  if (o.val_json && holdout_wanted(&o.holdout))
    die(EXIT_USAGE, "--val-json and --%s cannot be combined: the latter holds out training images",
        o.fold ? "fold" : "val-fraction");
  if (!strcmp(o.range, "auto"))
    o.range = NULL;
  else if (!sample_range_parse(&range, o.range, &bad))
    die(EXIT_USAGE, "--range %s; or auto", bad.msg);
  Err err;
  check_folder(&o);
  if (surveyed_by(o.data) && o.weights)
    die(EXIT_USAGE, "--weights is for detectors, but %s is for a classifier", o.data);
  if (surveyed_by(o.data)) return o;
  read_config(&o);
  ModelConfig c = o.trained;
  if (o.size) {
    c.size = o.size;
    c.max_size = o.size * 5 / 3;
  }
  if (o.max_size) c.max_size = o.max_size;
  c.classes = 2; // at least; the data set tells
  if (!config_check(&c, &err)) die(EXIT_USAGE, "%s", err.msg);
  o.size = c.size;
  o.max_size = c.max_size;
  return o;
}

static void show_progress(int done, int total) {
  if (done % 16 && done < total) return;
  fprintf(stderr, "\rdoctor: %d of %d images%s", done, total, done == total ? "\n" : "");
}

// ---- text output ---- -----------------------------------------------------------------------------------------------

// The page must not overwrite an input file. Label files of IDX sets are safe: no page has such a name.
static void check_page(const char *path, bool force, const Diagnosis *f) {
  FileSet inputs = {0};
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) {
    const Dataset *d = f->split[s].data;
    if (d) file_set_add(&inputs, d->coco.path);
    for (int i = 0; d && !d->gray && i < d->num_images; i++) {
      char *image = dataset_path(d, i);
      file_set_add(&inputs, image);
      free(image);
    }
  }
  Err err;
  if (!file_set_spares(&inputs, path, &err) || !document_name_fits(path, &err) ||
      !output_is_own(path, OWN_PAGE, force, &err))
    die(EXIT_USAGE, "--html %s", err.msg);
  file_set_free(&inputs);
}

// The report on a detection data set, or on a classification one.
static void report(const Diagnosis *f, const char *json, const void *options) {
  const DoctorOptions *o = options;
  Err err;
  if (o->html) check_page(o->html, o->force, f);
  if (o->json)
    printf("%s\n", json);
  else
    diagnosis_print(stdout, f);
  fflush(stdout); // drawing the page takes a while
  const AugmentFor learner = !f->classes                                  ? AUGMENT_DETECTORS
                             : f->split[0].data && f->split[0].data->gray ? AUGMENT_DIGITS
                                                                          : AUGMENT_PHOTOGRAPHS;
  const DoctorPage page = {.images = o->html_images,
                           .preset = augment_presets[o->augment],
                           .single_file = o->single_file,
                           .augment =
                               o->augment == AUGMENT_NONE ? NULL : augment_preset(learner, (AugmentPreset)o->augment)};
  if (o->html && !doctor_page_write(o->html, f, &page, &err)) die(EXIT_RUN, "%s", err.msg);
  char *folder = o->html ? picture_folder_of(o->html) : NULL;
  if (o->html && !o->json) line_print(stdout, o->single_file ? "written: %s" : "written: %s, %s/", o->html, folder);
  free(folder);
}

// Splits of such a folder have their folders' names.
static bool survey_classes(const Source *s, const DoctorOptions *o, void (*tick)(int, int)) {
  if (strcmp(o->train_split, "train") || strcmp(o->val_split, "val"))
    die(EXIT_USAGE, "%s contains %s, and its splits are always train and val: leave out --train-split and --val-split",
        o->data, s->contents(o->data));
  if (o->classes) die(EXIT_USAGE, "--classes is for detectors, but %s is for a classifier", o->data);
  return s->survey(&(SourceSurvey){.dir = o->data,
                                   .canvas = {o->size, o->size},
                                   .range = o->range,
                                   .holdout = &o->holdout,
                                   .decode = o->decode,
                                   .tick = tick,
                                   .report = report,
                                   .context = o});
}

// " --train-json FILE --train-images DIR … --classes LIST", as given. Caller frees.
static char *options_of_data(const DoctorOptions *o) {
  const char *const option[][2] = {{"train-json", o->train_json},
                                   {"train-images", o->train_images},
                                   {"val-json", o->val_json},
                                   {"val-images", o->val_images},
                                   {"classes", o->classes}};
  char *text = xstrdup("");
  for (int i = 0; i < COUNT(option); i++) {
    if (!option[i][1]) continue;
    char *word = cli_word(option[i][1]), *longer = xasprintf("%s --%s %s", text, option[i][0], word);
    free(word);
    free(text);
    text = longer;
  }
  return text;
}

// The model to train: that of --model or, where no object has a mask, the same without masks.
static const char *suited_model(const DoctorOptions *o, const Checkup *c) {
  const char *without = config_without_masks(&o->trained);
  return without && c->train.data.coco.num_anns > 0 && !c->train.defects.masks ? without : o->model;
}

// " --proposals N" where the model has fewer than two proposals for each object of the fullest image, too few to find
// all of them; else "".
static const char *suited_proposals(const DoctorOptions *o, const Checkup *c, char flag[32]) {
  const int most = MAX(c->train.data.max_objects, c->val.name ? c->val.data.max_objects : 0);
  const int need = MIN(2 * detection_limit_for(most), MOST_DETECTIONS);
  *flag = '\0';
  if (2 * most > o->trained.rpn_post_nms_test) snprintf(flag, 32, " --proposals %d", need);
  return flag;
}

static int sampled_objects(const ModelConfig *c) { return (int)((float)c->roi_batch * c->roi_positive); }

// " --set roi_batch=N" that samples all objects of the fullest image, or as many as can be; "" where the model's number
// does.
static const char *suited_rois(const DoctorOptions *o, const Checkup *c, char flag[32]) {
  const int most = c->train.data.max_objects;
  *flag = '\0';
  if (most > sampled_objects(&o->trained))
    snprintf(flag, 32, " --set roi_batch=%d",
             (int)fminf((float)detection_limit_for(most) / o->trained.roi_positive, MOST_ROIS));
  return flag;
}

static void say_start(Diagnosis *f, const DoctorOptions *o, const char *model) {
  ModelConfig config;
  const char *file = config_init(&config, model, NULL) ? torchvision_file(&config) : NULL;
  const char *dash = file ? strrchr(file, '-') : NULL;
  if (o->weights)
    diagnosis_add_reason(f, "--reset-heads: the output layers are new, for this data's categories");
  else if (dash)
    diagnosis_add_reason(f,
                         "torchvision's weights to start from: %s from https://download.pytorch.org/models/ (its "
                         "SHA-256 starts with %.*s); then give doctor --weights FILE",
                         file, (int)strcspn(dash + 1, "."), dash + 1);
}

static bool has_gpu(void) {
  GpuList gpus;
  Err err;
  return device_locate(&gpus, &err) && gpus.count > 0;
}

// The command, and the reasons of the options that follow from model and machine.
static void say_command(Diagnosis *f, const DoctorOptions *o, const Checkup *c, bool gpu) {
  char *files = options_of_data(o), proposals[32], rois[32];
  char *data = cli_word(o->data), *weights = o->weights ? cli_word(o->weights) : NULL;
  const char *model = suited_model(o, c);
  char *start = weights ? xasprintf("--weights %s --reset-heads ", weights) : xstrdup("");
  char *of_data = o->train_json ? xstrdup(files + 1) : xasprintf("--data %s%s", data, files);
  char *of_model = weights ? xstrdup("") : xasprintf(" --model %s", model);
  f->command =
      xasprintf("%s %s%s%s%s%s %s%s", command_name("train"), start, of_data, of_model,
                suited_proposals(o, c, proposals), suited_rois(o, c, rois), c->suggestion.flags, gpu ? " --amp" : "");
  if (gpu)
    diagnosis_add_reason(f, "--amp: trains in bf16 on the GPU of this machine");
  else if (!o->weights && strcmp(o->model, "tiny"))
    diagnosis_add_reason(f, "this machine has no GPU: for training on the CPU, give doctor --model tiny");
  say_start(f, o, model);
  free(of_model);
  free(of_data);
  free(start);
  free(weights);
  free(data);
  free(files);
}

static bool survey_objects(const DoctorOptions *o, void (*tick)(int, int)) {
  const CheckupOptions options = {.data = o->data,
                                  .train_split = o->train_split,
                                  .val_split = o->val_split,
                                  .train_json = o->train_json,
                                  .train_images = o->train_images,
                                  .val_json = o->val_json,
                                  .val_images = o->val_images,
                                  .size = o->size,
                                  .max_size = o->max_size,
                                  .canvases = o->canvases,
                                  .exif = (ExifChoice)o->exif,
                                  .boxes = (MeasureChoice)o->boxes,
                                  .areas = (MeasureChoice)o->areas,
                                  .range = o->range,
                                  .crowd = (CrowdChoice)o->crowd,
                                  .holdout = &o->holdout,
                                  .classes = o->classes,
                                  .keep_empty = o->keep_empty,
                                  .sampled = sampled_objects(&o->trained),
                                  .weights = o->weights,
                                  .pastes_whole = !o->trained.mask_paste_exact,
                                  .gpu = has_gpu(),
                                  .decode = o->decode,
                                  .looked = tick};
  Checkup c;
  Diagnosis f;
  checkup_take(&c, &options);
  checkup_diagnosis(&f, &c, &options);
  if (c.train.open) say_command(&f, o, &c, options.gpu);
  char *json = checkup_json(&c, &options);
  report(&f, json, o);
  const bool sound = c.sound;
  free(json);
  diagnosis_free(&f);
  checkup_free(&c);
  return sound;
}

int main(int argc, char **argv) {
  mapped_guard();
  threads_limit();
  const DoctorOptions o = doctor_options(argc, argv);
  const Source *source = surveyed_by(o.data);
  void (*tick)(int, int) = isatty(STDERR_FILENO) ? show_progress : NULL;
  const bool sound = source ? survey_classes(source, &o, tick) : survey_objects(&o, tick);
  stdout_close();
  return sound ? 0 : 1;
}
