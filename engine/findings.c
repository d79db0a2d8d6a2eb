#include "engine/findings.h"
#include <stdlib.h>
#include "base/output.h"
#include "engine/evaluate.h"

static const double PROGRESS_SECONDS = 2;

bool findings_open(Findings *f, const char *json, const char *folder, int pictures, const char *const *files, int n,
                   FileSet *inputs, Err *err) {
  *f = (Findings){.json = json, .pictures = pictures, .total = n};
  overlays_open(&f->overlays, folder, files, n);
  char *partial = xasprintf("%s.partial", json);
  bool ok = file_set_spares(inputs, json, err) && file_set_spares(inputs, partial, err) &&
            (pictures == 0 || overlays_spare(&f->overlays, inputs, err));
  free(partial);
  return ok;
}

bool findings_begin(Findings *f, Err *err) { return coco_writer_open(&f->results, f->json, err); }

void findings_follow(Findings *f, int rank) {
  f->elsewhere = true;
  f->overlays.rank = rank;
  findings_context(f, "");
}

void findings_leave(Findings *f) {
  die_context(NULL);
  overlays_close(&f->overlays);
}

void findings_context(const Findings *f, const char *what) {
  const char *separator = *what ? "; " : "";
  if (f->elsewhere)
    die_context("%.200s%s%.200s.partial holds the detections so far", what, separator, f->json);
  else if (f->images && !f->results.grown.file.tmp)
    die_context("%.200s%sthe detections of %d of %d images are lost", what, separator, f->images, f->total);
  else if (f->images)
    die_context("%.200s%s%.200s holds the detections of %d of %d images", what, separator, f->results.grown.partial,
                f->images, f->total);
  else
    die_context("%.200s%sno detections yet", what, separator);
}

static void draw(Findings *f, const Engine *e, int i, const Image *image, const Detection *d, int n) {
  Err err;
  DrawItem *items = xcalloc((size_t)n, sizeof *items);
  for (int k = 0; k < n; k++) {
    const float *box = d[k].box;
    items[k] = (DrawItem){box[0], box[1], box[2], box[3], e->category[d[k].label - 1].name, d[k].score, &d[k].mask};
  }
  if (!overlays_write(&f->overlays, i, image, items, n, &err)) {
    fprintf(stderr, "overlay left out: %s\n", err.msg);
    f->failed++;
  }
  free(items);
}

static void show_progress(Findings *f) {
  if (f->total == 1 || now_seconds() - f->shown < PROGRESS_SECONDS) return;
  f->shown = now_seconds();
  fprintf(stderr, "image %d of %d\n", f->images, f->total);
}

void findings_record(Findings *f, const CocoResult *found, int n) {
  Err err;
  if (!coco_writer_add(&f->results, found, n, &err)) {
    findings_context(f, "");
    die_unforeseen("%s", err.msg);
  }
  f->images++;
  findings_context(f, "");
  show_progress(f);
}

void findings_draw(Findings *f, const Engine *e, int64_t before, int i, const Image *image, const Detection *d, int n) {
  if (before >= f->pictures) return;
  findings_context(f, f->overlays.path[i]);
  draw(f, e, i, image, d, findings_shown(d, n));
  findings_context(f, "");
}

void findings_add(Findings *f, const Engine *e, int64_t image_id, int i, const Image *image, const Detection *d,
                  int n) {
  const int before = f->images;
  CocoResult *found = xmalloc((size_t)n * sizeof *found);
  for (int k = 0; k < n; k++) found[k] = evaluate_result(e, image_id, &d[k]);
  findings_record(f, found, n);
  findings_draw(f, e, before, i, image, d, n);
  free(found);
}

int findings_shown(const Detection *d, int n) {
  int k = 0;
  while (k < n && d[k].score * 100 >= SHOWN_PERCENT) k++;
  return k;
}

void findings_commit(Findings *f) {
  Err err;
  int64_t n = f->results.n;
  findings_context(f, "");
  if (!coco_writer_commit(&f->results, &err)) die_unforeseen("%s", err.msg);
  line_print(stderr, "done: %lld detections in %s, overlays in %s", (long long)n, f->json, f->overlays.folder);
  if (f->failed) fprintf(stderr, "%d overlays could not be written\n", f->failed);
  findings_leave(f);
}

void findings_abort(Findings *f) {
  coco_writer_abort(&f->results);
  findings_leave(f);
}

void findings_keep(Findings *f) {
  if (f->images == 0) {
    fprintf(stderr, "stopped before the first image was done\n");
    findings_abort(f);
    return;
  }
  line_print(stderr, "stopped: %s holds the detections of %d of %d images", f->results.grown.partial, f->images,
             f->total);
  coco_writer_keep(&f->results);
  findings_leave(f);
}
