// Metrics: the scores of an evaluation, by name.
#pragma once
#include <stdint.h>
#include "base/error.h"

enum { MAX_METRICS = 32, METRIC_NAME = 32 };

typedef struct Metrics { // scores of an evaluation
  int n;
  struct {
    char name[METRIC_NAME]; // its key in the log
    double value;           // NaN: undefined, for instance without objects
  } metric[MAX_METRICS];
  char summary[256]; // one line of text
  int images;        // images that were scored
  int left_out;      // images of the split that could not be read
  int64_t set;       // data_identity_number of what was scored (data/batches/data_identity.h); 0: unknown
  int max_dets;      // limit on detections per image and category; 0: a classifier
  char note[256];    // a line with anything else worth knowing; "": nothing
} Metrics;
void metrics_add(Metrics *m, const char *name, double value);
