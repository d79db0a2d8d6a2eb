// Links: what a Comm is to the files of comm/, and exact pieces of bytes between two ranks, of which its collectives
// over host memory, and those of comm/collective.c on the CPU, consist.
//
// Only rank 0 has a data connection to every rank; the others have one, to rank 0. Sockets hold little: whoever sends
// waits until the other end receives. So that nobody waits in a circle, a collective goes in rounds, in each of which
// every other rank sends all that it has for rank 0 before it receives, and rank 0 receives from all, in the order of
// ranks, before it sends to any. Large buffers take several rounds, so that rank 0 needs room for one piece of each.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "comm/hello.h"
#include "comm/launch.h"
#include "comm/watch.h"
#include "nn/collective.h"

typedef struct Comm {
  RankGroup group; // first: what nodes of a graph know of it
  Launch launch;
  int rank, world; // 2 at least
  int *data;       // [world] sockets; -1 where there is none: rank 0 has all but its own, the others have [0]
  Peer *peer;      // [world] who they are
  Watch *watch;    // owns the control connections
  void *nccl;      // comm/collective.c's; NULL until collective_open
} Comm;

// All bytes, or no return: the watch ends the process when the other rank is gone. From one thread at a time.
void comm_send(Comm *c, int to, const void *p, size_t bytes);
void comm_recv(Comm *c, int from, void *p, size_t bytes);
