// An evaluation during a training run: a thread computes its scores while steps continue.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "base/log.h"
#include "evaluation/task.h"

// Draws the page from the facts in a run's folder; false with a message on failure.
typedef struct DrawFolder {
  bool (*draw_page)(void *context, const char *folder, Err *err); // NULL: there is none
  void *context;
} DrawFolder;

typedef struct ReportTo {
  const char *folder;     // the run's folder; NULL: nothing is written
  const char *trained_on; // data/batches/data_identity.h; NULL: unknown
  double score;           // detections with at least that score count in precision and recall, and are drawn
  DrawFolder page;        // drawn in the scoring thread when an evaluation's facts have been written
} ReportTo;

typedef struct Scoring { // zero-initialise; one at a time
  bool under_way;
  int64_t step;
  const Dataset *d;
  const Task *task;
  ReportTo report;
  void *results;  // the task's; owned
  double start;   // when the evaluation began: now_seconds()
  int cores;      // cores for scoring
  Metrics before; // metrics known before scoring
  Metrics metrics;
  bool ok;
  Err err;       // !ok
  Err no_report; // why the facts could not be written or drawn; "": no failure
  atomic_bool done;
  bool is_said; // the scores have been waited for and printed
  double end;   // when that was
  bool apart;   // runs in a thread
  pthread_t thread;
} Scoring;

// Scores a task's results, of which it takes ownership, on `cores` cores in a thread, or synchronously if that is 0.
// The log holds back later records meanwhile. `start` is when the evaluation began. The members of `before` (NULL:
// none) are added to the same record. The report goes to `report`. The data set must outlive it.
void scoring_start(Scoring *s, const Task *task, const Dataset *d, void *results, ReportTo report, int cores, Log *log,
                   int64_t step, double start, const Metrics *before);
bool scoring_ready(const Scoring *s); // in progress, and scoring_end would not wait
// Waits for the scores and prints them as a line; `metrics` has them if `ok`.
void scoring_wait(Scoring *s, Log *log);
// The same, and then logs an "eval" record of all metrics, before the records held back. Does nothing if no scoring is
// in progress.
bool scoring_end(Scoring *s, Log *log, Err *err);
