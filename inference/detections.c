#include "inference/detections.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "base/run_folder.h"
#include "data/batches/detection_limit.h"
#include "data/coco/choice.h"
#include "data/coco/layout.h"
#include "data/coco/mask_forms.h"
#include "data/pictures/draw_name.h"
#include "data/survey/examination.h"
#include "engine/categories.h"
#include "engine/identity.h"
#include "evaluation/evaluate.h"
#include "evaluation/gathered.h"
#include "evaluation/task.h"
#include "inference/defect_list.h"
#include "inference/detection_output.h"
#include "inference/extras.h"
#include "inference/held_out.h"
#include "inference/networks.h"
#include "inference/score_file.h"

typedef struct DetectionSink {
  Sink sink; // first, so that its address is the sink's
  ResultForm form;
  ResultClass *classes; // listed in the result form
  char **drawn;         // their names on overlays
  ResultChoice choice;  // for results and number of pictures alike
  DetectionOutput output;
  Extras extras;
  Evaluation all;       // of a data set; on rank 0
  Examination examined; // of the ground truth
  // Number of images checked for that with as many detections as the limit, in one tile or in the whole image.
  int at_limit;
  int looked_at; // images
  HeldOut held;
} DetectionSink;

static DetectionSink *of(Sink *s) { return (DetectionSink *)s; }

// ---- options ----------------------------------------------------------------------------------------------------

static void fit(InferOptions *o, const ModelConfig *config) {
  (void)config;
  o->json =
      o->json ? xstrdup(o->json) : xasprintf("%s/detections.json%s", o->out, o->format == RESULTS_JSONL ? "l" : "");
}

// Detections without masks.
static void fit_boxes(InferOptions *o, const ModelConfig *config) {
  const struct {
    bool given;
    const char *option;
  } masks[] = {{o->polygons, "polygons"}, {o->labels, "labels"}, {o->crop_alpha, "crop-alpha"}};
  for (int i = 0; i < COUNT(masks); i++)
    if (masks[i].given)
      die(EXIT_USAGE, "--%s needs masks, but %s holds a %s, which finds boxes only: leave it out", masks[i].option,
          o->weights, model_of(config)->name);
  fit(o, config);
}

// ---- the data set -----------------------------------------------------------------------------------------------

// Called after the data set is known to exist, but before its images are processed: a mistyped --data leaves no folder
// behind.
static void take_folder(const InferRun *run, const HeldOut *held) {
  Err err;
  CocoLayout layout;
  const InferOptions *o = run->o;
  if (!coco_layout_find(&layout, o->data, held->split, o->val_json, o->val_images, &err))
    held_out_die_absent(held, run, err.msg);
  for (int i = 0; i < layout.folders; i++) // of several, the data set's own folder may be the results', too
    if (layout.folders == 1 || strcmp(layout.folder[i], layout.root)) infer_spare_folder(o, layout.folder[i]);
  if (!infer_take_folder(o, OWN_RESULTS, o->eval, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
  coco_layout_free(&layout);
}

// Rank 0 takes the folder for all ranks. Other hosts may have their own, for overlays.
static void share_folder(const InferRun *run, const HeldOut *held) {
  Err err;
  const int rank = run->job->launch.rank;
  if (rank == 0) take_folder(run, held);
  comm_barrier(run->job->comm);
  if (rank > 0 && !dirs_make(run->o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
}

// Whether training had --classes.
static bool trained_on_some(const InferRun *run) {
  const char *identity = ckpt_find_meta(run->weights, "run");
  char *list = identity ? identity_text(identity, "classes") : NULL;
  const bool is = list != NULL;
  free(list);
  return is;
}

// Maps the data set's objects to the model's categories.
static void take_categories(const InferRun *run, Dataset *d) {
  Err err;
  const CategoryList known = categories_of_model(run->category, model_names(run->config), run->o->weights);
  if (!dataset_take_categories(d, &known, &err)) die(EXIT_USAGE, "%s", err.msg);
  free((void *)known.item);
  if (run->job->launch.rank == 0) dataset_print_notes(d, stderr);
}

// Examines the ground truth.
static void examine(DetectionSink *s, const Dataset *d) {
  Err err;
  const InferOptions *o = s->sink.run->o;
  if (!mask_forms_check(&d->coco, &err)) die(EXIT_USAGE, "%s", err.msg);
  examination_take(&s->examined, o->split, true, d, NULL);
  if (o->strict && !examination_passes(&s->examined, &err)) die(EXIT_USAGE, "%s", err.msg);
}

static void open_data(Sink *sink, Dataset *d) {
  Err err;
  const InferRun *run = sink->run;
  const InferOptions *o = run->o;
  DatasetOptions options = {.resize = resize_of(run->config),
                            .patience = STORAGE_PATIENCE,
                            .exif = (ExifChoice)o->exif,
                            .boxes = (MeasureChoice)o->boxes,
                            .areas = (MeasureChoice)o->areas,
                            .crowd = (CrowdChoice)o->crowd,
                            .max_canvases = o->canvases,
                            .strict = o->strict,
                            .keep_empty = true,
                            .limit = o->limit,
                            .json = o->val_json,
                            .images = o->val_images,
                            .index = o->benchmark ? NULL : o->out};
  HeldOut *held = &of(sink)->held;
  const CategoryList known = categories_of_model(run->category, model_names(run->config), run->o->weights);
  if (trained_on_some(run)) options.only = &known;
  held_out_find(held, run);
  options.holdout = held->use;
  if (!o->benchmark) share_folder(run, held);
  if (!dataset_open(d, o->data, held->split, &options, &err)) held_out_die(held, run, err.msg);
  free((void *)known.item);
  held_out_print(held, run, d->num_images);
  if (o->eval) take_categories(run, d);
  if (o->eval) examine(of(sink), d);
  if (o->eval) sink->images->turned = of(sink)->examined.defects.turned;
}

static int top(const InferRun *run, const Dataset *d) {
  (void)run;
  (void)d;
  return 0;
}

// ---- the sink ---------------------------------------------------------------------------------------------------

static Sink *open_sink(const InferRun *run) {
  Err err;
  const InferOptions *o = run->o;
  const int n = model_names(run->config);
  DetectionSink *s = xcalloc(1, sizeof *s);
  s->classes = xcalloc((size_t)n, sizeof *s->classes);
  s->drawn = xcalloc((size_t)n, sizeof *s->drawn);
  for (int i = 0; i < n; i++) {
    s->classes[i] = (ResultClass){run->category[i].id, run->category[i].name};
    s->drawn[i] = draw_name(s->classes[i].name, s->classes[i].id);
  }
  s->form = (ResultForm){.format = (ResultFormat)o->format, .polygons = o->polygons, .classes = {s->classes, n}};
  if (!choice_open(&s->choice, o->classes, o->top, infer_reported_from(o), &s->form.classes, &err))
    die(EXIT_USAGE, "%s", err.msg);
  return &s->sink;
}

static void plan(Sink *sink) {
  enum { OF_MANY = 16 }; // pictures
  Err err;
  DetectionSink *s = of(sink);
  const InferOptions *o = sink->run->o;
  InferImages *images = sink->images;
  const int pictures = o->overlays >= 0 ? o->overlays : images->each_named ? images->n : OF_MANY;
  if (o->eval && !score_file_spares(o, &images->inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (images->set && !defect_list_spares(o, &images->inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!detection_output_open(&s->output, o->json, o->out, pictures, infer_shown_from(o), images->file, images->n,
                             &images->inputs, &err))
    die(EXIT_USAGE, "%s", err.msg);
  file_set_add(&images->outputs, o->json);
}

// Called when all options have been checked.
static void report_defects(const DetectionSink *s, const Dataset *d) {
  examination_print(&s->examined, stderr);
  defect_list_open(s->sink.run->o, d, &s->examined);
}

// Notes images with as many objects as the limit on detections.
static void say_limit(const InferRun *run, const Dataset *d) {
  char *text = detection_limit_data(d, run->config->detections);
  if (text) line_print(stderr, "%s: %s", run->o->split, text);
  free(text);
}

static void begin(Sink *sink) {
  Err err;
  DetectionSink *s = of(sink);
  const Dataset *d = sink->images->set;
  if (d) evaluation_begin(&s->all, d, sink->run->config, sink->rank == 0);
  if (sink->rank) {
    detection_output_follow(&s->output, sink->rank);
    return;
  }
  if (!extras_open(&s->extras, sink->run->o, &s->form.classes, &err) ||
      !detection_output_begin(&s->output, &s->form, &err))
    die(interrupted() ? EXIT_RUN : EXIT_USAGE, "%s", err.msg);
  if (d) report_defects(s, d);
  if (sink->run->o->eval) say_limit(sink->run, d);
}

static void count_failed(DetectionSink *s) { s->sink.failed = s->output.failed + s->extras.failed; }

static void commit(Sink *sink) {
  DetectionSink *s = of(sink);
  const Dataset *d = sink->images->set;
  if (sink->rank) {
    detection_output_leave(&s->output);
    return;
  }
  if (d) evaluation_end(&s->all, d);
  const int limit = sink->run->config->detections;
  char *note = detection_limit_results(s->at_limit, s->looked_at, limit, 0);
  s->output.failed = sink->failed - s->extras.failed; // of all ranks
  detection_output_commit(&s->output);
  if (note) line_print(stderr, "%s", note);
  free(note);
  if (!d) fprintf(stderr, "image_id counts the images in the order in which they were named, from 1\n");
}

static void keep(Sink *sink) { (sink->rank ? detection_output_leave : detection_output_keep)(&of(sink)->output); }

static void abort_sink(Sink *sink) { detection_output_abort(&of(sink)->output); }

static void close_sink(Sink *sink) {
  DetectionSink *s = of(sink);
  extras_close(&s->extras);
  held_out_free(&s->held);
  evaluation_free(&s->all);
  examination_free(&s->examined);
  choice_close(&s->choice);
  for (int i = 0; i < s->form.classes.n; i++) free(s->drawn[i]);
  free(s->drawn);
  free(s->classes);
  free(s);
}

// ---- results ----------------------------------------------------------------------------------------------------

// The detections of an image or a tile, as result files have them; masks are borrowed. The caller frees them.
static CocoResult *results_of(const Sink *sink, int64_t image_id, const maskrcnn_detections *d) {
  CocoResult *result = xcalloc((size_t)d->n, sizeof *result);
  const double extra = (double)sink->run->config->box_extra;
  for (int i = 0; i < d->n; i++) {
    const float *box = d->boxes + 4 * i;
    const maskrcnn_rle *m = d->masks[i];
    const Rle rle = {.h = m->height, .w = m->width, .n = m->num_counts, .runs = (uint32_t *)m->counts};
    result[i] = (CocoResult){.image_id = image_id,
                             .category_id = d->category_ids[i],
                             .bbox = {box[0], box[1], (double)box[2] - box[0] + extra, (double)box[3] - box[1] + extra},
                             .score = d->scores[i],
                             .has_bbox = true,
                             .has_segm = m->num_counts > 0,
                             .rle = rle};
  }
  return result;
}

// The first n detections as overlays show them. With a single class its name says nothing. The caller frees them.
static DrawItem *items_of(const DetectionSink *s, const CocoResult *found, int n) {
  DrawItem *item = xcalloc((size_t)n, sizeof *item);
  const ResultClasses *classes = &s->form.classes;
  const double extra = (double)s->sink.run->config->box_extra;
  for (int i = 0; i < n; i++) {
    const CocoResult *r = &found[i];
    const int k = result_class_index(classes, r->category_id);
    item[i] = (DrawItem){.x1 = (float)r->bbox[0],
                         .y1 = (float)r->bbox[1],
                         .x2 = (float)(r->bbox[0] + r->bbox[2] - extra),
                         .y2 = (float)(r->bbox[1] + r->bbox[3] - extra),
                         .label = classes->n > 1 && k >= 0 ? s->drawn[k] : "",
                         .score = (float)r->score,
                         .mask = r->has_segm ? &r->rle : NULL,
                         .colour = s->sink.run->o->colour == COLOUR_CLASS ? MAX(k, 0) : i};
  }
  return item;
}

// Whether an image's n detections, by descending score, reach the limit. If the last one is below --score, no requested
// detection is cut off.
static bool reaches_limit(const Sink *sink, const CocoResult *found, int n) {
  return n >= sink->run->config->detections && found[n - 1].score >= (double)infer_reported_from(sink->run->o);
}

static void count_image(DetectionSink *s, bool at_limit) {
  s->at_limit += at_limit;
  s->looked_at++;
}

// ---- images that are named --------------------------------------------------------------------------------------

static CocoResults join_tiles(DetectionSink *s, int64_t image_id, const void *results, int h, int w) {
  const TilePlan plan_of_tiles = networks_tiles(s->sink.run->o, h, w);
  const int tiles = tiles_count(&plan_of_tiles);
  TileDetections *found = xcalloc((size_t)tiles, sizeof *found);
  bool at_limit = false;
  for (int i = 0; i < tiles; i++) {
    const maskrcnn_detections *d = networks_result(results, i)->detections;
    found[i] =
        (TileDetections){.tile = tiles_at(&plan_of_tiles, i), .items = results_of(&s->sink, image_id, d), .n = d->n};
    at_limit |= reaches_limit(&s->sink, found[i].items, found[i].n);
  }
  count_image(s, at_limit);
  const CocoResults joined = tiles_merge(found, tiles, h, w);
  for (int i = 0; i < tiles; i++) free((void *)found[i].items);
  free(found);
  for (int i = 0; i < joined.n; i++) joined.items[i].image_id = image_id;
  return joined;
}

static bool looks(const Sink *sink) {
  const DetectionSink *s = (const DetectionSink *)sink;
  return s->extras.cuts || detection_output_pictures(&s->output, s->output.images);
}

// Whether the image comes from a list, so that it was not known in advance.
static bool is_listed(const Sink *sink) { return sink->images->n == 0; }

static void draw_image(DetectionSink *s, const Decoded *image, const DrawItem *item, int n) {
  InferImages *images = s->sink.images;
  if (is_listed(&s->sink))
    detection_output_picture(&s->output, image->path, image->number + 1, &images->inputs, &image->image, item, n);
  else
    detection_output_draw(&s->output, (int)image->number, &image->image, item, n);
}

static void write_extras(DetectionSink *s, const Decoded *image, const CocoResult *found, int n) {
  char *name = is_listed(&s->sink) ? overlays_numbered(image->path, image->number + 1)
                                   : overlays_name(&s->output.overlays, (int)image->number);
  extras_write(&s->extras, name, &image->image, found, n);
  free(name);
}

// Writes the requested detections of an image.
static void write_detections(DetectionSink *s, const Decoded *image, const CocoResult *found, int n) {
  DetectionOutput *f = &s->output;
  const int shown = detection_output_shown(f, found, n);
  DrawItem *item = items_of(s, found, shown);
  line_print(stdout, "%s: %d detections, %d above %.2f", image->path, n, shown, f->shown_from);
  const bool drawn = detection_output_pictures(f, f->images);
  const ResultImage as_result = {
      .id = image->number + 1, .file_name = image->path, .h = image->image.h, .w = image->image.w};
  if (drawn && is_listed(&s->sink)) file_set_add(&s->sink.images->inputs, image->path);
  detection_output_record(f, &as_result, found, n);
  if (s->extras.maps || s->extras.cuts) write_extras(s, image, found, n);
  if (drawn) draw_image(s, image, item, shown); // over the image's own pixels
  free(item);
}

static void take(Sink *sink, const Decoded *image, const void *results, int in_batch) {
  DetectionSink *s = of(sink);
  const Image *im = &image->image;
  const int64_t id = image->number + 1;
  if (networks_tiled(sink->run->o, im->h, im->w)) {
    CocoResults joined = join_tiles(s, id, results, im->h, im->w);
    write_detections(s, image, joined.items, choice_apply(&s->choice, joined.items, joined.n));
    coco_results_free(&joined);
  } else {
    const maskrcnn_detections *d = networks_result(results, in_batch)->detections;
    CocoResult *found = results_of(sink, id, d);
    count_image(s, reaches_limit(sink, found, d->n));
    write_detections(s, image, found, choice_apply(&s->choice, found, d->n));
    free(found);
  }
  sink->done++;
  count_failed(s);
}

// ---- images of a data set ---------------------------------------------------------------------------------------

static const CocoImage *image_of(const Sink *sink, int image) {
  const Dataset *d = sink->images->set;
  return &d->coco.images[d->image[image]];
}

static void pack(Sink *sink, int image, const maskrcnn_result *result, ByteBuffer *to) {
  CocoResult *found = results_of(sink, image_of(sink, image)->id, result->detections);
  gathered_put(to, image, found, result->detections->n);
  free(found);
}

static void record(DetectionSink *s, int i, const CocoResult *found, int n) {
  const CocoImage *image = image_of(&s->sink, i);
  const ResultImage as_result = {.id = image->id, .file_name = image->file_name, .h = image->h, .w = image->w};
  CocoResult *wanted = memcpy(xmalloc((size_t)n * sizeof *found), found, (size_t)n * sizeof *found);
  detection_output_record(&s->output, &as_result, wanted, choice_apply(&s->choice, wanted, n));
  free(wanted);
}

// Keeps those of n detections that training also scores; frees the others.
static int keep_scored(const InferRun *run, CocoResult *found, int n) {
  int kept = 0;
  for (int i = 0; i < n; i++)
    if (found[i].score > run->scored_from)
      found[kept++] = found[i];
    else
      rle_free(&found[i].rle);
  return kept;
}

static bool unpack(Sink *sink, ByteReader *from, int *image) {
  DetectionSink *s = of(sink);
  CocoResult *found;
  int n;
  if (!gathered_take(from, sink->images->set->num_images, image, &found, &n)) return false;
  record(s, *image, found, n);
  count_image(s, reaches_limit(sink, found, n));
  evaluation_add(&s->all, *image, found, keep_scored(sink->run, found, n));
  sink->done++;
  return true;
}

static void draw(Sink *sink, int image, const Image *pixels, const maskrcnn_result *result, int64_t before) {
  DetectionSink *s = of(sink);
  if (!detection_output_pictures(&s->output, before)) return;
  CocoResult *found = results_of(sink, 0, result->detections);
  const int n = detection_output_shown(&s->output, found, choice_apply(&s->choice, found, result->detections->n));
  DrawItem *item = items_of(s, found, n);
  detection_output_draw(&s->output, image, pixels, item, n);
  free(item);
  free(found);
  count_failed(s);
}

static void print_scores(const Evaluation *all, const Metrics *m, const char *known) {
  const Scores *s = &all->scores;
  if (scores_defined(s)) {
    for (int k = 0; k < s->n; k++) {
      printf("%s\n", iou_types[s->of[k].type]);
      cocoeval_print(stdout, &s->of[k], "-");
      cocoeval_print_categories(stdout, &s->of[k]);
    }
    printf("%s  on %d images", m->summary, all->images);
  } else {
    printf("%s", m->summary);
  }
  if (all->left_out) printf("; %d unreadable images left out", all->left_out);
  printf("%s\n", known);
  fflush(stdout); // before what stderr says next
}

static void score(Sink *sink) {
  Err err;
  Metrics m;
  const InferRun *run = sink->run;
  const Dataset *d = sink->images->set;
  Evaluation *all = &of(sink)->all;
  if (all->left_out)
    line_print(stderr, "%d of %d images left out because they could not be read; %s lists them", all->left_out,
               all->images + all->left_out, bad_images_path(d->bad));
  if (!run->o->eval) return;
  const Task *task = model_of(run->config)->task;
  if (!task->score(d, all, &m, &err)) die(EXIT_RUN, "%s", err.msg);
  char known[128];
  const int trained = score_file_trained(run, d, all->read, known);
  print_scores(all, &m, known);
  EvaluationReport r = {0};
  task->report(d, all, score_file_least, &r);
  if (!score_file_write(run, &m, trained, &r, &err)) die(EXIT_RUN, "%s", err.msg);
  report_free(&r);
  line_print(stderr, "page: %s/" SCORES_PAGE, run->o->out);
}

#define DETECTION_SINK                                                                                                 \
  .own = OWN_RESULTS, .open = open_sink, .open_data = open_data, .top = top, .plan = plan, .begin = begin,             \
  .looks = looks, .take = take, .pack = pack, .unpack = unpack, .draw = draw, .commit = commit, .keep = keep,          \
  .abort = abort_sink, .score = score, .close = close_sink
const InferTask infer_detections = {DETECTION_SINK, .results = "masks", .fit = fit};
const InferTask infer_boxes = {DETECTION_SINK, .results = "boxes", .fit = fit_boxes};
