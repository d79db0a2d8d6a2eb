// Crew: what the supervisor of --gpus N and the ranks that it forked share, a page of memory. Every member is written
// by one process at a time, but for `said`, which the first writes whose message ends the run, and `stop`.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MAX_CREW = 1024 };

typedef struct Crew {
  pid_t supervisor;
  int ranks;
  atomic_int said;   // 0, or 1 + the exit status, once somebody has said why the run ends: crew_claim
  atomic_int stop;   // the supervisor, or a rank, was asked to stop: the ranks save and end
  atomic_int over;   // the run has come to an end to which it would come again: nothing is started again
  atomic_llong note; // what an attempt leaves to the next one; 0: nothing
  atomic_llong beat; // of the supervisor, twice a second: one that is stopped or gone does not count on
  struct {
    _Atomic pid_t pid;
    atomic_llong step; // under way, for messages
  } rank[MAX_CREW];
} Crew;

// Whether this process is the one to say why the run ends, and with which status: others end without a word.
static inline bool crew_claim(Crew *crew, int code) {
  int nobody = 0;
  return atomic_compare_exchange_strong(&crew->said, &nobody, 1 + code);
}
// The status with which the run ends; 0: it goes on.
static inline int crew_code(Crew *crew) {
  const int said = atomic_load(&crew->said);
  return said > 1 ? said - 1 : said;
}
