// What is said and done about a step whose losses or gradient are not finite. Such a step changes nothing.
#pragma once
#include "training/options.h"
#include "training/run_files.h"
#include "training/start.h"

typedef struct Divergence {
  int64_t step;
  double rate;       // of the schedule, before decay
  char losses[256];  // "loss_mask inf, …, gradient norm nan"
  char images[1024]; // names of files
} Divergence;

// Of step `step`, whose result is r.
void divergence_take(Divergence *d, const Model *m, const Dataset *data, int images, int64_t step, double rate,
                     const StepResult *r);
// On the first rank: the images of all ranks. Every rank calls it.
void divergence_gather(Divergence *d, Comm *comm);
// One line: what was not finite, where, and which checkpoints there are.
void divergence_explain(const Divergence *d, const RunFiles *f, Err *out);
// The command that goes on with half the rate from the older checkpoint or, where there is none, begins again: the
// run's own, in which the options that change are replaced. Caller frees.
char *divergence_command(const Divergence *d, const TrainSpec *o, const RunFiles *f);
// The session that follows: with half the rate from the older checkpoint or, where there is none, from the one there
// is; from the beginning, where there is none at all. False where what there is has begun to diverge itself.
bool divergence_roll_back(const Divergence *d, const RunFiles *f, SessionStart *next);

// How often a run was rolled back, and to which rate, as a number that is not 0: no checkpoint tells it before the
// first one at that rate.
int64_t rollback_note(int times, float lr);
void rollback_of_note(int64_t note, int *times, float *lr);
