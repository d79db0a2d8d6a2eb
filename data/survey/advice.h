// Advice on a data set: properties that hurt training although nothing is wrong.
#pragma once
#include "data/survey/defects.h"
#include "data/survey/ranges.h"
#include "data/survey/survey.h"

typedef struct Split { // a split of a data set, and everything known about it
  const char *name;    // "train"
  bool open;           // false: training would stop with `stop`
  Err stop;
  Dataset data;
  Survey survey;
  Defects defects;
  Ranges ranges; // measured with the image files
} Split;

typedef struct Advice {
  char *concerns[24 + 2 * MOST_NOTES]; // one sentence each
  int num_concerns;
} Advice;

// val may be NULL. keep_empty and canvases are those that the data set was opened with, `sampled` and `weights` are as
// in CheckupOptions.
void advice_write(Advice *a, const Split *train, const Split *val, bool keep_empty, int canvases, int sampled,
                  bool weights);
void advice_free(Advice *a);
