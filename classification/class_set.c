#include "classification/class_set.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "classification/class_results.h"
#include "classification/classify.h"
#include "classification/data/classes.h"
#include "data/coco/confusion.h"
#include "engine/identity.h"
#include "evaluation/rounds.h"
#include "inference/agreement.h"
#include "inference/benchmark.h"
#include "inference/speed.h"
#include "page/score_page.h"

typedef struct ClassSet {
  const InferOptions *o;
  const ModelConfig *config;
  const Dataset *d;
  const Category *category;
  HandleFinder *finder;
  Finder find; // its; nothing but how batches are begun and how many
  Comm *comm;
  int guesses;        // of an image that cross to the first rank
  Classification all; // of the first rank
  ClassResults results;
  Speed speed;
  int images; // of the batch that is unpacked
} ClassSet;

// ---- images -----------------------------------------------------------------------------------------------------

static void start(void *context, const Batch *batch) {
  const ClassSet *s = context;
  s->find.find(s->find.context, batch);
}

// Of a batch its time; of an image its place in the data set, and of its likeliest classes label and probability.
static void compute(void *context, const Batch *batch, Parcel *to) {
  const ClassSet *s = context;
  Taken taken;
  CHECK(handle_finder_take(s->finder, &taken) && taken.batch == batch);
  const double seconds = now_seconds() - taken.started;
  parcel_put(to, &seconds, sizeof seconds);
  for (int i = 0; i < taken.results->n; i++) {
    const maskrcnn_classes *c = taken.results->images[i]->classes;
    CHECK(c->n >= s->guesses);
    parcel_put(to, &batch->index[taken.place[i]], sizeof *batch->index);
    parcel_put(to, c->labels, (size_t)s->guesses * sizeof *c->labels);
    parcel_put(to, c->scores, (size_t)s->guesses * sizeof *c->scores);
  }
}

static void drop(void *context) {
  const ClassSet *s = context;
  for (Taken taken; handle_finder_take(s->finder, &taken);) {
  }
}

static void count(ClassSet *s, int image, const int *label, const float *score) {
  ClassRow row;
  for (int k = 0; k < TOP_CLASSES; k++) {
    row.top[k] = k < s->guesses ? label[k] - 1 : -1;
    row.prob[k] = k < s->guesses ? score[k] : 0;
  }
  s->all.row[image] = row;
  s->all.read[image] = true;
  s->all.images++;
  s->all.left_out--;
  s->images++;
}

static void write_line(ClassSet *s, int image, const int *label, const float *score) {
  const Dataset *d = s->d;
  const int n = MIN(s->o->top, s->guesses);
  const size_t room = (size_t)n;
  int64_t *id = xmalloc(room * sizeof *id);
  const char **name = xmalloc(room * sizeof *name);
  for (int k = 0; k < n; k++) {
    id[k] = s->category[label[k] - 1].id;
    name[k] = s->category[label[k] - 1].name;
  }
  const maskrcnn_classes classes = {.n = n, .scores = score, .labels = label, .category_ids = id, .names = name};
  class_results_add(&s->results, d->coco.images[d->image[image]].file_name, s->category[d->object[image].label].name,
                    &classes);
  free(id);
  free((void *)name);
}

static bool unpack_image(ClassSet *s, Unpacking *from, int *label, float *score) {
  const size_t n = (size_t)s->guesses;
  int image;
  if (!parcel_take(from, &image, sizeof image) || image < 0 || image >= s->d->num_images) return false;
  if (!parcel_take(from, label, n * sizeof *label) || !parcel_take(from, score, n * sizeof *score)) return false;
  for (int k = 0; k < s->guesses; k++)
    if (label[k] < 1 || label[k] > s->d->classes) return false;
  count(s, image, label, score);
  write_line(s, image, label, score);
  return true;
}

static bool unpack(void *context, Unpacking *from) {
  ClassSet *s = context;
  double seconds;
  int *label = xmalloc((size_t)s->guesses * sizeof *label);
  float *score = xmalloc((size_t)s->guesses * sizeof *score);
  bool ok = parcel_take(from, &seconds, sizeof seconds);
  s->images = 0;
  while (ok && from->left) ok = unpack_image(s, from, label, score);
  if (ok) speed_batch(&s->speed, 0, s->images, seconds);
  free(label);
  free(score);
  return ok;
}

// ---- what came of it --------------------------------------------------------------------------------------------

static void report_scores(const ClassSet *s) {
  Err err;
  const Dataset *d = s->d;
  const ClassScores scores = classify_score(d, &s->all);
  const size_t classes = (size_t)d->classes;
  int64_t *matrix = xcalloc(classes * classes, sizeof *matrix);
  const char **name = xcalloc(classes, sizeof *name);
  for (size_t i = 0; i < classes; i++) name[i] = s->category[i].name;
  const Confusion confusion = {.classes = d->classes, .count = matrix, .name = name};
  classify_confusion(d, &s->all, matrix);
  confusion_print(stdout, &confusion);
  printf("\ntop-1 %.2f %%  top-5 %.2f %%  on %lld images", 100.0 * (double)scores.top1 / (double)scores.images,
         100.0 * (double)scores.top5 / (double)scores.images, (long long)scores.images);
  if (s->all.left_out) printf("; %d left out: they cannot be read", s->all.left_out);
  printf("\n");
  if (!confusion_write(s->o->out, &confusion, &err)) die(EXIT_RUN, "%s", err.msg);
  line_print(stderr, "confusion matrix: %s/confusion.txt, .json and .svg", s->o->out);
  Metrics m;
  if (!task_classification.score(d, (void *)&s->all, &m, &err) ||
      !score_page_write(s->o, s->config, d, &s->all, &m, &err))
    die(EXIT_RUN, "%s", err.msg);
  line_print(stderr, "page: %s/" SCORE_PAGE, s->o->out);
  free(matrix);
  free((void *)name);
}

static void report(ClassSet *s, bool complete) {
  (complete ? class_results_commit : class_results_keep)(&s->results);
  speed_print(&s->speed, s->o->batch, s->find.ahead);
  if (complete) report_scores(s);
}

// What all ranks have been told; the first one says it.
_Noreturn static void give_up(ClassSet *s, const Err *err) {
  if (comm_rank(s->comm) > 0) comm_barrier(s->comm); // ends with the first rank
  if (!s->results.images) class_results_abort(&s->results);
  die_unforeseen("%s", err->msg);
}

// Returns the program's exit status.
static int classify_set(ClassSet *s) {
  Err err;
  const bool first = comm_rank(s->comm) == 0;
  const Dataset *d = s->d;
  const size_t images = (size_t)d->num_images;
  s->all = (Classification){.classes = d->classes,
                            .row = xcalloc(images, sizeof *s->all.row),
                            .read = xcalloc(images, sizeof *s->all.read),
                            .left_out = d->num_images + d->bad_images};
  if (first && !class_results_begin(&s->results, s->o->json, d->num_images, &err)) die(EXIT_USAGE, "%s", err.msg);
  const LoaderOptions options = {
      .batch = s->find.images, .threads = s->o->threads, .prefetch = s->find.prefetch, .held = s->find.ahead};
  const RoundWork work = {.context = s,
                          .ahead = s->find.ahead,
                          .start = start,
                          .compute = compute,
                          .drop = drop,
                          .unpack = unpack,
                          .stopped = interrupted};
  const bool complete = rounds_run(s->comm, d, &options, &work, &err);
  if (!complete && *err.msg) give_up(s, &err);
  if (first) report(s, complete);
  classification_free(&s->all);
  return complete ? 0 : EXIT_RUN;
}

// ---- a run ------------------------------------------------------------------------------------------------------

// Training's split again: a part of --data, by the seed of the run that the weights are of.
static void choose_split(ClassOptions *to, const InferOptions *o, const Checkpoint *c) {
  const char *run = ckpt_find_meta(c, "run");
  double fraction = 0, seed = -1;
  if (run && identity_number(run, "val_fraction", &fraction) && fraction > 0) identity_number(run, "split_seed", &seed);
  if (o->split_seed < 0 && seed < 0)
    die(EXIT_USAGE, "--val-fraction: %s is not of a run that held images out; give --split-seed N to draw some",
        o->weights);
  to->val_fraction = o->val_fraction;
  to->seed = (uint64_t)(o->split_seed < 0 ? (int64_t)seed : o->split_seed);
  if (seed < 0)
    fprintf(stderr, "note: the run of %s held no images out, and may have seen these\n", o->weights);
  else if ((double)to->seed != seed || (float)fraction < o->val_fraction)
    fprintf(stderr, "note: the run of %s held others out, by --val-fraction %g --split-seed %.0f\n", o->weights,
            fraction, seed);
}

// With the model's classes, whose numbers are by their names.
static void open_data(Dataset *d, const InferOptions *o, const ModelConfig *config, const Category *category,
                      const Checkpoint *c) {
  Err err;
  const int n = model_names(config);
  Dataset like = {.classes = n};
  like.coco.path = (char *)o->weights;
  like.coco.num_categories = n;
  like.coco.categories = xcalloc((size_t)n, sizeof *like.coco.categories);
  for (int i = 0; i < n; i++) like.coco.categories[i] = (CocoCategory){category[i].id, (char *)category[i].name};
  ClassOptions options = {.size = {config->size, config->size},
                          .view = config->view,
                          .upright = o->exif,
                          .patience = STORAGE_PATIENCE,
                          .limit = o->limit,
                          .like = &like};
  if (o->val_fraction > 0) choose_split(&options, o, c);
  const bool ok = classes_open(d, o->data, o->split, &options, &err);
  free(like.coco.categories);
  if (!ok) die(EXIT_USAGE, "%s", err.msg);
}

static bool same_folder(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// The first rank takes the folder for all. What is written must be none of the files that are read.
static void plan_outputs(const InferOptions *o, const Job *job, const Dataset *d) {
  Err err;
  FileSet inputs = {0};
  if (same_folder(o->out, o->data) || (d->folder && same_folder(o->out, d->folder)))
    die(EXIT_USAGE, "--out %s: that is the folder of the images; give another one", o->out);
  file_set_add(&inputs, o->weights);
  file_set_add(&inputs, d->coco.path);
  for (int i = 0; d->folder && i < d->num_images; i++) {
    char *path = dataset_path(d, i);
    file_set_add(&inputs, path);
    free(path);
  }
  if (!class_results_spare(o->json, &inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (!score_page_spares(o, &inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  file_set_free(&inputs);
  if (job->launch.rank == 0 && !folder_take(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
}

// On the rank's own device; waits for the other ranks, so that the first batch is no one's alone.
static void open_finder(ClassSet *s, const Job *job) {
  Err err;
  InferOptions o = *s->o;
  o.top = s->guesses;
  if (!(s->finder = handle_finder_open(&o, job->device, s->d, &err))) die(err_exit(&err), "%s", err.msg);
  const maskrcnn_description *about = maskrcnn_describe(handle_finder_handle(s->finder));
  if (*about->why_cpu && job->launch.rank == 0)
    fprintf(stderr, "device: %s; not a GPU: %s\n", about->device, about->why_cpu);
  s->find = handle_finder(s->finder, s->category, 0);
  comm_barrier(job->comm);
}

int class_set_run(const InferOptions *o, Job *job, const JobOptions *wanted, const ModelConfig *config,
                  const Category *category, const Checkpoint *c) {
  Err err;
  Dataset d;
  open_data(&d, o, config, category, c);
  if (!o->benchmark) plan_outputs(o, job, &d);
  agreement_check(job->comm, o, config, c, &d);
  job_start(job, wanted);
  ClassSet s = {.o = o,
                .config = config,
                .d = &d,
                .category = category,
                .comm = job->comm,
                .guesses = MIN(MAX(o->top, TOP_CLASSES), d.classes)};
  speed_begin(&s.speed, comm_world(job->comm), "classes");
  open_finder(&s, job);
  speed_opened(&s.speed, now_seconds() - s.speed.begun);
  int status = 0;
  if (!o->benchmark)
    status = classify_set(&s);
  else if (!infer_benchmark(s.finder, o, job->comm, &d, &err))
    die(EXIT_RUN, "%s", err.msg);
  handle_finder_close(s.finder);
  speed_free(&s.speed);
  dataset_close(&d);
  return status;
}
