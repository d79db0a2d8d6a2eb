#include "inference/detection_output.h"
#include <errno.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/output.h"

static const double PROGRESS_SECONDS = 2;

bool detection_output_open(DetectionOutput *f, const char *json, const char *folder, int pictures,
                           const char *const *files, int n, FileSet *inputs, Err *err) {
  *f = (DetectionOutput){.json = json, .pictures = pictures, .total = n};
  overlays_open(&f->overlays, folder, files, n);
  char *partial = xasprintf("%s.partial", json);
  bool ok = file_set_spares(inputs, json, err) && file_set_spares(inputs, partial, err) &&
            (pictures == 0 || overlays_spare(&f->overlays, inputs, err));
  free(partial);
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
  if (f->total == 1 || now - f->shown < PROGRESS_SECONDS) return;
  fprintf(stderr, "image %d", f->images);
  if (f->total) fprintf(stderr, " of %d", f->total);
  if (f->shown > 0) fprintf(stderr, ", %.3g images/s", f->images / (now - f->begun));
  fputc('\n', stderr);
  f->shown = now;
}

void detection_output_record(DetectionOutput *f, const ResultImage *image, const CocoResult *found, int n) {
  Err err;
  if (!results_add(&f->results, image, found, n, &err)) {
    detection_output_context(f, "");
    die_unforeseen("%s", err.msg);
  }
  f->images++;
  detection_output_context(f, "");
  show_progress(f);
}

bool detection_output_pictures(const DetectionOutput *f, int64_t before) { return before < f->pictures; }

void detection_output_draw(DetectionOutput *f, int i, const Image *image, const DrawItem *items, int n) {
  Err err;
  detection_output_context(f, f->overlays.path[i]);
  errno = 0;
  const bool ok = overlays_write(&f->overlays, i, image, items, detection_output_shown(items, n), &err);
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

int detection_output_shown(const DrawItem *items, int n) {
  int k = 0;
  while (k < n && items[k].score * 100 >= SHOWN_PERCENT) k++;
  return k;
}

void detection_output_commit(DetectionOutput *f) {
  Err err;
  int64_t n = f->results.n;
  detection_output_context(f, "");
  if (!results_commit(&f->results, &err)) die_unforeseen("%s", err.msg);
  line_print(stderr, "done: %lld detections in %s, overlays in %s", (long long)n, f->json, f->overlays.folder);
  if (f->failed) fprintf(stderr, "%d overlays could not be written\n", f->failed);
  detection_output_leave(f);
}

void detection_output_abort(DetectionOutput *f) {
  results_abort(&f->results);
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
  detection_output_leave(f);
}
