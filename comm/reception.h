// Reception: rank 0's side of the rendezvous.
#pragma once
#include "comm/meeting.h"

// Accepts connections on a listening socket until all ranks have joined. `where` is for messages. If it fails, rank 0
// sends the reason to all ranks, but only rank 0 prints it.
//
// What is wrong with a connection is said in one line, the first time that this kind of mistake occurs. If the key is a
// secret, a contradiction (two of one rank, another world or build) ends the run for all; if it is not, anybody may
// have said it: that connection is refused, and rank 0 goes on waiting.
bool reception(Meeting *m, const Launch *l, int listener, const char *where, double seconds, bool *others_say,
               Err *err);
