// The initial state of a run of ./train: random weights, those of --weights or, with --resume, its own checkpoint.
#pragma once
#include "base/record.h"
#include "data/batches/dataset.h"
#include "training/options.h"
#include "training/run_files.h"

// How a session begins: by the options or, after a divergence or a restart, differently.
typedef struct SessionStart {
  int resume; // RESUME_…
  bool amend;
  float lr; // after a rollback; 0: as in the options
} SessionStart;

// Loads the engine's weights and returns the steps done. A checkpoint must belong to a run of this identity, except for
// what --amend changes, which is added to `changes`. A mistake prints one line and exits 2; folders that hold another
// run's weights are not touched.
// The caller frees *trained_on: the list of data on which the weights, and now this run, are trained
// (data/batches/data_identity.h). A checkpoint must have been trained on `train`'s data; one that does not record its
// data is accepted with a note.
int64_t start_weights(const TrainSpec *o, const SessionStart *how, Engine *e, const Dataset *train, const RunFiles *f,
                      const char *identity, char **trained_on, Record *changes);
