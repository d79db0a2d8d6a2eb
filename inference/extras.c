#include "inference/extras.h"
#include <errno.h>
#include "inference/detection_output.h"

// An error with a folder, preceded by the option that names it.
static bool refuse(const char *option, const Err *why, Err *err) { return err_set(err, "%s: %s", option, why->msg); }

bool extras_open(Extras *e, const InferOptions *o, const ResultClasses *classes, Err *err) {
  Err why;
  *e = (Extras){.shown_from = infer_shown_from(o)};
  if (o->labels) {
    if (!labels_open(&e->labels, o->labels, (LabelValues)o->label_values, classes, 0, &why))
      return refuse("--labels", &why, err);
    e->maps = &e->labels;
  }
  if (o->crops) {
    if (!crops_open(&e->crops, o->crops, o->crop_alpha, classes, 0, &why)) return refuse("--crops", &why, err);
    e->cuts = &e->crops;
  }
  return true;
}

static void leave_out(Extras *e, const char *what, const Err *err) {
  detection_output_leave_out(what, err, errno);
  e->failed++;
}

void extras_write(Extras *e, const char *name, const Image *image, const CocoResult *found, int n) {
  Err err;
  const double least = e->shown_from;
  errno = 0;
  if (e->maps && !labels_write(e->maps, name, image->h, image->w, found, n, least, &err))
    leave_out(e, "label map", &err);
  if (e->cuts && !crops_write(e->cuts, name, image, found, n, least, &err)) leave_out(e, "crops", &err);
}

void extras_close(Extras *e) {
  if (e->maps) labels_close(&e->labels);
  if (e->cuts) crops_close(&e->crops);
}
