#include "classification/loose_classes.h"
#include <unistd.h>
#include "base/folder.h"
#include "base/interrupt.h"
#include "base/output.h"
#include "classification/class_results.h"
#include "inference/handles.h"
#include "inference/start.h"
#include "inference/stream.h"

typedef struct LooseClasses {
  const InferOptions *o;
  Sources *sources;
  Handles *handles;
  ClassResults results;
  Speed speed;
  FileSet inputs, outputs;
  int bad; // images
} LooseClasses;

// What is wrong is wrong for every image.
static NORETURN void refuse(LooseClasses *l, int code, const char *message) {
  if (!l->results.images) class_results_abort(&l->results);
  die(code, "%s", message);
}

// ---- images -----------------------------------------------------------------------------------------------------

static void print_classes(const char *path, const maskrcnn_classes *c) {
  text_print(stdout, "%s:", path);
  for (int i = 0; i < c->n; i++) text_print(stdout, "%s %s %.4f", i ? "," : "", c->names[i], (double)c->scores[i]);
  fputc('\n', stdout);
}

static void visit(void *context, const Decoded *image, const void *results, int in_batch) {
  LooseClasses *l = context;
  Err err;
  const maskrcnn_classes *classes = handles_result(results, in_batch)->classes;
  // A list may name a file that the results would replace.
  if (sources_has_list(l->sources) && !file_set_spares(&l->outputs, image->path, &err)) refuse(l, EXIT_USAGE, err.msg);
  print_classes(image->path, classes);
  class_results_add(&l->results, image->path, NULL, classes);
}

static void visit_bad(void *context, const Decoded *image, const Err *why) {
  LooseClasses *l = context;
  Err err = *why;
  if (!image->wrong) err_set(&err, "%s: %s", image->path, why->msg);
  if (l->results.total == 1) refuse(l, EXIT_USAGE, err.msg);
  line_print(stderr, "%s", err.msg);
  l->bad++;
}

static void visit_time(void *context, int group, int images, double seconds) {
  LooseClasses *l = context;
  speed_batch(&l->speed, handles_shape(l->handles, group), images, seconds);
}

// ---- a run ------------------------------------------------------------------------------------------------------

// Which files are read and written; nothing of it is, yet. Returns how many are named.
static int plan_files(LooseClasses *l) {
  Err err;
  int named;
  const char *const *files = sources_files(l->sources, &named);
  file_set_add(&l->inputs, l->o->weights);
  for (int i = 0; i < named; i++) file_set_add(&l->inputs, files[i]);
  if (!class_results_spare(l->o->json, &l->inputs, &err)) die(EXIT_USAGE, "%s", err.msg);
  return named;
}

// Returns whether all images were visited.
static bool stream(LooseClasses *l, const ModelConfig *config, int batch) {
  Err err;
  const StreamVisitor visitor = {
      .context = l, .image = visit, .bad = visit_bad, .took = visit_time, .stopped = interrupted};
  l->handles = handles_open(l->o, config, batch, &l->speed, interrupted);
  const Runner runner = handles_runner(l->handles);
  Decoders *d = start_decoders(l->o, l->sources, l->results.total, batch);
  const bool complete = stream_run(d, &runner, &visitor, &err);
  if (!complete && *err.msg) {
    if (!l->results.images) refuse(l, handles_exit(l->handles), err.msg);
    die_unforeseen("%s", err.msg);
  }
  l->speed.decoders = decoders_yield(d);
  decoders_close(d);
  handles_close(l->handles);
  return complete;
}

int loose_classes_run(const InferOptions *o, const ModelConfig *config) {
  Err err;
  LooseClasses l = {.o = o};
  if (!(l.sources = sources_open(o->images, o->num_images, STDIN_FILENO, &err))) die(EXIT_USAGE, "%s", err.msg);
  const int named = plan_files(&l);
  const bool list = sources_has_list(l.sources);
  speed_begin(&l.speed, 1, "classes");
  const int batch = start_batch_of(o, named, list);
  if (!folder_take(o->out, &err)) die(EXIT_USAGE, "--out: %s", err.msg);
  if (!class_results_begin(&l.results, o->json, list ? 0 : named, &err)) die(EXIT_USAGE, "%s", err.msg);
  file_set_add(&l.outputs, l.results.lines.partial ? l.results.lines.partial : o->json);
  file_set_add(&l.outputs, o->json);
  setvbuf(stdout, NULL, _IOLBF, 0); // lines go out as images are done, to pipes, too
  const bool complete = stream(&l, config, batch);
  const int images = l.results.images;
  if (complete && !images && !l.bad) refuse(&l, EXIT_USAGE, "the list on standard input names no image");
  if (complete && !images) refuse(&l, EXIT_USAGE, "none of the images can be used");
  (complete ? class_results_commit : class_results_keep)(&l.results);
  speed_print(&l.speed, batch, HANDLES_UNDER_WAY);
  speed_free(&l.speed);
  sources_close(l.sources);
  file_set_free(&l.inputs);
  file_set_free(&l.outputs);
  if (l.bad) die(EXIT_USAGE, "%d of %d images left out", l.bad, images + l.bad);
  return complete ? 0 : EXIT_RUN;
}
