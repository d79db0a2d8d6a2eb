// An evaluation in the middle of a training run, whose scores a thread computes beside the steps that follow.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "base/log.h"
#include "evaluation/task.h"

// Draws what people look at of the facts in a run's folder; false with a message where it cannot.
typedef bool DrawFolder(const char *folder, Err *err);

typedef struct ReportTo {
  const char *folder;     // of the run; NULL: nowhere
  const char *trained_on; // data/batches/data_identity.h; NULL: nobody says
  double score;           // detections of at least that count in precision and recall, and in pictures
  DrawFolder *draw;       // called when an evaluation's facts are there, in the thread that scores; NULL: nobody
} ReportTo;

typedef struct Scoring { // zero-initialise; one at a time is under way
  bool under_way;
  int64_t step;
  const Dataset *d;
  const Task *task;
  ReportTo report;
  void *results;  // of the task; owned
  double start;   // of the evaluation: now_seconds()
  int cores;      // for the scores
  Metrics before; // known before the scores
  Metrics metrics;
  bool ok;
  Err err;       // !ok
  Err no_report; // why its facts could not be written, or not be drawn; "": they were
  atomic_bool done;
  bool apart; // in a thread
  pthread_t thread;
} Scoring;

// Scores a task's results, which it takes, on `cores` cores beside the caller, or before it returns where that is 0.
// The log holds later records back meanwhile. `start` is when the evaluation began. What `before` has, NULL: nothing,
// stands in the same record. What people want to know goes to `report`. The data set must outlive it.
void scoring_start(Scoring *s, const Task *task, const Dataset *d, void *results, ReportTo report, int cores, Log *log,
                   int64_t step, double start, const Metrics *before);
bool scoring_ready(const Scoring *s); // under way, and scoring_end would not wait
// Waits for the scores, and leaves them as a line for people and an "eval" record of all figures, which comes before
// the records held back. Does nothing when none is under way.
bool scoring_end(Scoring *s, Log *log, Err *err);
