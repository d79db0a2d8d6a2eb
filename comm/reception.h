// Reception: rank 0's side of the rendezvous.
#pragma once
#include "comm/meeting.h"

// Accepts connections on a listening socket until all ranks have joined. `where` is for messages, `nonce` is that of
// the rendezvous file. If it fails, rank 0 sends the reason to all ranks, but only rank 0 prints it.
bool reception(Meeting *m, const Launch *l, int listener, const char *where, const char *nonce, double seconds,
               bool *others_say, Err *err);
