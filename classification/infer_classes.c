#include "classification/infer_classes.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "base/run_folder.h"
#include "classification/class_results.h"
#include "classification/classify.h"
#include "classification/data/classes.h"
#include "data/coco/confusion.h"
#include "engine/categories.h"
#include "evaluation/task.h"
#include "inference/defect_list.h"
#include "inference/held_out.h"
#include "inference/networks.h"
#include "inference/score_file.h"

typedef struct ClassSink {
  Sink sink; // first, so that its address is the sink's
  ClassResults results;
  int guesses;        // classes of an image that are sent to rank 0
  Classification all; // results on a data set; on rank 0
  int *label;         // [guesses] unpacked from a message
  float *score;       // [guesses]
} ClassSink;

static ClassSink *of(Sink *s) { return (ClassSink *)s; }

// ---- options ----------------------------------------------------------------------------------------------------

static void fit(InferOptions *o, const ModelConfig *config) {
  enum { TOP = 5 };
  const struct {
    const char *name;
    bool given;
  } of_detectors[] = {{"tile", o->tile},         {"labels", o->labels},         {"crops", o->crops},
                      {"polygons", o->polygons}, {"classes", o->classes},       {"overlays", o->overlays >= 0},
                      {"max-size", o->max_size}, {"detections", o->detections}, {"proposals", o->proposals},
                      {"score", o->score >= 0},  {"val-json", o->val_json},     {"colour", o->colour},
                      {"nms", o->nms >= 0}};
  for (int i = 0; i < COUNT(of_detectors); i++)
    if (of_detectors[i].given)
      die(EXIT_USAGE, "--%s is for detectors, but %s holds a classifier (%s): leave it out", of_detectors[i].name,
          o->weights, model_of(config)->name);
  if (!o->top) o->top = MIN(TOP, config->classes);
  o->json = o->json ? xstrdup(o->json) : xasprintf("%s/classes.jsonl", o->out);
}

// ---- the data set -----------------------------------------------------------------------------------------------

// Opens the data set; its classes are matched with the model's by name.
static void open_data(Sink *sink, Dataset *d) {
  Err err;
  const InferRun *run = sink->run;
  const InferOptions *o = run->o;
  const ModelConfig *config = run->config;
  const int n = model_names(config);
  const CategoryList known = categories_of_model(run->category, n, o->weights);
  ClassOptions options = {.size = {config->size, config->size},
                          .view = config->view,
                          .upright = o->exif == EXIF_YES,
                          .strict = o->strict,
                          .patience = STORAGE_PATIENCE,
                          .limit = o->limit,
                          .like = &known};
  HeldOut held;
  held_out_find(&held, run);
  options.holdout = held.use;
  const bool ok = classes_open(d, o->data, held.split, &options, &err);
  free((void *)known.item);
  if (!ok) held_out_die(&held, run, err.msg);
  held_out_print(&held, run, d->num_images);
  held_out_free(&held);
  if (run->job->launch.rank == 0) dataset_print_notes(d, stderr);
}

static int top(const InferRun *run, const Dataset *d) { return MIN(MAX(run->o->top, TOP_CLASSES), d->classes); }

// ---- the sink ---------------------------------------------------------------------------------------------------

static Sink *open_sink(const InferRun *run) {
  (void)run;
  return xcalloc(1, sizeof(ClassSink));
}

static void plan(Sink *sink) {
  Err err;
  const InferRun *run = sink->run;
  const InferOptions *o = run->o;
  InferImages *images = sink->images;
  const Dataset *d = images->set;
  if (d) infer_spare_folder(o, o->data);
  if (d && d->folder) infer_spare_folder(o, d->folder);
  if (!class_results_spare(o->json, &images->inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (d && (!score_file_spares(o, &images->inputs, &err) || !defect_list_spares(o, &images->inputs, &err)))
    die(EXIT_USAGE, "%s", err.msg);
  if (d && run->job->launch.rank == 0 && !infer_take_folder(o, OWN_CLASSES, true, &err))
    die(EXIT_USAGE, "--out: %s", err.msg);
}

static void begin_set(ClassSink *s, const Dataset *d) {
  const size_t images = (size_t)d->num_images;
  s->guesses = top(s->sink.run, d);
  s->label = xcalloc((size_t)s->guesses, sizeof *s->label);
  s->score = xcalloc((size_t)s->guesses, sizeof *s->score);
  s->all = (Classification){.classes = d->classes,
                            .row = xcalloc(images, sizeof *s->all.row),
                            .read = xcalloc(images, sizeof *s->all.read),
                            .left_out = d->num_images + d->bad_images};
}

static void begin(Sink *sink) {
  Err err;
  ClassSink *s = of(sink);
  const char *json = sink->run->o->json;
  InferImages *images = sink->images;
  if (images->set) begin_set(s, images->set);
  if (sink->rank) return;
  if (!class_results_begin(&s->results, json, images->n, &err))
    die(interrupted() ? EXIT_RUN : EXIT_USAGE, "%s", err.msg);
  file_set_add(&images->outputs, s->results.lines.partial ? s->results.lines.partial : json);
  file_set_add(&images->outputs, json);
  if (s->sink.rank == 0 && s->sink.images->set)
    defect_list_open(s->sink.run->o, s->sink.images->set, &(Examination){0});
}

static void commit(Sink *sink) {
  if (sink->rank == 0) class_results_commit(&of(sink)->results);
}

static void keep(Sink *sink) {
  if (sink->rank == 0) class_results_keep(&of(sink)->results);
}

static void abort_sink(Sink *sink) { class_results_abort(&of(sink)->results); }

static void close_sink(Sink *sink) {
  ClassSink *s = of(sink);
  classification_free(&s->all);
  free(s->label);
  free(s->score);
  free(s);
}

// ---- named images ------------------------------------------------------------------------------------------

static void take(Sink *sink, const Decoded *image, const void *results, int in_batch) {
  const maskrcnn_classes *c = networks_result(results, in_batch)->classes;
  text_print(stdout, "%s:", image->path);
  for (int i = 0; i < c->n; i++) text_print(stdout, "%s %s %.4f", i ? "," : "", c->names[i], (double)c->scores[i]);
  fputc('\n', stdout);
  class_results_add(&of(sink)->results, image->path, NULL, c);
  sink->done++;
}

// ---- images of a data set ---- ----------------------------------------------------------------------------------

// Packs the image's index in the data set, and the labels and probabilities of its most probable classes.
static void pack(Sink *sink, int image, const maskrcnn_result *result, ByteBuffer *to) {
  const maskrcnn_classes *c = result->classes;
  const size_t n = (size_t)of(sink)->guesses;
  CHECK(c->n >= of(sink)->guesses);
  byte_buffer_put(to, &image, sizeof image);
  byte_buffer_put(to, c->labels, n * sizeof *c->labels);
  byte_buffer_put(to, c->scores, n * sizeof *c->scores);
}

static void count(ClassSink *s, int image) {
  ClassRow row;
  for (int k = 0; k < TOP_CLASSES; k++) {
    row.top[k] = k < s->guesses ? s->label[k] - 1 : -1;
    row.prob[k] = k < s->guesses ? s->score[k] : 0;
  }
  s->all.row[image] = row;
  s->all.read[image] = true;
  s->all.images++;
  s->all.left_out--;
  s->sink.done++;
}

static void write_line(ClassSink *s, int image) {
  const Dataset *d = s->sink.images->set;
  const Category *category = s->sink.run->category;
  const int n = MIN(s->sink.run->o->top, s->guesses);
  int64_t *id = xmalloc((size_t)n * sizeof *id);
  const char **name = xmalloc((size_t)n * sizeof *name);
  for (int k = 0; k < n; k++) {
    id[k] = category[s->label[k] - 1].id;
    name[k] = category[s->label[k] - 1].name;
  }
  const maskrcnn_classes classes = {.n = n, .scores = s->score, .labels = s->label, .category_ids = id, .names = name};
  class_results_add(&s->results, d->coco.images[d->image[image]].file_name, category[d->object[image].label].name,
                    &classes);
  free(id);
  free((void *)name);
}

static bool unpack(Sink *sink, ByteReader *from, int *image) {
  ClassSink *s = of(sink);
  const Dataset *d = sink->images->set;
  const size_t n = (size_t)s->guesses;
  if (!byte_reader_take(from, image, sizeof *image) || *image < 0 || *image >= d->num_images) return false;
  if (!byte_reader_take(from, s->label, n * sizeof *s->label) ||
      !byte_reader_take(from, s->score, n * sizeof *s->score))
    return false;
  for (int k = 0; k < s->guesses; k++)
    if (s->label[k] < 1 || s->label[k] > d->classes) return false;
  count(s, *image);
  write_line(s, *image);
  return true;
}

static void score(Sink *sink) {
  Err err;
  Metrics m;
  ClassSink *s = of(sink);
  const InferRun *run = sink->run;
  const Dataset *d = sink->images->set;
  const ClassScores scores = classify_score(d, &s->all);
  EvaluationReport r = {0};
  task_classification.report(d, &s->all, 0, &r);
  confusion_print(stdout, &r.confusion);
  printf("\ntop-1 %.2f %%  top-5 %.2f %%  on %lld images", 100.0 * (double)scores.top1 / (double)scores.images,
         100.0 * (double)scores.top5 / (double)scores.images, (long long)scores.images);
  if (s->all.left_out) printf("; %d unreadable images left out", s->all.left_out);
  char known[128];
  const int trained = score_file_trained(run, d, s->all.read, known);
  printf("%s\n", known);
  if (!confusion_write(run->o->out, &r.confusion, &err)) die(EXIT_RUN, "%s", err.msg);
  line_print(stderr, "confusion matrix: %s/confusion.txt and .json", run->o->out);
  if (!task_classification.score(d, &s->all, &m, &err) || !score_file_write(run, &m, trained, &r, &err))
    die(EXIT_RUN, "%s", err.msg);
  line_print(stderr, "page: %s/" SCORES_PAGE, run->o->out);
  report_free(&r);
}

const InferTask infer_classes = {.results = "classes",
                                 .own = OWN_CLASSES,
                                 .fit = fit,
                                 .open = open_sink,
                                 .open_data = open_data,
                                 .top = top,
                                 .plan = plan,
                                 .begin = begin,
                                 .take = take,
                                 .pack = pack,
                                 .unpack = unpack,
                                 .commit = commit,
                                 .keep = keep,
                                 .abort = abort_sink,
                                 .score = score,
                                 .close = close_sink};
