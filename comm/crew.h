// Crew: memory shared by the supervisor of --gpus N and the ranks that it forked. Every member is written by one
// process at a time, except `said`, which is set by the first process whose message ends the run, and `stop`.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MAX_CREW = 1024 };

typedef struct Crew {
  pid_t supervisor;
  int ranks;
  atomic_int said;   // 0, or 1 + the exit status once a process has reported why the run ends: crew_claim
  atomic_int stop;   // the supervisor, or a rank, was asked to stop: the ranks save and end
  atomic_int over;   // the run ended in a way that would repeat: it is not restarted
  atomic_llong note; // a note from an attempt to the next one; 0: none
  atomic_llong beat; // counter of the supervisor's heartbeats, twice a second
  struct {
    _Atomic pid_t pid;
    atomic_llong step; // current step, for messages
  } rank[MAX_CREW];
} Crew;

// Whether this process is the one to report why the run ends, and with which status: others end without a message.
static inline bool crew_claim(Crew *crew, int code) {
  int nobody = 0;
  return atomic_compare_exchange_strong(&crew->said, &nobody, 1 + code);
}
// The status with which the run ends; 0: it continues.
static inline int crew_code(Crew *crew) {
  const int said = atomic_load(&crew->said);
  return said > 1 ? said - 1 : said;
}
