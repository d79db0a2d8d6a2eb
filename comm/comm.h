// Comm: the ranks of a run and their control messages. Every rank holds two connections to rank 0: one for collectives
// over bytes in host memory, which all ranks call in the same order; and one on which a thread tells that it lives,
// asks all ranks to stop, and learns that the run ends (comm/watch.h). Collectives over device memory:
// comm/collective.h. A NULL Comm is a run of one rank: everything returns at once.
//
// A collective whose peer is gone does not return: the watch ends the process, by one line on one rank.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "comm/launch.h"

typedef struct Comm Comm;

typedef struct CommOptions {
  Launch launch;
  double meeting_seconds; // how long ranks wait for each other at the beginning
  double silence_seconds; // after which a rank that does not tell that it lives is lost
} CommOptions;

// Meets the other ranks: checks magic, version (of the protocol and of the build), token and world, and that every rank
// is there once. False with a line that names who is missing, who came twice or who differs. *out is NULL for world 1.
bool comm_open(Comm **out, const CommOptions *o, Err *err);
// Says goodbye; every rank calls it. NULL is fine.
void comm_close(Comm *c);

static inline bool comm_alone(const Comm *c) { return !c; }
int comm_rank(const Comm *c);  // 0 when alone
int comm_world(const Comm *c); // 1 when alone
const Launch *comm_launch(const Comm *c);
const char *comm_host(const Comm *c, int rank); // its host's name

// ---- what is agreed over host memory -----------------------------------------------------------------------------

// Whether every rank has this text (how it learns, what from): compares each with rank 0's. Where they differ all ranks
// get the message of `same`, which says how, with the rank and host in front, and false.
typedef bool CommSame(const char *of_rank_0, const char *other, Err *err);
bool comm_agree(Comm *c, const char *text, CommSame *same, Err *err);
// All ranks have the same message and die by it next: it is said once, without a rank in front. Every rank calls it.
void comm_all_know(Comm *c);
void comm_barrier(Comm *c);
void comm_broadcast_bytes(Comm *c, void *p, size_t bytes); // of rank 0

typedef struct CommPart {
  char *data;
  size_t bytes;
} CommPart;
// Every rank's bytes, by rank, on rank 0: part[world], each malloc'ed. On the others, and alone, `part` is left alone,
// and false returned: alone there is nothing to gather.
bool comm_gather(Comm *c, const void *mine, size_t bytes, CommPart *part);

// ---- control: liveness, stops, ends ---------------------------------------------------------------------------------

void comm_at(Comm *c, int64_t step); // that is under way, for messages about this rank
// Whether any rank, or the supervisor, was asked to stop. Ranks see it at different moments: agree on when.
bool comm_stop_asked(const Comm *c);
// Called once, on this rank, before the process ends because another rank did: what must not be lost, in a few seconds.
// NULL: nothing.
void comm_last(Comm *c, void (*last)(void *context), void *context);
// For errors that only another library notices: called about once a second by the watch; a message ends the run.
void comm_check(Comm *c, bool (*check)(void *context, Err *err), void *context);
