#include "inference/named_images.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/interrupt.h"
#include "base/output.h"
#include "inference/networks.h"
#include "inference/orientation.h"
#include "inference/start.h"
#include "inference/stop_limit.h"
#include "inference/stream.h"

typedef struct NamedRun {
  const InferRun *run;
  const InferTask *task;
  Sources *sources;
  InferImages images;
  Sink *sink;
  Networks *networks;
  Speed speed;
  int bad;    // number of unusable images
  int turned; // number of images with an EXIF orientation
  int plain;  // number of 16-bit images that are nearly black or white in the range
} NamedRun;

// Ends the program with an error that would affect every image.
static NORETURN void refuse(NamedRun *r, int code, const char *message) {
  if (!r->sink->done) r->task->abort(r->sink);
  die(code, "%s", message);
}

// ---- images -----------------------------------------------------------------------------------------------------

static bool keeps(void *context, const Decoded *image) {
  (void)image;
  const NamedRun *r = context;
  return r->task->looks && r->task->looks(r->sink);
}

static void visit(void *context, const Decoded *image, const void *results, int in_batch) {
  NamedRun *r = context;
  Err err;
  // A list may name a file that the results would replace.
  if (sources_has_list(r->sources) && !file_set_spares(&r->images.outputs, image->path, &err))
    refuse(r, EXIT_USAGE, err.msg);
  r->turned += image->orientation > 1;
  if (image->color && !r->plain++) {
    char range[SAMPLE_RANGE_TEXT];
    sample_range_text(range_of_run(r->run), range);
    line_print(stderr,
               "note: %s has 16-bit samples and is nearly %s in the range %s; set another with --range LOW,HIGH",
               image->path, image->color, range);
  }
  r->task->take(r->sink, image, results, in_batch);
}

static void visit_bad(void *context, const Decoded *image, const Err *why) {
  NamedRun *r = context;
  Err err = *why;
  if (!image->wrong) err_set(&err, "%s: %s", image->path, why->msg);
  if (r->images.n == 1) refuse(r, EXIT_USAGE, err.msg);
  line_print(stderr, "%s", err.msg);
  r->bad++;
}

static void visit_time(void *context, int group, int images, double seconds) {
  NamedRun *r = context;
  speed_batch(&r->speed, networks_shape(r->networks, group), images, seconds);
}

// ---- a run ------------------------------------------------------------------------------------------------------

// Returns the number of images named, without those of a list.
static int find_images(NamedRun *r) {
  Err err;
  const InferOptions *o = r->run->o;
  InferImages *images = &r->images;
  int named;
  if (!(r->sources = sources_open(o->images, o->num_images, STDIN_FILENO, &err))) die(EXIT_USAGE, "%s", err.msg);
  images->file = sources_files(r->sources, &named);
  const bool list = sources_has_list(r->sources);
  images->n = list ? 0 : named;
  images->each_named = !list && named == o->num_images;
  file_set_add(&images->inputs, o->weights);
  for (int i = 0; i < named; i++) file_set_add(&images->inputs, images->file[i]);
  return named;
}

// Processes all images; false if it stopped early.
static bool stream(NamedRun *r, int batch) {
  Err err;
  const StreamVisitor visitor = {
      .context = r, .keeps = keeps, .image = visit, .bad = visit_bad, .took = visit_time, .stopped = interrupted};
  r->networks = networks_of_named(r->run, batch, &r->speed, interrupted);
  const Runner runner = networks_runner(r->networks);
  BatchQueue queue = queue_of(&runner);
  Decoders *d = start_decoders(r->run->o, range_of_run(r->run), r->sources, r->images.n, batch);
  const bool complete = stream_run(d, &queue, &visitor, &err);
  if (!complete && *err.msg) {
    if (!r->sink->done) refuse(r, networks_exit(r->networks), err.msg);
    die_unforeseen("%s", err.msg);
  }
  r->speed.decoders = decoders_yield(d);
  decoders_close(d);
  queue_free(&queue);
  networks_close(r->networks);
  return complete;
}

static void say_orientation(const NamedRun *r) {
  char *text = orientation_text(r->run->o, r->run->weights, r->run->o->exif == EXIF_YES, r->turned, r->sink->done);
  if (text) line_print(stderr, "%s", text);
  free(text);
}

int named_images_run(const InferRun *run, const InferTask *task) {
  Err err;
  NamedRun r = {.run = run, .task = task};
  const int named = find_images(&r);
  r.sink = task->open(run);
  r.sink->run = run;
  r.sink->images = &r.images;
  task->plan(r.sink);
  speed_begin(&r.speed, 1, task->results);
  const int batch = start_batch_of(run->o, named, sources_has_list(r.sources));
  if (!infer_take_folder(run->o, task->own, false, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
  task->begin(r.sink);
  stop_limit_begin(0);
  setvbuf(stdout, NULL, _IOLBF, 0); // flushes every line, also to pipes
  const bool complete = stream(&r, batch);
  const int images = r.sink->done;
  if (complete && !images && !r.bad) refuse(&r, EXIT_USAGE, "the list of images on standard input is empty");
  if (complete && !images) refuse(&r, EXIT_USAGE, "none of the images could be read");
  (complete ? task->commit : task->keep)(r.sink);
  say_orientation(&r);
  speed_print(&r.speed, batch, NETWORKS_UNDER_WAY);
  speed_free(&r.speed);
  const bool failed = r.sink->failed;
  task->close(r.sink);
  sources_close(r.sources);
  file_set_free(&r.images.inputs);
  file_set_free(&r.images.outputs);
  if (r.bad) die(EXIT_USAGE, "%d of %d images left out", r.bad, images + r.bad);
  return complete && !failed ? 0 : EXIT_RUN;
}
