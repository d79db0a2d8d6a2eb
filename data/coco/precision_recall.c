#include "data/coco/precision_recall.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/record.h"

// Writes the curves as the last members of the object that `r` has begun, and closes it.
static void write_curves(FILE *f, Record *r, double ap, EvalPrecision precision) {
  static const char *const keys[EVAL_CURVES] = {"precision_50", "precision_75", "precision"};
  char text[NUMBER_TEXT];
  record_num(r, "AP", ap < 0 ? NAN : ap);
  fputs(r->text, f);
  for (int c = 0; c < EVAL_CURVES; c++) {
    fprintf(f, ",\"%s\":", keys[c]);
    if (precision[c][0] < 0) {
      fputs("null", f);
      continue;
    }
    for (int i = 0; i < EVAL_RECALLS; i++) fprintf(f, "%c%s", i ? ',' : '[', number_text(precision[c][i], text));
    fputc(']', f);
  }
  fputc('}', f);
}

static void write_json(FILE *f, const EvalSummary *s) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "iou", iou_types[s->type]);
  record_int(&r, "max_dets", s->max_dets[EVAL_LIMITS - 1]);
  fprintf(f, "%s,\"recall\":", r.text);
  for (int i = 0; i < EVAL_RECALLS; i++) fprintf(f, "%c%g", i ? ',' : '[', i / 100.);
  fputs("],\"all\":", f);
  record_begin(&r);
  write_curves(f, &r, s->ap_last, s->precision[s->num_categories]);
  fputs(",\"category\":[", f);
  for (int k = 0; k < s->num_categories; k++) {
    if (k) fputc(',', f);
    record_begin(&r);
    record_int(&r, "id", s->categories[k].id);
    record_str(&r, "name", s->categories[k].name);
    write_curves(f, &r, s->categories[k].ap, s->precision[k]);
  }
  fputs("]}\n", f);
  record_free(&r);
}

bool precision_recall_json(const char *path, const EvalSummary *s, Err *err) {
  AtomicFile out;
  if (!file_begin(&out, path, err)) return false;
  write_json(out.f, s);
  return file_commit(&out, err);
}
