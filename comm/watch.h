// Watch: a thread of every rank that owns its control connections. Twice a second it sends a heartbeat with the current
// step; it passes on requests to stop, and ends the process when the run is over because a rank has failed, vanished or
// is silent, or because the supervisor has. It signals no other rank: they are their supervisor's or launcher's to end.
// One of all processes prints why, in one line:
//
//   a rank that fails (die, CHECK)      itself; without a supervisor by rank 0, if that answers within a second
//   a rank that vanishes                the supervisor; without one rank 0, and for rank 0 the first other rank on its
//                                       host or, if there is none, the first on each of the others
//   a rank that is silent               rank 0; for rank 0 itself the first other rank on each host
//   a supervisor that is gone or silent rank 0
//
// Hosts are the names that ranks gave: a wrong one changes who speaks. What another rank sends ends this process with
// EXIT_RUN or EXIT_USAGE, whatever code it names, and a line of another rank begins with the rank that sent it.
//
// A watch that notices that it was stopped itself (Ctrl-Z, then fg) starts counting again, and accuses nobody.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "comm/hello.h"
#include "comm/launch.h"

typedef struct Watch Watch;

// Takes ownership of the control connections: [world], as in a Meeting. l and peer are borrowed.
Watch *watch_open(const Launch *l, const Peer *peer, Wire *control, double silence_seconds);
void watch_close(Watch *w); // disconnects; all ranks do so together, after a barrier

void watch_at(Watch *w, int64_t step);
bool watch_stop_asked(const Watch *w);
void watch_last(Watch *w, void (*last)(void *context), void *context);
void watch_check(Watch *w, bool (*check)(void *context, Err *err), void *context);
// Every rank has the same message and will end with it: rank 0 prints it unchanged.
void watch_all_know(Watch *w);
// Called when the data connection with a rank has ended: waits for the watch to receive the reason and end the process.
NORETURN void watch_wait_for_end(Watch *w, int rank);
