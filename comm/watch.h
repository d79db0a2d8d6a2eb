// Watch: a thread of every rank that owns its control connections. Twice a second it tells that this rank lives and
// which step is under way, spreads requests to stop, and ends the process when the run is over because a rank has
// failed, has vanished or is silent, or because the supervisor is. Of all processes one says why: die() says it here.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "comm/launch.h"
#include "comm/rendezvous.h"

typedef struct Watch Watch;

// Takes the meeting's control connections over; l and peer are not copied.
Watch *watch_open(const Launch *l, const Peer *peer, int *control, double silence_seconds);
void watch_close(Watch *w); // says goodbye; all ranks do so together, after a barrier

void watch_at(Watch *w, int64_t step);
bool watch_stop_asked(const Watch *w);
void watch_last(Watch *w, void (*last)(void *context), void *context);
void watch_check(Watch *w, bool (*check)(void *context, Err *err), void *context);
// Every rank has the same message and will end by it: rank 0 says it, as it is.
void watch_all_know(Watch *w);
// A data connection has ended; the reason is on its way. Does not return.
NORETURN void watch_wait_for_end(Watch *w, int rank);
