// Watch: a thread of every rank that owns its control connections. Twice a second it tells that this rank lives and
// which step is under way, spreads requests to stop, and ends the process when the run is over because a rank has
// failed, has vanished or is silent, or because the supervisor is. Of all processes one says why, by one line:
//
//   a rank that fails (die, CHECK)      itself; without a supervisor by rank 0, if that answers within a second
//   a rank that vanishes                the supervisor; without one rank 0, and of rank 0 the first other rank of its
//                                       place or, where it has none, the first of every place
//   a rank that is silent               rank 0; of rank 0 itself as above
//   a supervisor that is gone or silent rank 0
//
// A watch that finds that it was stopped itself (Ctrl-Z, then fg) begins to count anew, and accuses nobody.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "comm/hello.h"
#include "comm/launch.h"

typedef struct Watch Watch;

// Takes the control connections over: [world], as in a Meeting. l and peer stay the caller's.
Watch *watch_open(const Launch *l, const Peer *peer, Wire *control, double silence_seconds);
void watch_close(Watch *w); // says goodbye; all ranks do so together, after a barrier

void watch_at(Watch *w, int64_t step);
bool watch_stop_asked(const Watch *w);
void watch_last(Watch *w, void (*last)(void *context), void *context);
void watch_check(Watch *w, bool (*check)(void *context, Err *err), void *context);
// Every rank has the same message and will end by it: rank 0 says it, as it is.
void watch_all_know(Watch *w);
// The data connection with a rank has ended: the reason is on its way, and ends the process.
NORETURN void watch_wait_for_end(Watch *w, int rank);
