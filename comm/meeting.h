// Meeting: the connections that the ranks of a run have when they have found each other, and who they are.
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

void meeting_open(Meeting *m, int world);  // with nobody in it
void meeting_close(Meeting *m, int world); // closes and frees what is still in it

// Why this process should wait no longer, but for the time: it is asked to stop, or its run is over.
bool meeting_is_off(const Launch *l, bool *others_say, Err *err);
