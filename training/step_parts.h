// Where the time of a step goes, part by part, of a few steps of each session: enough for a run's page, and so few that
// they hold nothing up. Steps that are timed are queued by the host, node by node, with the same results.
#pragma once
#include "engine/engine.h"

enum { STEP_PARTS = 24 };
typedef struct StepParts { // zero-initialise
  bool timing;             // now
  int steps;               // that were timed
  int parts;
  struct {
    char name[32];
    double forward, backward; // seconds, means over the steps
  } part[STEP_PARTS];
  double update, transfer; // of all steps that were timed: sums of seconds
  int results;             // how many steps these are of
} StepParts;

// Before step `i` of a session of `steps`, from 0, is started: begins to time, or ends it and reads what came of it;
// true where that has just been read. A short session is not timed, nor are steps that somebody else times.
bool step_parts_before(StepParts *p, Engine *e, int64_t i, int64_t steps);
// The result of a step that may have been timed.
void step_parts_result(StepParts *p, const StepResult *s);
