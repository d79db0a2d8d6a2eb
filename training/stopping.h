// Ends a run that was asked to stop while a step, an evaluation or its end takes long. A thread does it, whatever the
// others compute; what the last whole step has left is saved first.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "training/run.h"

typedef struct Stopping {
  TrainingRun *run;
  pthread_mutex_t lock; // held by the thread of the steps, but for the times when `whole` says what the engine has
  int64_t whole;        // steps of the run that are done
  bool in_step;         // one more has begun to compute
  atomic_bool over;     // the loop has ended
  void *untrained;      // the parameters that are not trained before it; NULL: a step does not change them
} Stopping;

void stopping_begin(Stopping *s, TrainingRun *r);
void stopping_end(Stopping *s);
// Around a wait between two steps, `whole` of which are done.
void stopping_wait_begins(Stopping *s, int64_t whole);
void stopping_wait_ends(Stopping *s);
