// Gradient check: an analytic gradient against central differences of the objective it is the gradient of, in double.
#pragma once
#include "test/harness/op.h"

// Σ r · y or a loss, evaluated anew from the present contents of the inputs.
typedef double Objective(void *context);

// Compares dx with (f(x + h) - f(x - h)) / 2h for every element of x (for `most` of them, evenly spread, when there are
// more). The difference is off by
//   h² / 6 · third                 of truncation, where third bounds |∂³f / ∂x³|, and
//   2 · u · operations · magnitude / 2h   of rounding: f is a sum whose absolute values add up to `magnitude`, through
//                                         at most `operations` steps each off by the unit roundoff u.
// h = 2^-13 makes the first 2.5e-9 for third = 1 and the second 1e-9 for operations · magnitude = 1e3.
// There must be no kink (maximum, ReLU, |·|) within h of x.
static inline void gradcheck(Objective *f, void *context, const Tensor *x, const Tensor *dx, double magnitude,
                             double operations, double third, int most) {
  const double h = 0x1p-13;
  double tolerance = h * h / 6 * third + unit_roundoff(F64) * operations * magnitude / h;
  int rows = valid_rows(x), total = rows * x->h * x->w * x->c, step = total / most + 1;
  for (int i = 0; i < total; i += step) {
    int c = i % x->c, column = i / x->c % x->w, y = i / x->c / x->w % x->h, n = i / x->c / x->w / x->h;
    double value = get(x, n, y, column, c);
    put(x, n, y, column, c, value + h);
    double above = f(context);
    put(x, n, y, column, c, value - h);
    double below = f(context);
    put(x, n, y, column, c, value);
    EXPECT_NEAR(get(dx, n, y, column, c), (above - below) / (2 * h), tolerance);
  }
}

// Σ r · y over the valid rows; *magnitude (may be NULL) receives Σ |r · y|.
static inline double weighted_sum(const Tensor *r, const Tensor *y, double *magnitude) {
  double sum = 0, absolute = 0;
  for (int n = 0; n < valid_rows(y); n++)
    for (int row = 0; row < y->h; row++)
      for (int x = 0; x < y->w; x++)
        for (int c = 0; c < y->c; c++) {
          double term = get(r, n, row, x, c) * get(y, n, row, x, c);
          sum += term;
          absolute += fabs(term);
        }
  if (magnitude) *magnitude = absolute;
  return sum;
}
