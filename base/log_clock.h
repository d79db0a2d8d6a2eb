// The time that a run has taken, over all its sessions, from its log. Each session has a clock of its own, which begins
// when its log is opened: "seconds" of steps and "clock" of evaluations are of that one; "session" beside them is the
// step that it resumes at.
#pragma once
#include <math.h>
#include "base/json.h"

typedef struct ClockRecord { // what matters of a record
  bool eval;                 // whether it is an evaluation's
  int64_t step;
  int64_t session; // 0: the first, or it does not say
  double at;       // since the log was opened; NaN: it does not say
  double took;     // the evaluation
} ClockRecord;

#define CLOCK_RECORD_NONE ((ClockRecord){.at = NAN})
// Reads the member if it is one of these; else it is not touched, and false.
bool clock_record_member(ClockRecord *r, Json *j, const char *key);

typedef struct RunClock { // zero-initialise
  double before;          // of sessions that have ended
  double last;            // the largest clock of this one
  double steps;           // of its last step
  int64_t session;        // this one
} RunClock;

// The log's records, in its order. True: a session begins with this one.
bool run_clock_take(RunClock *c, const ClockRecord *r);
double run_clock_now(const RunClock *c); // seconds of all sessions until the last record

typedef struct RunSession {
  int64_t first; // the step that it goes on behind
  double before; // seconds of the sessions before it
} RunSession;

typedef struct RunSessions { // zero-initialise
  RunSession *session;
  int n;
  size_t cap;
  double seconds; // of all
} RunSessions;

// Of a log.jsonl, of which a last line may be cut short. Release in any case.
bool run_sessions_read(RunSessions *s, const char *path, Err *err);
// Of the sessions before the one that made the step.
double run_sessions_before(const RunSessions *s, int64_t step);
void run_sessions_free(RunSessions *s);
