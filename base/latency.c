// Summary of repeated timings.
#include "base/latency.h"
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include "base/basics.h"

static int compare_double(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double quantile(const double *sorted, int n, double q) {
  if (n == 0) return NAN;
  double at = q * (n - 1);
  int below = MIN((int)at, n - 1), above = MIN(below + 1, n - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
}

Latency latency_summary(double *samples, int n) {
  if (n) qsort(samples, (size_t)n, sizeof *samples, compare_double);
  double sum = 0;
  for (int i = 0; i < n; i++) sum += samples[i];
  const double mean = n ? sum / n : NAN;
  double squares = 0; // of the distances from the mean
  for (int i = 0; i < n; i++) squares += (samples[i] - mean) * (samples[i] - mean);
  return (Latency){
      .n = n,
      .min = quantile(samples, n, 0),
      .median = quantile(samples, n, 0.5),
      .p90 = quantile(samples, n, 0.9),
      .p95 = quantile(samples, n, 0.95),
      .p99 = quantile(samples, n, 0.99),
      .max = quantile(samples, n, 1),
      .mean = mean,
      .standard_error = n > 1 ? sqrt(squares / (n - 1) / n) : NAN,
  };
}
