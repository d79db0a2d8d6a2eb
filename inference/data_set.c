#include "inference/data_set.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "comm/rank_sum.h"
#include "data/coco/choice.h"
#include "engine/detect.h"
#include "evaluation/evaluate.h"
#include "inference/agreement.h"
#include "inference/benchmark.h"
#include "inference/speed.h"
#include "page/score_page.h"

// ---- the folder of a run ----------------------------------------------------------------------------------------

static bool same_folder(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// Where there is such a data set, and not in the midst of its images; a mistyped --data leaves no folder behind.
static void take_folder_for_data(const InferOptions *o) {
  Err err;
  char *annotations, *images;
  if (!coco_find_split(o->data, o->split, &annotations, &images, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (same_folder(o->out, images))
    die(EXIT_USAGE, "--out %s: that is the folder of the images; give another one", o->out);
  if (!folder_take(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
  free(annotations);
  free(images);
}

// The first rank takes the folder for all. Other hosts may have one of their own, for overlays.
static void share_folder(const InferOptions *o, const Job *job) {
  Err err;
  if (job->launch.rank == 0) take_folder_for_data(o);
  comm_barrier(job->comm);
  if (job->launch.rank > 0 && !dirs_make(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
}

// ---- a run ------------------------------------------------------------------------------------------------------

typedef struct Visit {
  Comm *comm;
  Finder finder;
  Findings findings;
  ResultChoice choice; // of what is written and drawn
  Speed speed;
  int canvas, images; // of the batch that is visited
} Visit;

static void visit_image(void *context, const Dataset *d, int i, const CocoResult *found, int n) {
  Visit *v = context;
  const CocoImage *image = &d->coco.images[d->image[i]];
  const ResultImage as_result = {.id = image->id, .file_name = image->file_name, .h = image->h, .w = image->w};
  CocoResult *wanted = memcpy(xmalloc((size_t)n * sizeof *found), found, (size_t)n * sizeof *found);
  findings_record(&v->findings, &as_result, wanted, choice_apply(&v->choice, wanted, n));
  free(wanted);
  v->canvas = d->image_canvas[i];
  v->images++;
}

static void visit_time(void *context, double seconds) {
  Visit *v = context;
  speed_batch(&v->speed, v->canvas, v->images, seconds);
  v->images = 0;
}

static void draw(Visit *v, int i, const Image *image, const Detection *found, int n) {
  DrawItem *items = xcalloc((size_t)n, sizeof *items);
  CocoResult *wanted = xcalloc((size_t)n, sizeof *wanted);
  for (int k = 0; k < n; k++) {
    wanted[k] = evaluate_result(&v->finder, 0, &found[k]);
    wanted[k].image_id = k; // from where the choice moves it
  }
  const int chosen = choice_apply(&v->choice, wanted, n);
  for (int k = 0; k < chosen; k++) {
    const Detection *d = &found[wanted[k].image_id];
    const char *name = v->finder.category[d->label - 1].name;
    items[k] = (DrawItem){d->box[0], d->box[1], d->box[2], d->box[3], name, d->score, &d->mask};
  }
  findings_draw(&v->findings, i, image, items, chosen);
  free(items);
  free(wanted);
}

static void visit_batch(void *context, const Dataset *d, const Batch *b, const Detections *found, int64_t before) {
  Visit *v = context;
  (void)d;
  for (int i = 0, first = 0, n; i < b->images; i++, first += n) {
    for (n = 0; first + n < found->n && found->items[first + n].image == i;) n++;
    if (b->index[i] < 0) continue; // it could not be read
    const ImageInfo *info = &b->info[i];
    const Image image = {.h = info->h, .w = info->w, .rgb = b->bytes + info->offset};
    if (findings_pictures(&v->findings, before++)) draw(v, b->index[i], &image, &found->items[first], n);
  }
}

static void report_scores(const InferOptions *o, const ModelConfig *config, const Dataset *d, Evaluation *all) {
  const Scores *s = &all->scores;
  Metrics m;
  Err err;
  if (!task_detection.score(d, all, &m, &err)) die(EXIT_RUN, "%s", err.msg);
  printf("bbox\n");
  cocoeval_print(stdout, &s->bbox);
  cocoeval_print_categories(stdout, &s->bbox);
  printf("segm\n");
  cocoeval_print(stdout, &s->segm);
  cocoeval_print_categories(stdout, &s->segm);
  printf("bbox AP %.3f  mask AP %.3f  on %d images", s->bbox.stats[0], s->segm.stats[0], all->images);
  if (all->left_out) printf("; %d left out: they cannot be read", all->left_out);
  printf("\n");
  if (!score_page_write(o, config, d, all, &m, &err)) die(EXIT_RUN, "%s", err.msg);
  line_print(stderr, "page: %s/" SCORE_PAGE, o->out);
}

// What all ranks have been told; the first one says it.
_Noreturn static void give_up(Visit *v, const Err *err) {
  if (comm_rank(v->comm) > 0) comm_barrier(v->comm); // ends with the first rank
  if (!v->findings.images) findings_abort(&v->findings);
  die_unforeseen("%s", err->msg);
}

static void report(const InferOptions *o, const ModelConfig *config, const Dataset *d, Evaluation *all, bool complete,
                   Visit *v) {
  (complete ? findings_commit : findings_keep)(&v->findings);
  speed_print(&v->speed, o->batch, v->finder.ahead);
  if (complete && all->left_out)
    fprintf(stderr, "%d of %d images could not be read: left out\n", all->left_out, all->images + all->left_out);
  if (complete && o->eval) report_scores(o, config, d, all);
}

// Returns the program's exit status.
static int find_and_score(const InferOptions *o, const ModelConfig *config, const Dataset *d, const ResultForm *form,
                          Visit *v) {
  Err err;
  Evaluation all;
  const int rank = comm_rank(v->comm);
  if (rank) findings_follow(&v->findings, rank);
  if (!rank && !findings_begin(&v->findings, form, &err)) die(EXIT_USAGE, "%s", err.msg);
  const Visitor visitor = {
      .context = v, .image = visit_image, .took = visit_time, .batch = visit_batch, .stopped = interrupted};
  memory_for("the results of an evaluation", "--limit");
  const bool complete = evaluate_with(&v->finder, v->comm, d, o->threads, &visitor, &all, &err);
  memory_for(NULL, NULL);
  if (!complete && *err.msg) give_up(v, &err);
  v->findings.failed = (int)rank_sum(v->comm, v->findings.failed);
  const bool failed = v->findings.failed;
  if (rank)
    findings_leave(&v->findings);
  else
    report(o, config, d, &all, complete, v);
  evaluation_free(&all);
  return complete && !failed ? 0 : EXIT_RUN;
}

// What is written must be none of the files that are read.
static void plan_outputs(const InferOptions *o, const Dataset *d, Findings *f) {
  Err err;
  FileSet inputs = {0};
  file_set_add(&inputs, o->weights);
  file_set_add(&inputs, d->coco.path);
  const char **files = xmalloc((size_t)d->num_images * sizeof *files);
  for (int i = 0; i < d->num_images; i++) {
    char *path = dataset_path(d, i);
    file_set_add(&inputs, path);
    free(path);
    files[i] = d->coco.images[d->image[i]].file_name;
  }
  if (o->eval && !score_page_spares(o, &inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!findings_open(f, o->json, o->out, o->overlays < 0 ? 16 : o->overlays, files, d->num_images, &inputs, &err))
    die(EXIT_USAGE, "%s", err.msg);
  free(files);
  file_set_free(&inputs);
}

// On the rank's own device; waits for the other ranks, so that the first batch is no one's alone.
static HandleFinder *open_finder(const InferOptions *o, const Job *job, const Dataset *d) {
  Err err;
  HandleFinder *f = handle_finder_open(o, job->device, d, &err);
  if (!f) die(err_exit(&err), "%s", err.msg);
  const maskrcnn_description *about = maskrcnn_describe(handle_finder_handle(f));
  if (*about->why_cpu && job->launch.rank == 0)
    fprintf(stderr, "device: %s; not a GPU: %s\n", about->device, about->why_cpu);
  comm_barrier(job->comm);
  return f;
}

// All that ranks have in common is set up before they are forked.
int data_set_run(const InferOptions *o, Job *job, const JobOptions *wanted, const ModelConfig *config,
                 const Category *category, const Checkpoint *c, const ResultForm *form) {
  Err err;
  Dataset d;
  DatasetOptions options = {.resize = resize_of(config),
                            .patience = STORAGE_PATIENCE,
                            .upright = o->exif,
                            .max_canvases = o->canvases,
                            .keep_empty = true,
                            .limit = o->limit,
                            .index = o->benchmark ? NULL : o->out};
  Visit visit = {0};
  if (!choice_open(&visit.choice, o->classes, o->top, &form->classes, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!o->benchmark) share_folder(o, job);
  if (!dataset_open(&d, o->data, o->split, &options, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!o->benchmark) plan_outputs(o, &d, &visit.findings);
  agreement_check(job->comm, o, config, c, &d);
  job_start(job, wanted);
  speed_begin(&visit.speed, comm_world(job->comm), "masks");
  HandleFinder *finder = open_finder(o, job, &d);
  if (o->eval && !evaluate_categories(category, config->classes - 1, &d, &err)) die(EXIT_USAGE, "%s", err.msg);
  speed_opened(&visit.speed, now_seconds() - visit.speed.begun);
  visit.comm = job->comm;
  visit.finder = handle_finder(finder, category, config->box_extra);
  int status = 0;
  if (!o->benchmark)
    status = find_and_score(o, config, &d, form, &visit);
  else if (!infer_benchmark(finder, o, job->comm, &d, &err))
    die(EXIT_RUN, "%s", err.msg);
  handle_finder_close(finder);
  speed_free(&visit.speed);
  choice_close(&visit.choice);
  dataset_close(&d);
  return status;
}
