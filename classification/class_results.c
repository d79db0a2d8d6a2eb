#include "classification/class_results.h"
#include <stdlib.h>
#include "base/clock.h"
#include "base/output.h"
#include "base/record.h"
#include "base/text.h"

static const double PROGRESS_SECONDS = 2;

bool class_results_spare(const char *path, FileSet *inputs, Err *err) {
  char *partial = xasprintf("%s.partial", path);
  const bool ok = file_set_spares(inputs, path, err) && file_set_spares(inputs, partial, err);
  free(partial);
  return ok;
}

// Sets the context of messages of failures from here on.
static void tell_context(const ClassResults *r) {
  if (r->images)
    die_context("%.200s holds the classes of %d images", r->lines.partial ? r->lines.partial : r->path, r->images);
  else
    die_context("no image is finished yet");
}

bool class_results_begin(ClassResults *r, const char *path, int total, Err *err) {
  *r = (ClassResults){.path = path, .total = total, .begun = now_seconds()};
  if (!growing_open(&r->lines, path, "", "", err)) return false;
  tell_context(r);
  return true;
}

static char *list_text(const maskrcnn_classes *c) {
  char *text = NULL;
  size_t size;
  Record item = {0};
  FILE *f = text_open(&text, &size);
  for (int i = 0; i < c->n; i++) {
    record_begin(&item);
    record_int(&item, "class", c->category_ids[i]);
    record_str(&item, "name", c->names[i]);
    record_num(&item, "score", float_decimal(c->scores[i]));
    fprintf(f, "%c%s", i ? ',' : '[', record_end(&item));
  }
  fputs(c->n ? "]" : "[]", f);
  text_close(f);
  record_free(&item);
  return text;
}

static void show_progress(ClassResults *r) {
  const double now = now_seconds();
  if (r->total == 1 || now - r->shown < PROGRESS_SECONDS) return;
  fprintf(stderr, "image %d", r->images);
  if (r->total) fprintf(stderr, " of %d", r->total);
  if (r->shown > 0) fprintf(stderr, ", %.3g images/s", r->images / (now - r->begun));
  fputc('\n', stderr);
  r->shown = now;
}

void class_results_add(ClassResults *r, const char *file, const char *truth, const maskrcnn_classes *classes) {
  Err err;
  Record line = {0};
  char *list = list_text(classes);
  record_begin(&line);
  record_str(&line, "file", file);
  if (truth) record_str(&line, "truth", truth);
  record_raw(&line, "classes", list);
  record_end(&line);
  line.text[line.len] = '\n'; // replaces the NUL, so that a line is one write
  if (!growing_add(&r->lines, line.text, line.len + 1, &err)) die_unforeseen("%s", err.msg);
  free(list);
  record_free(&line);
  r->images++;
  tell_context(r);
  show_progress(r);
}

void class_results_commit(ClassResults *r) {
  Err err;
  if (!growing_commit(&r->lines, &err)) die_unforeseen("%s", err.msg);
  line_print(stderr, "done: the classes of %d images in %s", r->images, r->path);
  die_context(NULL);
}

void class_results_abort(ClassResults *r) {
  growing_abort(&r->lines);
  die_context(NULL);
}

void class_results_keep(ClassResults *r) {
  if (r->images == 0) {
    fprintf(stderr, "stopped before the first image was finished\n");
    class_results_abort(r);
    return;
  }
  line_print(stderr, "stopped: %s holds the classes of %d images", r->lines.partial, r->images);
  growing_keep(&r->lines);
  die_context(NULL);
}
