#include "inference/detection_output.h"
#include <errno.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/output.h"

static const double PROGRESS_SECONDS = 2;

bool detection_output_open(DetectionOutput *f, const char *json, const char *folder, int pictures, double shown_from,
                           const char *const *files, int n, FileSet *inputs, Err *err) {
  *f = (DetectionOutput){.json = json, .pictures = pictures, .shown_from = shown_from, .total = n};
  overlays_open(&f->overlays, folder, files, n);
  char *partial = xasprintf("%s.partial", json), *objects = xasprintf("%s/" CSV_OBJECTS, folder);
  char *counts = xasprintf("%s/" CSV_COUNTS, folder);
  bool ok = file_set_spares(inputs, json, err) && file_set_spares(inputs, partial, err) &&
            file_set_spares(inputs, objects, err) && file_set_spares(inputs, counts, err) &&
            (pictures == 0 || overlays_spare(&f->overlays, inputs, err));
  free(partial);
  free(objects);
  free(counts);
  return ok;
}

bool detection_output_begin(DetectionOutput *f, const ResultForm *form, Err *err) {
  f->begun = now_seconds();
  if (!results_open(&f->results, f->json, form->format, form->polygons, &form->classes, err)) return false;
  const char *kept = results_kept(&f->results);
  if (kept) line_print(stderr, "%s.partial, left by a run that did not finish, was renamed to %s", f->json, kept);
  return true;
}

void detection_output_follow(DetectionOutput *f, int rank) {
  f->elsewhere = true;
  f->overlays.rank = rank;
  detection_output_context(f, "");
}

void detection_output_leave(DetectionOutput *f) {
  die_context(NULL);
  overlays_close(&f->overlays);
}

// "7 images", or "7 of 9 images" if the total is known.
typedef struct Share {
  char text[64];
} Share;
static Share share(const DetectionOutput *f) {
  Share s;
  if (f->total)
    snprintf(s.text, sizeof s.text, "%d of %d images", f->images, f->total);
  else
    snprintf(s.text, sizeof s.text, "%d images", f->images);
  return s;
}

void detection_output_context(const DetectionOutput *f, const char *what) {
  const char *separator = *what ? "; " : "";
  if (f->elsewhere)
    die_context("%.200s%s%.200s.partial holds the detections so far", what, separator, f->json);
  else if (f->images && results_direct(&f->results))
    die_context("%.200s%sthe detections of %s are lost", what, separator, share(f).text);
  else if (f->images)
    die_context("%.200s%s%.200s holds the detections of %s", what, separator, results_partial(&f->results),
                share(f).text);
  else
    die_context("%.200s%sno detections yet", what, separator);
}

void detection_output_leave_out(const char *what, const Err *err, int reason) {
  if (reason == ENOSPC || reason == EDQUOT) die_unforeseen("%s: free space there, or choose another folder", err->msg);
  fprintf(stderr, "%s left out: %s\n", what, err->msg);
}

static void leave_out(DetectionOutput *f, const Err *err, int reason) {
  detection_output_leave_out("overlay", err, reason);
  f->failed++;
}

static void show_progress(DetectionOutput *f) {
  const double now = now_seconds();
  if (f->total == 1 || now - f->told < PROGRESS_SECONDS) return;
  fprintf(stderr, "image %d", f->images);
  if (f->total) fprintf(stderr, " of %d", f->total);
  if (f->told > 0) fprintf(stderr, ", %.3g images/s", f->images / (now - f->begun));
  fputc('\n', stderr);
  f->told = now;
}

// Tables are begun with the first image, so that results are not lost where the tables have no room.
static void add_to_tables(DetectionOutput *f, const ResultImage *image, const CocoResult *found, int n) {
  Err err;
  const bool begun = f->tables.header || csv_open(&f->tables, f->overlays.folder, &f->results.classes, &err);
  if (begun && (!image || csv_add(&f->tables, image, found, n, &err))) return;
  const bool full = errno == ENOSPC || errno == EDQUOT;
  die_unforeseen("%s%s", err.msg, full ? ": free space there, or choose another folder" : "");
}

void detection_output_record(DetectionOutput *f, const ResultImage *image, const CocoResult *found, int n) {
  Err err;
  if (!results_add(&f->results, image, found, n, &err)) {
    detection_output_context(f, "");
    die_unforeseen("%s", err.msg);
  }
  f->images++;
  detection_output_context(f, "");
  add_to_tables(f, image, found, detection_output_shown(f, found, n));
  show_progress(f);
}

bool detection_output_pictures(const DetectionOutput *f, int64_t before) { return before < f->pictures; }

void detection_output_draw(DetectionOutput *f, int i, const Image *image, const DrawItem *items, int n) {
  Err err;
  detection_output_context(f, f->overlays.path[i]);
  errno = 0;
  const bool ok = overlays_write(&f->overlays, i, image, items, n, &err);
  const int reason = errno;
  detection_output_context(f, "");
  if (!ok) leave_out(f, &err, reason);
}

void detection_output_picture(DetectionOutput *f, const char *file, int64_t number, FileSet *files, const Image *image,
                              const DrawItem *items, int n) {
  Err err;
  if (overlays_append(&f->overlays, file, number, files, &err))
    detection_output_draw(f, f->overlays.n - 1, image, items, n);
  else
    leave_out(f, &err, 0);
}

int detection_output_shown(const DetectionOutput *f, const CocoResult *found, int n) {
  int k = 0;
  while (k < n && found[k].score >= f->shown_from) k++;
  return k;
}

void detection_output_commit(DetectionOutput *f) {
  Err err;
  const int64_t n = f->results.n, shown = f->tables.n;
  detection_output_context(f, "");
  add_to_tables(f, NULL, NULL, 0); // of no images
  if (!results_commit(&f->results, &err) || !csv_commit(&f->tables, &err)) die_unforeseen("%s", err.msg);
  line_print(stderr, "done: %lld detections in %s, overlays in %s", (long long)n, f->json, f->overlays.folder);
  line_print(stderr, "%lld with a score of at least %.2f are drawn and counted in %s/" CSV_COUNTS " and " CSV_OBJECTS,
             (long long)shown, f->shown_from, f->overlays.folder);
  if (f->failed) fprintf(stderr, "%d overlays could not be written\n", f->failed);
  detection_output_leave(f);
}

void detection_output_abort(DetectionOutput *f) {
  results_abort(&f->results);
  if (f->tables.header) csv_abort(&f->tables);
  detection_output_leave(f);
}

void detection_output_keep(DetectionOutput *f) {
  if (f->images == 0) {
    fprintf(stderr, "stopped before the first image was finished\n");
    detection_output_abort(f);
    return;
  }
  line_print(stderr, "stopped: %s holds the detections of %s", results_partial(&f->results), share(f).text);
  results_keep(&f->results);
  csv_keep(&f->tables);
  detection_output_leave(f);
}
