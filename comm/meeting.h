// Meeting: the connections between the ranks of a run after the rendezvous, and who the ranks are.
#pragma once
#include <stdbool.h>
#include "comm/hello.h"
#include "comm/launch.h"
#include "comm/wire.h"

typedef struct Meeting {
  int *data;     // [world] sockets, or -1: rank 0 has all but its own, the others have [0]
  Wire *control; // [world], likewise; may hold frames that arrived after the welcome
  Peer *peer;    // [world]
} Meeting;

void meeting_open(Meeting *m, int world);  // an empty meeting
void meeting_close(Meeting *m, int world); // closes and frees the connections that are still in it

// Whether this process should stop waiting for another reason than the time: it was asked to stop, or its run is over.
bool meeting_is_off(const Launch *l, bool *others_say, Err *err);
