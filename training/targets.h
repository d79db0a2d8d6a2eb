// Targets that end a run: metrics of its evaluations, and the time to reach them. Everything is read from the log, so
// that a resumed run counts the time of all sessions.
#pragma once
#include "training/run.h"

enum { MAX_TARGETS = 3 };

typedef struct Targets {
  int n; // 0: no targets
  struct {
    const char *option, *metric; // "--target-bbox", "bbox_AP"
    double value;                // required value of the metric
  } of[MAX_TARGETS];
} Targets;

// The targets given by the options --target-….
Targets targets_of(const TrainSpec *o);

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

// Reads `folder`/log.jsonl, for which nothing may be in progress. Evaluations on another set than the first one do not
// count, as for the best (training/best.h).
bool targets_read(const Targets *t, const char *folder, TimeToTarget *out, Err *err);

// For a complete run with targets, writes one record to stdout and OUT/time-to-target.json; without targets, nothing.
//   bench "time-to-target"; model, data, seed, batch, world
//   reached; target_bbox_AP, bbox_AP …; step, epochs, images (of training), evaluations
//   seconds, training_seconds, evaluation_seconds  of all sessions of the run
//   build_seconds                                  before the log was opened, as in run.json; of this process
//   and the members of record_origin
bool targets_report(TrainingRun *r, Err *err);
