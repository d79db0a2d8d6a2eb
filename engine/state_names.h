// What our checkpoint files hold of a parameter, for writers and readers.
#pragma once
#include "engine/snapshot.h"

// The weights that inference reads, under the parameters' own names: the averages where there are any. Training then
// goes on from the values that are not averaged.
enum { STATE_WEIGHTS, STATE_MOMENTUM, STATE_SECOND, STATE_UNAVERAGED, STATE_PARTS };
static const char *const state_prefix[STATE_PARTS] = {"", "momentum.", "second_moment.", "unaveraged."};

// Whether files for resuming have it.
static inline bool state_resumes_from(const Params *p, const Param *q, int part) {
  const bool there[STATE_PARTS] = {true, q->trainable, q->trainable && p->adam, q->trainable && p->averages};
  return there[part];
}

// Where it is.
static inline SnapshotPart state_place(const Params *p, const Param *q, int part) {
  const SnapshotPart of[STATE_PARTS] = {q->trainable && p->averages ? SNAPSHOT_AVERAGE : SNAPSHOT_MASTER,
                                        SNAPSHOT_MOMENTUM, SNAPSHOT_SECOND, SNAPSHOT_MASTER};
  return of[part];
}
