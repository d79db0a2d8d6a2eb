// run.json: one JSON object that describes a run, written at its beginning, at the end of each phase and at its end:
// data and model, settings, machine, and results so far.
#pragma once
#include "base/run_folder.h"
#include "training/run.h"

#define RUN_IS_COMPLETE "complete"

typedef struct RunStanding {
  const char *state;   // RUN_GOES_ON, RUN_IS_COMPLETE, "stopped", "diverged"
  const char *warning; // an additional warning; NULL: none
  const char *repair;  // the command that continues after what the warning describes; NULL: none
  int64_t step;        // the run's current step
} RunStanding;

// Whether a phase or, without phases, the run ends after `step` steps.
bool run_record_phase_ends(const TrainingRun *r, int64_t step);
// Reads the run's results up to `step` from its log, for which nothing may be in progress.
bool run_record_read(TrainingRun *r, int64_t step, Err *err);
// Writes OUT/run.json as a whole, with what was read last.
//   state, model, data, device, classes, images, val_images; trained_on, scored_on (data_identity_record)
//   step, steps, complete; batch, world, per_epoch
//   parameters     trained or not
//   build_seconds  opening the device, building and planning the graphs, taking memory; of this process
//   the members of record_origin; settings: every option with its source, as settings_record writes them
//   the members of training/run_facts.h and training/run_results.h
bool run_record_write(const TrainingRun *r, const RunStanding *s, Err *err);
