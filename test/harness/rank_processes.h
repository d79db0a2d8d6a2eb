// RankProcesses as processes of their own, forked from the test: what they say together, and how each ends.
#pragma once
#include <sys/types.h>
#include "comm/comm.h"

enum { MAX_TEST_RANKS = 8 };

typedef struct RankProcesses {
  int world;
  CommOptions options;                 // of all; `before` may change its rank's
  void (*before)(CommOptions *o);      // in the rank, before it meets the others; NULL: nothing
  void (*run)(Comm *c, void *context); // in the rank, when they have met
  void *context;
  pid_t pid[MAX_TEST_RANKS];
  int status[MAX_TEST_RANKS]; // exit statuses, or minus the signal
  int ready[2], listener;     // a pipe; a socket
  int output, input;          // another
  char said[1 << 14];         // by all, on stderr
} RankProcesses;

// Readies ranks that meet at a port of this host; -1 as silence: as long as a test lasts.
void processes_init(RankProcesses *r, int world, void (*run)(Comm *c, void *context), void *context, double silence);
void processes_fork(RankProcesses *r, int rank); // -1: all
void processes_tell(const RankProcesses *r);     // in a rank: it is ready
void processes_await(RankProcesses *r, int n);   // that so many are ready
// Until all are gone. Those that this process did not fork itself have no status.
void processes_end(RankProcesses *r);
int processes_lines(const RankProcesses *r); // how many were said
