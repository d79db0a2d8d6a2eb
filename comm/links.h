// Links: the internals of a Comm, for the files of comm/, and transfers of bytes between two ranks, of which its
// collectives over host memory, and those of comm/collective.c on the CPU, consist.
//
// Only rank 0 has a data connection to every rank; the others have one, to rank 0. Sockets buffer little: a sender
// waits until the other end receives. To avoid deadlocks, a collective consists of steps, in each of which every other
// rank sends everything it has for rank 0 before it receives, and rank 0 receives from all, in the order of ranks,
// before it sends to any. Large buffers take several steps, so that rank 0 needs memory for only one piece of each.
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
  RankGroup group; // first: the ranks in the form for graphs
  Launch launch;
  int rank, world; // world is at least 2
  int *data;       // [world] sockets, or -1: rank 0 has all but its own, the others have [0]
  Peer *peer;      // [world] the ranks
  Watch *watch;    // owns the control connections
  void *nccl;      // state of comm/collective.c; NULL until collective_open
} Comm;

// Transfers all bytes; does not return if the other rank is gone, because the watch then ends the process. One thread
// at a time.
void comm_send(Comm *c, int to, const void *p, size_t bytes);
void comm_recv(Comm *c, int from, void *p, size_t bytes);
