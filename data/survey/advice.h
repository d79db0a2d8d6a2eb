// Advice on a data set: properties that hurt training although nothing is wrong, and suitable options.
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
  char *flags; // for ./train: "--size …"
  int batch;   // batch size in the flags
} Advice;

// val may be NULL. keep_empty and canvases are those that the data set was opened with, `sampled` is as in
// CheckupOptions; `holdout` are train's options that hold out val, with a space before them; "": none.
void advice_write(Advice *a, const Split *train, const Split *val, bool keep_empty, int canvases, int sampled,
                  const char *holdout);
void advice_free(Advice *a);
