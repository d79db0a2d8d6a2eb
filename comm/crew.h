// Crew: what the supervisor of --gpus N and the ranks that it forked share, a page of memory. Every member is written
// by one process, but for `said` and `code`, which the first writes whose message ends the run.
#pragma once
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum { MAX_CREW = 1024 };

typedef struct Crew {
  pid_t supervisor;
  int ranks;
  atomic_int said;   // somebody has said why the run ends: others end without a word
  atomic_int stop;   // the supervisor was asked to stop: the ranks save and end
  atomic_llong beat; // of the supervisor, twice a second: one that is stopped or gone does not count on
  struct {
    _Atomic pid_t pid;
    atomic_llong step; // under way, for messages
  } rank[MAX_CREW];
} Crew;
