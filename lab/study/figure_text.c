#include "lab/study/figure_text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static const double most_written_out = 1e6; // of an error: a larger one is 1.7e+11

// Digits behind the point with which `value` shows `figures` significant ones.
static int digits_for(double value, int figures) {
  if (!(fabs(value) > 0)) return 0;
  return MIN(MAX(figures - 1 - (int)floor(log10(fabs(value))), 0), 9);
}

// What rounds to zero has no sign.
static char *fixed_text(double value, int digits) {
  char *text = xasprintf("%.*f", digits, value);
  if (*text == '-' && !text[strspn(text, "-0.")]) memmove(text, text + 1, strlen(text));
  return text;
}

char *study_figure_text(const StudyData *d, const StudyFigure *f, const StudyMeasure *m) {
  double error = study_error(d, f);
  if (isnan(f->value)) return xstrdup("–");
  if (error <= 1e-12 * fabs(f->value)) error = NAN; // runs that are equal, or a ratio to itself
  int digits = m->digits;
  if (digits >= 0 && error > 0) digits = MAX(digits, digits_for(error, 1)); // never ± 0.00
  if (digits < 0) digits = error > 0 ? digits_for(error, 2) : f->value == floor(f->value) ? 0 : digits_for(f->value, 4);
  if (isnan(error)) return fixed_text(f->value, digits);
  if (error >= most_written_out) { // two digits of it, as everywhere
    const int figures = (int)(floor(log10(fmax(fabs(f->value), error))) - floor(log10(error))) + 2;
    return xasprintf("%.*g ± %.2g", MIN(figures, 17), f->value, error);
  }
  char *value = fixed_text(f->value, digits), *text = xasprintf("%s ± %.*f", value, digits, error);
  free(value);
  return text;
}

char *study_measure_title(const StudyMeasure *m) {
  return m->unit ? xasprintf("%s, %s", m->label, m->unit) : xstrdup(m->label);
}
