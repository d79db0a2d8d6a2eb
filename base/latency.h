// Summary of repeated timings: what a benchmark reports.
#pragma once

typedef struct Latency {
  int n;
  double min, median, p90, p95, p99, max, mean; // in the unit of the samples; NaN when there are none
  double standard_error;                        // of the mean: s/√n; NaN for less than two
} Latency;

// Sorts the samples in place.
Latency latency_summary(double *samples, int n);
// The q-quantile, 0 ≤ q ≤ 1, of ascending samples: linear between neighbours, as numpy.quantile. NaN when n is 0.
double quantile(const double *sorted, int n, double q);
