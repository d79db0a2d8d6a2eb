// Reception: rank 0's side of the rendezvous.
#pragma once
#include "comm/meeting.h"

// Takes whoever comes to a socket that listens until everybody is there. `where` is for messages, `nonce` that of the
// file that ranks come by. What everybody is told when it fails, they leave to rank 0 to say.
bool reception(Meeting *m, const Launch *l, int listener, const char *where, const char *nonce, double seconds,
               bool *others_say, Err *err);
