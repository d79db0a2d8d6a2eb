// The supervisor of --gpus N: a process that forks the ranks, owns them, and ends when they have ended. It never opens
// a device and starts no thread, so that ranks begin with everything that was set up before, and nothing half awake.
#pragma once
#include "comm/launch.h"

typedef struct Supervision {
  int ranks;
  int restarts;                                         // how often a run that failed is started again
  void (*kept)(void *context, char *text, size_t room); // for messages: which checkpoint stands, and what continues
  void *context;
} Supervision;

// Forks. In every rank it returns, with `l` filled. In the supervisor it does not return: it waits, hands requests to
// stop on, ends the others when one fails, says which, and exits with their status. `attempt` counts from 0: the
// restarts before this one.
void supervise(const Supervision *s, Launch *l, int *attempt);
