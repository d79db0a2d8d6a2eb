#include "inference/loose.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "include/maskrcnn.h"
#include "inference/extras.h"
#include "inference/handles.h"
#include "inference/start.h"
#include "inference/stream.h"

typedef struct Loose {
  const InferOptions *o;
  const ModelConfig *config;
  Sources *sources;
  Handles *handles;
  Findings findings;
  Extras extras;
  Speed speed;
  FileSet inputs, outputs;
  int bad; // images
} Loose;

// What is wrong is wrong for every image.
static NORETURN void refuse(Loose *l, int code, const char *message) {
  if (!l->findings.images) findings_abort(&l->findings);
  die(code, "%s", message);
}

// ---- images -----------------------------------------------------------------------------------------------------

// What was found in an image, as result files and overlays have it. Masks are borrowed, unless tiles have been joined.
typedef struct Kept {
  CocoResult *result; // [n]
  DrawItem *item;     // [n]
  int n;
  CocoResults joined; // which has the results; none: they are the struct's own
} Kept;

static CocoResult *results_of(const Loose *l, const maskrcnn_detections *d) {
  CocoResult *result = xcalloc((size_t)d->n, sizeof *result);
  const double extra = (double)l->config->box_extra;
  for (int i = 0; i < d->n; i++) {
    const float *box = d->boxes + 4 * i;
    const maskrcnn_rle *m = d->masks[i];
    const Rle rle = {.h = m->height, .w = m->width, .n = m->num_counts, .runs = (uint32_t *)m->counts};
    result[i] = (CocoResult){.category_id = d->category_ids[i],
                             .bbox = {box[0], box[1], (double)box[2] - box[0] + extra, (double)box[3] - box[1] + extra},
                             .score = d->scores[i],
                             .has_bbox = true,
                             .has_segm = true,
                             .rle = rle};
  }
  return result;
}

static CocoResults join_tiles(const Loose *l, const void *results, int h, int w) {
  const TilePlan plan = handles_tiles(l->o, h, w);
  const int tiles = tiles_count(&plan);
  TileFound *found = xcalloc((size_t)tiles, sizeof *found);
  for (int i = 0; i < tiles; i++) {
    const maskrcnn_detections *d = handles_result(results, i)->detections;
    found[i] = (TileFound){.tile = tiles_at(&plan, i), .items = results_of(l, d), .n = d->n};
  }
  const CocoResults joined = tiles_merge(found, tiles, h, w);
  for (int i = 0; i < tiles; i++) free((void *)found[i].items);
  free(found);
  return joined;
}

// Those that are wanted.
static Kept found_in(const Loose *l, const Decoded *image, const void *results, int in_batch) {
  Kept f = {0};
  const Image *im = &image->image;
  const double extra = (double)l->config->box_extra;
  if (handles_tiled(l->o, im->h, im->w)) {
    f.joined = join_tiles(l, results, im->h, im->w);
    f.result = f.joined.items;
    f.n = f.joined.n;
  } else {
    const maskrcnn_detections *d = handles_result(results, in_batch)->detections;
    f.result = results_of(l, d);
    f.n = d->n;
  }
  f.n = choice_apply(&l->extras.choice, f.result, f.n);
  f.item = xcalloc((size_t)f.n, sizeof *f.item);
  for (int i = 0; i < f.n; i++) {
    CocoResult *r = &f.result[i];
    r->image_id = image->place + 1;
    f.item[i] = (DrawItem){.x1 = (float)r->bbox[0],
                           .y1 = (float)r->bbox[1],
                           .x2 = (float)(r->bbox[0] + r->bbox[2] - extra),
                           .y2 = (float)(r->bbox[1] + r->bbox[3] - extra),
                           .label = result_class_name(&l->findings.results.classes, r->category_id),
                           .score = (float)r->score,
                           .mask = &r->rle};
  }
  return f;
}

static void found_free(Kept *f) {
  free(f->item);
  if (f->joined.items)
    coco_results_free(&f->joined);
  else
    free(f->result);
}

static bool keeps(void *context, const Decoded *image) {
  (void)image;
  const Loose *l = context;
  return l->extras.cuts || findings_pictures(&l->findings, l->findings.images);
}

static void draw(Loose *l, const Decoded *image, const Kept *f) {
  if (sources_has_list(l->sources))
    findings_picture(&l->findings, image->path, image->place + 1, &l->inputs, &image->image, f->item, f->n);
  else
    findings_draw(&l->findings, (int)image->place, &image->image, f->item, f->n);
}

static void write_extras(Loose *l, const Decoded *image, const Kept *f) {
  const bool list = sources_has_list(l->sources);
  char *name =
      list ? overlays_numbered(image->path, image->place + 1) : overlays_name(&l->findings.overlays, (int)image->place);
  extras_write(&l->extras, name, &image->image, f->result, f->n);
  free(name);
}

// A list may name a file that the results would replace.
static void note_listed(Loose *l, const char *path) {
  Err err;
  if (!file_set_spares(&l->outputs, path, &err)) refuse(l, EXIT_USAGE, err.msg);
  if (findings_pictures(&l->findings, l->findings.images)) file_set_add(&l->inputs, path);
}

static void visit(void *context, const Decoded *image, const void *results, int in_batch) {
  Loose *l = context;
  if (handles_result(results, in_batch)->kind != MASKRCNN_DETECTIONS)
    refuse(l, EXIT_USAGE, "the weights are of a model that finds no objects");
  if (sources_has_list(l->sources)) note_listed(l, image->path);
  Kept f = found_in(l, image, results, in_batch);
  line_print(stdout, "%s: %d detections, %d above %.2f", image->path, f.n, findings_shown(f.item, f.n),
             SHOWN_PERCENT / 100.0);
  const bool drawn = findings_pictures(&l->findings, l->findings.images);
  const ResultImage as_result = {
      .id = image->place + 1, .file_name = image->path, .h = image->image.h, .w = image->image.w};
  findings_record(&l->findings, &as_result, f.result, f.n);
  if (drawn) draw(l, image, &f);
  if (l->extras.maps || l->extras.cuts) write_extras(l, image, &f);
  found_free(&f);
}

static void visit_bad(void *context, const Decoded *image, const Err *why) {
  Loose *l = context;
  Err err = *why;
  if (!image->wrong) err_set(&err, "%s: %s", image->path, why->msg);
  if (l->findings.total == 1) refuse(l, EXIT_USAGE, err.msg);
  line_print(stderr, "%s", err.msg);
  l->bad++;
}

static void visit_time(void *context, int group, int images, double seconds) {
  Loose *l = context;
  speed_batch(&l->speed, handles_shape(l->handles, group), images, seconds);
}

// ---- a run ------------------------------------------------------------------------------------------------------

// Which files are read and written; nothing of it is, yet.
static void plan_files(Loose *l) {
  Err err;
  const InferOptions *o = l->o;
  int named;
  const char *const *files = sources_files(l->sources, &named);
  const bool list = sources_has_list(l->sources), all = !list && named == o->num_images;
  file_set_add(&l->inputs, o->weights);
  for (int i = 0; i < named; i++) file_set_add(&l->inputs, files[i]);
  const int pictures = o->overlays >= 0 ? o->overlays : all ? named : 16;
  if (!findings_open(&l->findings, o->json, o->out, pictures, files, list ? 0 : named, &l->inputs, &err))
    die(EXIT_USAGE, "%s", err.msg);
  file_set_add(&l->outputs, o->json);
}

// Returns whether all images were visited.
static bool stream(Loose *l, int batch) {
  Err err;
  const StreamVisitor visitor = {
      .context = l, .keeps = keeps, .image = visit, .bad = visit_bad, .took = visit_time, .stopped = interrupted};
  l->handles = handles_open(l->o, l->config, batch, &l->speed, interrupted);
  const Runner runner = handles_runner(l->handles);
  Decoders *d = start_decoders(l->o, l->sources, l->findings.total, batch);
  const bool complete = stream_run(d, &runner, &visitor, &err);
  if (!complete && *err.msg) {
    if (!l->findings.images) refuse(l, handles_exit(l->handles), err.msg);
    findings_context(&l->findings, "");
    die_unforeseen("%s", err.msg);
  }
  l->speed.decoders = decoders_yield(d);
  decoders_close(d);
  handles_close(l->handles);
  return complete;
}

int loose_run(const InferOptions *o, const ModelConfig *config, const ResultForm *form) {
  Err err;
  Loose l = {.o = o, .config = config};
  if (!(l.sources = sources_open(o->images, o->num_images, STDIN_FILENO, &err))) die(EXIT_USAGE, "%s", err.msg);
  plan_files(&l);
  int named;
  sources_files(l.sources, &named);
  speed_begin(&l.speed, 1, "masks");
  const int batch = start_batch_of(o, named, sources_has_list(l.sources));
  if (!folder_take(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
  if (!extras_open(&l.extras, o, &form->classes, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!findings_begin(&l.findings, form, &err)) die(EXIT_USAGE, "%s", err.msg);
  setvbuf(stdout, NULL, _IOLBF, 0); // lines go out as images are done, to pipes, too
  const bool complete = stream(&l, batch);
  const int images = l.findings.images;
  if (complete && !images && !l.bad) refuse(&l, EXIT_USAGE, "the list on standard input names no image");
  if (complete && !images) refuse(&l, EXIT_USAGE, "none of the images can be used");
  (complete ? findings_commit : findings_keep)(&l.findings);
  if (complete) fprintf(stderr, "image_id is an image's place in the order in which they were named\n");
  speed_print(&l.speed, batch, HANDLES_UNDER_WAY);
  speed_free(&l.speed);
  const bool failed = l.findings.failed || l.extras.failed;
  extras_close(&l.extras);
  sources_close(l.sources);
  file_set_free(&l.inputs);
  file_set_free(&l.outputs);
  if (l.bad) die(EXIT_USAGE, "%d of %d images left out", l.bad, images + l.bad);
  return complete && !failed ? 0 : EXIT_RUN;
}
