// Rendezvous: how the ranks of a run find each other. Rank 0 listens where it was told to and takes whoever proves to
// be a rank of this run, twice: once for data, once for control. Anybody can connect: what comes is a stranger's until
// its hello is checked, is bounded, and holds nobody up.
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "base/util.h"
#include "comm/launch.h"

// A rank, as all know it after they met.
typedef struct Peer {
  char host[64];
  char place[40]; // kernel and namespaces: in the same place processes can signal each other
  pid_t pid;
} Peer;

typedef struct Meeting {
  int *data, *control; // [world] sockets; -1 where there is none: rank 0 has all but its own, the others have [0]
  Peer *peer;          // [world]
} Meeting;

// False with a line after `seconds` at the latest, or when this process is asked to stop. *others_say: that line is
// rank 0's, which says it for all. Afterwards, meeting_close in any case.
bool rendezvous(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err);
void meeting_close(Meeting *m); // closes what is still in it
