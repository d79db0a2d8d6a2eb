// The supervisor of --gpus N: a process that forks the ranks, owns them, and ends when they have ended. It never opens
// a device and starts no thread, so that ranks begin with everything that was set up before, and nothing half awake.
#pragma once
#include "comm/launch.h"

// Writes which checkpoint stands, and what continues, into `text` of `room` bytes.
typedef void DescribeKept(void *context, char *text, size_t room);

typedef struct Supervision {
  int ranks;
  int restarts;       // how often a run that failed is started again
  DescribeKept *kept; // for messages: which checkpoint stands, and what continues
  void *context;
} Supervision;

// Forks. In every rank it returns, with `l` filled; from there on interrupted() (base/interrupt.h) is true in it once
// it gets SIGTERM or the supervisor is asked to stop; SIGINT and SIGHUP, which a terminal sends to all, are ignored. In
// the supervisor it does not return: it waits, tells of requests to stop, ends all ranks on a second one, and when a
// rank fails says so by one line where nobody has, gives the others GRACE seconds to end by themselves, kills those
// that are left, and exits with the status of the one that failed. `attempt` counts from 0: the restarts before this
// one. Nothing is started again after a request to stop, after a mistake of the user's (EXIT_USAGE), or where
// crew->over is set.
//
// A rank that ends because it was asked to, with a status other than 0, has crew->stop set before, so that this is no
// failure.
enum { GRACE = 8 };
void supervise(const Supervision *s, Launch *l, int *attempt);
