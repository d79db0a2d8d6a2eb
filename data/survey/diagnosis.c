#include "data/survey/diagnosis.h"
#include <stdarg.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/output.h"
#include "base/text.h"

// ---- saying ---------------------------------------------------------------------------------------------------------

static char *PRINTF_LIKE(1, 0) vtext(const char *fmt, va_list args) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  vfprintf(f, fmt, args);
  text_close(f);
  return text;
}

void diagnosis_add_statistic(DiagnosisSplit *s, const char *name, const char *fmt, ...) {
  CHECK(s->num_statistics < COUNT(s->statistic));
  va_list args;
  va_start(args, fmt);
  s->statistic[s->num_statistics++] = (Statistic){xstrdup(name), vtext(fmt, args)};
  va_end(args);
}

void diagnosis_add_defect(Diagnosis *f, int split, const char *what, int count, const char *treatment) {
  array_reserve((void **)&f->defect, &f->cap_defects, f->num_defects + 1, sizeof *f->defect);
  f->defect[f->num_defects++] =
      (DiagnosisDefect){.split = split, .count = count, .what = xstrdup(what), .treatment = xstrdup(treatment)};
}

void diagnosis_add_detail(Diagnosis *f, const char *fmt, ...) {
  DiagnosisDefect *w = &f->defect[f->num_defects - 1];
  int i = 0;
  while (w->detail[i]) i++;
  CHECK(i < COUNT(w->detail));
  va_list args;
  va_start(args, fmt);
  w->detail[i] = vtext(fmt, args);
  va_end(args);
}

void diagnosis_add_concern(Diagnosis *f, const char *fmt, ...) {
  array_reserve((void **)&f->concern, &f->cap_concerns, f->num_concerns + 1, sizeof *f->concern);
  va_list args;
  va_start(args, fmt);
  f->concern[f->num_concerns++] = vtext(fmt, args);
  va_end(args);
}

void diagnosis_add_reason(Diagnosis *f, const char *fmt, ...) {
  array_reserve((void **)&f->reason, &f->cap_reasons, f->num_reasons + 1, sizeof *f->reason);
  va_list args;
  va_start(args, fmt);
  f->reason[f->num_reasons++] = vtext(fmt, args);
  va_end(args);
}

// ---- for people -----------------------------------------------------------------------------------------------------

static void print_split(FILE *out, const DiagnosisSplit *s) {
  line_print(out, "  %s", s->name);
  for (int i = 0; i < s->num_statistics; i++)
    line_print(out, "    %-12s%s", s->statistic[i].name, s->statistic[i].text);
}

static void print_categories(FILE *out, const Diagnosis *f) {
  enum { MOST = 40 };
  const DiagnosisSplit *val = &f->split[1];
  const char *other = val->data ? val->name : "";
  fprintf(out, "\n");
  if (f->classes)
    line_print(out, "  %-32s %10s %10s", "class", f->split[0].name, other);
  else
    line_print(out, "  %-24s %10s %10s %10s %10s", "category: objects in", f->split[0].name, "images", "median px",
               other);
  int listed = 0, known = 0; // of the training split
  for (int i = 0; i < f->categories; i++) {
    const DiagnosisCategory *c = &f->category[i];
    if (c->count[0] < 0) continue;
    known++;
    if (listed == MOST) continue;
    listed++;
    if (f->classes)
      text_print(out, "  %-32.32s %10d", c->name, c->count[0]);
    else
      text_print(out, "  %-24.24s %10d %10d %10.0f", c->name, c->count[0], c->images, c->size);
    if (c->count[1] >= 0) fprintf(out, " %10d", c->count[1]);
    fprintf(out, "\n");
  }
  if (known > listed) fprintf(out, "  and %d more; --json has all\n", known - listed);
}

static void print_wrong(FILE *out, const Diagnosis *f, int split) {
  for (size_t i = 0; i < f->num_defects; i++) {
    const DiagnosisDefect *w = &f->defect[i];
    if (w->split != split) continue;
    const char *of = split >= 0 ? f->split[split].name : NULL;
    line_print(out, "  %s%s%s: %d; %s", of ? of : "", of ? ": " : "", w->what, w->count, w->treatment);
    for (int k = 0; k < COUNT(w->detail) && w->detail[k]; k++) line_print(out, "    %s", w->detail[k]);
  }
}

void diagnosis_print(FILE *out, const Diagnosis *f) {
  line_print(out, "%s, %s", f->data, f->read_as);
  fprintf(out, "\noverview\n");
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++)
    if (f->split[s].data) print_split(out, &f->split[s]);
  if (f->absent) line_print(out, "  %s", f->absent);
  if (f->split[0].data && f->categories && f->category[0].count[0] > 0) print_categories(out, f);
  fprintf(out, "\nerrors\n");
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) {
    if (f->split[s].stop) line_print(out, "  %s: training stops: %s", f->split[s].name, f->split[s].stop);
    print_wrong(out, f, s);
  }
  print_wrong(out, f, -1);
  if (f->sound) fprintf(out, "  none%s\n", f->unseen ? f->unseen : "");
  if (!f->split[0].data) return;
  fprintf(out, "\nhints\n");
  for (size_t i = 0; i < f->num_concerns; i++) line_print(out, "  %s", f->concern[i]);
  if (!f->num_concerns) fprintf(out, "  none\n");
  if (!f->command) return;
  fprintf(out, "\nsuggested command\n");
  line_print(out, "  %s", f->command);
  for (size_t i = 0; i < f->num_reasons; i++) line_print(out, "  %s", f->reason[i]);
}

void diagnosis_free(Diagnosis *f) {
  for (int s = 0; s < DIAGNOSIS_SPLITS; s++) {
    DiagnosisSplit *split = &f->split[s];
    for (int i = 0; i < split->num_statistics; i++) {
      free(split->statistic[i].name);
      free(split->statistic[i].text);
    }
    histograms_free(&split->histograms);
    free(split->name);
    free(split->stop);
    free(split->category);
  }
  for (size_t i = 0; i < f->num_defects; i++) {
    free(f->defect[i].what);
    free(f->defect[i].treatment);
    for (int k = 0; k < COUNT(f->defect[i].detail); k++) free(f->defect[i].detail[k]);
  }
  for (size_t i = 0; i < f->num_concerns; i++) free(f->concern[i]);
  free(f->defect);
  free(f->concern);
  free(f->category);
  free(f->data);
  free(f->read_as);
  free(f->unseen);
  free(f->absent);
  free(f->command);
  for (size_t i = 0; i < f->num_reasons; i++) free(f->reason[i]);
  free(f->reason);
  *f = (Diagnosis){0};
}
