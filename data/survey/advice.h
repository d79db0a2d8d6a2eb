// What in a data set will hurt training although nothing is wrong with it, and the flags that suit it.
#pragma once
#include "data/survey/defects.h"
#include "data/survey/survey.h"

typedef struct Split { // of a data set, and all that is known about it
  const char *name;    // "train"
  bool open;           // false: training would stop with `stop`
  Err stop;
  Dataset data;
  Survey survey;
  Defects defects;
} Split;

typedef struct Advice {
  char *hurts[24]; // one sentence each
  int num_hurts;
  char *flags; // of ./train: "--size …"
  int batch;   // that the flags ask for
} Advice;

// val may be NULL. keep_empty and canvases are as the data set was opened with.
void advice_write(Advice *a, const Split *train, const Split *val, bool keep_empty, int canvases);
void advice_free(Advice *a);
