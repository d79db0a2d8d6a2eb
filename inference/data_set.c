#include "inference/data_set.h"
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "comm/rank_sum.h"
#include "data/survey/ranges.h"
#include "evaluation/distribute.h"
#include "inference/agreement.h"
#include "inference/annotation_choices.h"
#include "inference/batches.h"
#include "inference/benchmark.h"
#include "inference/networks.h"
#include "inference/orientation.h"
#include "inference/stop_limit.h"

typedef struct SetRun {
  const InferRun *run;
  const InferTask *task;
  const Dataset *d;
  InferImages images;
  Sink *sink;
  BatchQueue queue;
  QueuedBatch *batch; // the batch that this rank packed last
  Speed speed;
} SetRun;

// ---- batches ----------------------------------------------------------------------------------------------------

static void start(void *context, const Batch *batch) {
  SetRun *s = context;
  batches_begin(&s->queue, batch);
}

static void take_next(SetRun *s, const Batch *batch) {
  queue_release(&s->queue, s->batch);
  s->batch = batches_next(&s->queue);
  CHECK(!batch || s->batch->owner == batch);
}

// Packs a batch: its time, and the results of its images.
static void compute(void *context, const Batch *batch, ByteBuffer *to) {
  SetRun *s = context;
  take_next(s, batch);
  byte_buffer_put(to, &s->batch->seconds, sizeof s->batch->seconds);
  for (int i = 0, n = 0; i < batch->images; i++)
    if (batch->index[i] >= 0) s->task->pack(s->sink, batch->index[i], networks_result(s->batch->results, n++), to);
}

static void drop(void *context) {
  SetRun *s = context;
  while (s->queue.under_way) take_next(s, NULL);
  queue_release(&s->queue, s->batch);
  s->batch = NULL;
}

static bool unpack(void *context, ByteReader *from) {
  SetRun *s = context;
  double seconds;
  int images = 0, image = 0;
  bool ok = byte_reader_take(from, &seconds, sizeof seconds);
  for (; ok && from->left; images += ok) ok = s->task->unpack(s->sink, from, &image);
  if (ok) speed_batch(&s->speed, s->d->image_canvas[image], images, seconds);
  return ok;
}

static void settle(void *context, const Batch *batch, int64_t before) {
  SetRun *s = context;
  for (int i = 0, n = 0; i < batch->images; i++) {
    if (batch->index[i] < 0) continue; // the image could not be read
    const Image pixels = batches_image(batch, i);
    s->task->draw(s->sink, batch->index[i], &pixels, networks_result(s->batch->results, n++), before++);
  }
}

// ---- a run ------------------------------------------------------------------------------------------------------

// Ends the program with an error that every rank has; rank 0 prints it.
_Noreturn static void give_up(SetRun *s, const Err *err) {
  if (s->sink->rank > 0) comm_barrier(s->run->job->comm); // ends after rank 0
  if (!s->sink->done) s->task->abort(s->sink);
  die_unforeseen("%s", err->msg);
}

// Images in memory have no files.
static void say_orientation(const SetRun *s) {
  char *text = s->d->gray
                   ? NULL
                   : orientation_text(s->run->o, s->run->weights, s->d->upright, s->images.turned, s->d->num_images);
  if (text) line_print(stderr, "%s: %s", s->run->o->split, text);
  free(text);
}

// Only scores depend on them.
static void say_choices(const SetRun *s) {
  char *text = s->run->o->eval ? annotation_choices_text(s->run->o, s->run->weights) : NULL;
  if (text) line_print(stderr, "%s: %s", s->run->o->split, text);
  free(text);
}

// Returns the program's exit status.
static int find_and_score(SetRun *s) {
  Err err;
  Comm *comm = s->run->job->comm;
  const InferOptions *o = s->run->o;
  const InferTask *task = s->task;
  const LoaderOptions options = {
      .batch = o->batch, .threads = o->threads, .prefetch = PREFETCH, .held = NETWORKS_UNDER_WAY, .strict = o->strict};
  const BatchWork work = {.context = s,
                          .ahead = NETWORKS_UNDER_WAY,
                          .start = start,
                          .compute = compute,
                          .drop = drop,
                          .unpack = unpack,
                          .settle = task->draw ? settle : NULL,
                          .stopped = interrupted};
  task->begin(s->sink);
  stop_limit_begin(s->sink->rank);
  if (s->sink->rank == 0) say_orientation(s);
  if (s->sink->rank == 0) say_choices(s);
  memory_for("the results of an evaluation", "--limit");
  const bool complete = distribute_batches(comm, s->d, &options, &work, &err);
  memory_for(NULL, NULL);
  if (!complete && *err.msg) give_up(s, &err);
  s->sink->failed = (int)rank_sum(comm, s->sink->failed);
  (complete ? task->commit : task->keep)(s->sink);
  if (s->sink->rank == 0) speed_print(&s->speed, o->batch, NETWORKS_UNDER_WAY);
  if (s->sink->rank == 0 && complete) task->score(s->sink);
  return complete && !s->sink->failed ? 0 : EXIT_RUN;
}

// Outputs must not overwrite input files.
static void plan_outputs(SetRun *s) {
  const Dataset *d = s->d;
  FileSet *inputs = &s->images.inputs;
  file_set_add(inputs, s->run->o->weights);
  file_set_add(inputs, d->coco.path);
  const char **files = xmalloc((size_t)d->num_images * sizeof *files);
  for (int i = 0; i < d->num_images; i++) {
    files[i] = d->coco.images[d->image[i]].file_name;
    char *path = d->folder ? dataset_path(d, i) : NULL;
    if (path) file_set_add(inputs, path);
    free(path);
  }
  s->images.file = files;
  s->images.n = d->num_images;
  s->task->plan(s->sink);
  file_set_free(inputs);
  s->images.file = NULL;
  free(files);
}

// Opens the network on the rank's own device; waits for the other ranks, so that they start the first batch together.
static Networks *open_networks(SetRun *s, maskrcnn **handle) {
  const Job *job = s->run->job;
  maskrcnn_status status;
  Err err;
  Networks *h = networks_of_set(s->run, s->d, s->task->top(s->run, s->d));
  *handle = networks_ordinary(h, &status, &err);
  // The failure ends the program with its own message.
  if (status == MASKRCNN_BAD_DEVICE) device_close(device_open(job->device, &err));
  if (!*handle) die(err_exit(&err), "%s", err.msg);
  comm_barrier(job->comm);
  return h;
}

// Images that do not agree with the range of the weights.
static void note_range(const InferOptions *o, const Dataset *d) {
  Ranges r;
  Notes notes = {0};
  ranges_measure(&r, d);
  ranges_note(&r, d, o->split, d->range, &notes);
  for (int i = 0; i < notes.n; i++) line_print(stderr, "note: %s", notes.line[i]);
  notes_free(&notes);
  ranges_free(&r);
}

// Sets up everything that ranks share before they are forked.
int data_set_run(const InferRun *run, const InferTask *task, const JobOptions *wanted) {
  Err err;
  Dataset d;
  Job *job = run->job;
  const InferOptions *o = run->o;
  SetRun s = {.run = run, .task = task, .d = &d, .images = {.set = &d, .turned = -1}, .sink = task->open(run)};
  s.sink->run = run;
  s.sink->images = &s.images;
  task->open_data(s.sink, &d);
  d.range = range_of_run(run);
  if (!o->benchmark && job->launch.rank == 0) note_range(o, &d);
  if (!o->benchmark) plan_outputs(&s);
  agreement_check(job->comm, o, run->config, run->weights, &d);
  job_start(job, wanted);
  s.sink->rank = comm_rank(job->comm);
  speed_begin(&s.speed, comm_world(job->comm), task->results);
  maskrcnn *handle;
  Networks *networks = open_networks(&s, &handle);
  const Runner runner = networks_runner(networks);
  s.queue = queue_of(&runner);
  speed_opened(&s.speed, now_seconds() - s.speed.begun);
  int status = 0;
  if (!o->benchmark)
    status = find_and_score(&s);
  else if (!infer_benchmark(&s.queue, handle, o, job->comm, &d, &err))
    die(EXIT_RUN, "%s", err.msg);
  task->close(s.sink);
  file_set_free(&s.images.outputs);
  queue_free(&s.queue);
  networks_close(networks);
  speed_free(&s.speed);
  dataset_close(&d);
  return status;
}
