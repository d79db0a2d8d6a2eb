// Times a step's parts in a few steps of each session: few enough to cost nothing noticeable. Timed steps are queued by
// the host, node by node, with the same results.
#pragma once
#include "engine/engine.h"

enum { STEP_PARTS = 24 };
typedef struct StepParts { // zero-initialise
  bool timing;             // timing now
  int steps;               // number of steps timed
  int parts;
  struct {
    char name[32];
    double forward, backward; // seconds, means over the steps
  } part[STEP_PARTS];
  double update, transfer; // over all timed steps: sums of seconds
  int results;             // number of steps in these sums
} StepParts;

// Before step `i` of a session of `steps`, from 0, is started: begins timing, or ends it and reads the results; true if
// it has just read them. Short sessions are not timed, nor are steps that are being timed elsewhere.
bool step_parts_before(StepParts *p, Engine *e, int64_t i, int64_t steps);
// The result of a step that may have been timed.
void step_parts_result(StepParts *p, const StepResult *s);
