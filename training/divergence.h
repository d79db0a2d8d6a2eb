// Handles a step whose losses or gradient are not finite. Such a step changes nothing.
#pragma once
#include "training/options.h"
#include "training/run_files.h"
#include "training/start.h"

typedef struct Divergence {
  int64_t step;
  double rate;       // the schedule's rate, before decay
  char losses[256];  // "loss_mask inf, …, gradient norm nan"
  char images[1024]; // names of files
} Divergence;

// Describes step `step`, whose result is r.
void divergence_take(Divergence *d, const Model *m, const Dataset *data, int images, int64_t step, double rate,
                     const StepResult *r);
// On rank 0: gathers the images of all ranks. Every rank calls it.
void divergence_gather(Divergence *d, Comm *comm);
// Prints one line: what was not finite, where, and which checkpoints exist.
void divergence_explain(const Divergence *d, const RunFiles *f, Err *out);
// The command that continues with half the rate from the older checkpoint or, without one, starts again: the run's own
// command with the changed options replaced. Caller frees.
char *divergence_command(const Divergence *d, const TrainSpec *o, const RunFiles *f);
// Prepares the next session: with half the rate from the older checkpoint, otherwise from the only one, otherwise from
// the beginning. False if the existing checkpoint has already begun to diverge.
bool divergence_roll_back(const Divergence *d, const RunFiles *f, SessionStart *next);
enum { MAX_ROLLBACKS = 3 };
// Why a run that was rolled back `rollbacks` times is not rolled back now; malloc'ed. NULL: it is.
char *divergence_no_roll_back(const Divergence *d, int rollbacks, const RunFiles *f);

// The number of rollbacks and the current rate, as a non-zero number: until the first checkpoint at that rate, no file
// records them.
int64_t rollback_note(int times, float lr);
void rollback_of_note(int64_t note, int *times, float *lr);
