// Rendezvous: how the ranks of a run find each other. Rank 0 listens where it was told to and takes whoever proves to
// be a rank of this run, twice: once for data, once for control. Anybody can connect: what comes is a stranger's until
// its hello is checked, is bounded, and holds nobody up.
#pragma once
#include <stdbool.h>
#include "comm/hello.h"
#include "comm/launch.h"
#include "comm/wire.h"

typedef struct Meeting {
  int *data;     // [world] sockets; -1 where there is none: rank 0 has all but its own, the others have [0]
  Wire *control; // [world], likewise; what came behind the welcome is still in it
  Peer *peer;    // [world]
} Meeting;

// False with a line after `seconds` at the latest, or when this process is asked to stop. *others_say: another process
// says that line, for all. Afterwards, meeting_close in any case.
bool rendezvous(Meeting *m, const Launch *l, double seconds, bool *others_say, Err *err);
void meeting_close(Meeting *m, int world); // closes and frees what is still in it
