// Comm: the ranks of a run and their control messages. Every rank has two connections to rank 0: one for collectives
// over host memory, which all ranks call in the same order; and one on which a thread sends heartbeats, passes on
// requests to stop, and learns that the run ends (comm/watch.h). Collectives over device memory: comm/collective.h. A
// NULL Comm is a run with a single rank: everything returns at once.
//
// A collective whose peer is gone does not return: the watch ends the process, and one rank prints one line.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "comm/launch.h"

typedef struct Comm Comm;

typedef struct CommOptions {
  Launch launch;
  double meeting_seconds; // seconds that ranks wait for each other at the start
  double silence_seconds; // seconds without a heartbeat after which a rank is lost
} CommOptions;

// Meets the other ranks: checks that they know the run's key, have its build and world, and that every rank joins
// exactly once. False with a line that names ranks that are missing, duplicate or different. *out is NULL for
// world 1.
bool comm_open(Comm **out, const CommOptions *o, Err *err);
// Disconnects; every rank calls it. NULL is allowed.
void comm_close(Comm *c);

static inline bool comm_alone(const Comm *c) { return !c; }
int comm_rank(const Comm *c);  // 0 for a single rank
int comm_world(const Comm *c); // 1 for a single rank
const Launch *comm_launch(const Comm *c);
const char *comm_host(const Comm *c, int rank); // the rank's host name

// ---- collectives over host memory --------------------------------------------------------------------------------

// Whether every rank has the same text (options, data): compares each with rank 0's. If one differs, all ranks return
// false with the message of `same`, which says how, after the rank and host.
typedef bool CommSame(const char *of_rank_0, const char *other, Err *err);
bool comm_agree(Comm *c, const char *text, CommSame *same, Err *err);
// Called by every rank before all die with the same message: it is then printed once, without a rank.
void comm_all_know(Comm *c);
void comm_barrier(Comm *c);
void comm_broadcast_bytes(Comm *c, void *p, size_t bytes); // copies p of rank 0 to every rank
// The same for a text in `room` bytes, which is NUL-terminated on every rank.
void comm_broadcast_text(Comm *c, char *text, size_t room);

typedef struct CommPart {
  char *data;
  size_t bytes;
} CommPart;
// Gathers every rank's bytes on rank 0: part[world], each malloc'ed and followed by a NUL that does not count. On other
// ranks, and with a single rank, returns false and leaves `part` unchanged. No rank may have more than `most` bytes:
// rank 0 ends the run with a line about one that says so. Memory is taken as the bytes arrive.
bool comm_gather(Comm *c, const void *mine, size_t bytes, size_t most, CommPart *part);
// The same where every rank has as many bytes.
bool comm_gather_equal(Comm *c, const void *mine, size_t bytes, CommPart *part);

// ---- control: heartbeats, stops, ends ----------------------------------------------------------------------------

void comm_at(Comm *c, int64_t step); // the current step, for messages about this rank
// Whether any rank, or the supervisor, was asked to stop. Ranks see it at different times, so they must agree on when
// to stop.
bool comm_stop_asked(const Comm *c);
// `last` is called once before this process ends because another rank did, to save what must not be lost; it has a few
// seconds. NULL: nothing.
void comm_last(Comm *c, void (*last)(void *context), void *context);
// `check` is called about once a second by the watch, for errors that only another library notices; false ends the run
// with its message.
void comm_check(Comm *c, bool (*check)(void *context, Err *err), void *context);
