// One session of a training run, as shared by all parts of the loop.
#pragma once
#include "comm/job.h"
#include "data/batches/loader.h"
#include "engine/engine.h"
#include "nn/optim.h"
#include "training/divergence.h"
#include "training/examined.h"
#include "training/options.h"
#include "training/run_files.h"
#include "training/run_time.h"
#include "training/step_parts.h"
#include "training/time_to_target.h"

// From opened data to closed files. All ranks run it; only rank 0 has files and prints.
typedef struct TrainingRun {
  const TrainSpec o; // its strings belong to main
  SessionStart start;
  DrawFolder page;
  int rollbacks; // number of rollbacks before this session
  double left;   // the rate of the previous session, which diverged
  Job *job;
  Comm *comm; // borrowed from the job; NULL: a single rank
  const Model *model;
  Engine engine;
  Dataset *train, *val;                  // val NULL: no evaluation data
  const TrainExamined *examined;         // both splits; n is 0 if nothing is trained
  double build_seconds;                  // of opening the engine
  int64_t steps, first, last, per_epoch; // of the whole run; of this call
  int64_t done;                          // when the loop ended
  Schedule schedule;
  char *identity; // what a resumed run must share
  // The data that its weights were trained on: data/batches/data_identity.h; NULL: the run writes no weights.
  char *trained_on;
  char *held_out;       // what was held out of it: data/batches/holdout.h; NULL: nothing
  Record amended;       // what --amend changed
  RunFiles files;       // used on rank 0
  TargetsOfLog targets; // likewise
  int64_t at;           // the current step, for messages
  Err trouble;          // an error, such as unreadable images, that ends the run once its state is saved; "" = none
  bool asked;           // all ranks have agreed to stop
  bool is_void;         // all ranks have agreed to end because one has no batch
  double scale[3];      // from engine_get_scale, after the last step that was not void
  StepParts step_parts; // for run.json
  RunTime time;         // likewise
  Record results;       // results so far, for run.json: an object
  bool diverged;
  Divergence divergence;
  struct Stopping *stopping; // NULL: not in the loop
} TrainingRun;

typedef enum Outcome { RUN_COMPLETE, RUN_STOPPED, RUN_DIVERGED } Outcome;

// Whether this rank has the files and prints.
bool run_leads(const TrainingRun *r);
// Returns rank 0's decision on every rank; every rank calls it.
bool run_as_first(const TrainingRun *r, bool decision);
