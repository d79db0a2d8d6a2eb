#include "lab/study/axis.h"
#include <math.h>

static double scaled(const StudyAxis *a, double v) { return a->log ? log10(v) : v; }
double study_axis_fraction(const StudyAxis *a, double v) { return (scaled(a, v) - a->low) / (a->high - a->low); }

bool study_axis_shows(const StudyAxis *a, double v) { return isfinite(v) && (!a->log || v > 0); }

static void add_tick(StudyAxis *a, double v) {
  if (a->n < STUDY_MAX_TICKS) a->ticks[a->n++] = v;
}

void study_axis_reach(StudyAxis *a, double v) {
  if (!study_axis_shows(a, v)) return;
  a->low = fmin(a->low, scaled(a, v));
  a->high = fmax(a->high, scaled(a, v));
}

// About five of them are the range.
static double even_step(double range) {
  const double raw = range / 5, power = pow(10, floor(log10(raw))), lead = raw / power;
  return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

void study_axis_linear(StudyAxis *a, bool from_zero) {
  if (from_zero || (a->low > 0 && a->low < 0.5 * a->high)) a->low = fmin(a->low, 0);
  if (!(a->high > a->low)) a->high = a->low + (a->low != 0 ? 0.1 * fabs(a->low) : 1);
  const double step = even_step(a->high - a->low);
  a->low = floor(a->low / step + 1e-9) * step;
  a->high = ceil(a->high / step - 1e-9) * step;
  for (double i = 0; a->low + i * step <= a->high + 0.01 * step; i++) add_tick(a, a->low + i * step);
}

void study_axis_logarithmic(StudyAxis *a) {
  static const double leads[] = {1, 2, 5};
  const double margin = fmax(0.04 * (a->high - a->low), 0.05);
  a->low -= margin;
  a->high += margin;
  for (double p = floor(a->low); p <= ceil(a->high); p++)
    for (int i = 0; i < (a->high - a->low < 2.5 ? 3 : 1); i++) {
      const double v = pow(10, p) * leads[i];
      if (log10(v) >= a->low && log10(v) <= a->high) add_tick(a, v);
    }
  if (a->n > 1) return;
  a->n = 0; // so short that none of these lie on it: even steps
  const double low = pow(10, a->low), high = pow(10, a->high), step = even_step(high - low);
  for (double i = ceil(low / step); i * step <= high; i++) add_tick(a, i * step);
}
