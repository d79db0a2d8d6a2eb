// What targets a run has, and what its log says of them: training/targets.h.
#pragma once
#include "base/json_lines.h"
#include "base/log_clock.h"
#include "training/best.h"

enum { MAX_TARGETS = 3 };

typedef struct Targets {
  int n; // 0: no targets
  struct {
    const char *option, *metric; // "--target-bbox", "bbox_AP"
    double value;                // required value of the metric
  } of[MAX_TARGETS];
} Targets;

typedef struct TimeToTarget {
  bool reached;              // whether one evaluation reached all of them
  int64_t step;              // that evaluation's step; not reached: the last one's, 0 without any
  int evaluations;           // number of evaluations, including that one
  double value[MAX_TARGETS]; // its metrics; NaN without any
  // Seconds until its scores, summed over the sessions of the run, each from the opening of its log, after graphs are
  // planned, to its last record.
  double seconds;
  double evaluating;              // seconds of these in evaluations, including scoring
  char summary[64 * MAX_TARGETS]; // as text: "bbox_AP 0.31 of 0.3, segm_AP 0.29 of 0.28"
} TimeToTarget;

typedef struct TargetsOfLog { // what was read of the log; zero-initialise
  JsonLinesAt at;
  RunClock clock;
  ScoredSet set;
  TimeToTarget time;
} TargetsOfLog;
