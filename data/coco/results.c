#include "data/coco/results.h"
#include <stdlib.h>
#include "base/record.h"
#include "base/text.h"

const char *const result_formats[] = {"coco", "jsonl", NULL};

bool results_open(ResultWriter *w, const char *path, ResultFormat format, bool polygons, const ResultClasses *classes,
                  Err *err) {
  *w = (ResultWriter){.format = format, .polygons = polygons, .classes = *classes};
  if (format == RESULTS_JSONL) return growing_open(&w->lines, path, "", "", err);
  if (!coco_writer_open(&w->coco, path, err)) return false;
  w->coco.polygons = polygons;
  w->coco.classes = &w->classes;
  return true;
}

static char *detections_text(const ResultWriter *w, const CocoResult *found, int n) {
  char *text = NULL;
  size_t size;
  Record name = {0};
  FILE *f = text_open(&text, &size);
  fputc('[', f);
  for (int i = 0; i < n; i++) {
    record_begin(&name); // {"category":"name", a record because it escapes strings
    record_str(&name, "category", result_class_name(&w->classes, found[i].category_id));
    fprintf(f, "%s%s,", i ? "," : "", name.text);
    coco_result_write(f, &found[i], w->polygons);
    fputc('}', f);
  }
  fputc(']', f);
  text_close(f);
  record_free(&name);
  return text;
}

static bool add_line(ResultWriter *w, const ResultImage *image, const CocoResult *found, int n, Err *err) {
  if (!coco_results_finite(found, n, w->lines.file.path, w->n, err)) return false;
  Record line = {0};
  char *detections = detections_text(w, found, n);
  record_begin(&line);
  record_int(&line, "image_id", image->id);
  record_str(&line, "file_name", image->file_name);
  record_int(&line, "width", image->w);
  record_int(&line, "height", image->h);
  record_raw(&line, "detections", detections);
  record_end(&line);
  line.text[line.len] = '\n'; // replaces the NUL, so that a line is a single write
  const bool ok = growing_add(&w->lines, line.text, line.len + 1, err);
  free(detections);
  record_free(&line);
  return ok;
}

bool results_add(ResultWriter *w, const ResultImage *image, const CocoResult *found, int n, Err *err) {
  w->coco.file_name = image->file_name;
  const bool ok =
      w->format == RESULTS_JSONL ? add_line(w, image, found, n, err) : coco_writer_add(&w->coco, found, n, err);
  if (ok) w->n += n;
  return ok;
}

static const GrowingFile *file_of(const ResultWriter *w) {
  return w->format == RESULTS_JSONL ? &w->lines : &w->coco.grown;
}

const char *results_partial(const ResultWriter *w) { return file_of(w)->partial; }
const char *results_kept(const ResultWriter *w) { return file_of(w)->kept; }
bool results_direct(const ResultWriter *w) { return !file_of(w)->file.tmp; }

bool results_commit(ResultWriter *w, Err *err) {
  return w->format == RESULTS_JSONL ? growing_commit(&w->lines, err) : coco_writer_commit(&w->coco, err);
}

void results_keep(ResultWriter *w) {
  growing_keep(&w->lines);
  coco_writer_keep(&w->coco);
}

void results_abort(ResultWriter *w) {
  growing_abort(&w->lines);
  coco_writer_abort(&w->coco);
}
