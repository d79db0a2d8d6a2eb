// The supervisor of --gpus N: a process that forks the ranks, watches them, and ends when they have ended. It never
// opens a device or starts a thread, so that ranks inherit everything that was set up before in a consistent state.
#pragma once
#include "comm/launch.h"

// Writes which checkpoint exists, and how to continue from it, into `text` of `room` bytes.
typedef void DescribeKept(void *context, char *text, size_t room);

typedef struct Supervision {
  int ranks;
  int restarts;       // how often a failed run is restarted
  DescribeKept *kept; // for messages: which checkpoint exists, and how to continue
  void *context;
} Supervision;

// Forks the ranks. Returns in every rank, with `l` filled; there, interrupted() (base/interrupt.h) becomes true when it
// gets SIGTERM or the supervisor is asked to stop; SIGINT and SIGHUP, which a terminal sends to all, are ignored. In
// the supervisor it does not return: it waits, passes on a request to stop, and ends all ranks on a second one. When a
// rank fails, it prints one line if no process has, gives the others GRACE seconds to end by themselves, kills the
// rest, and exits with the status of the failed one. `attempt`: the number of restarts before this one. The run is not
// restarted after a request to stop, after a user's mistake (EXIT_USAGE), or if crew->over is set.
//
// A rank that ends with a status other than 0 because it was asked to stop must set crew->stop before, so that this is
// not a failure.
enum { GRACE = 8 };
void supervise(const Supervision *s, Launch *l, int *attempt);
