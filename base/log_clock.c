#include "base/log_clock.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json_lines.h"

// ---- records --------------------------------------------------------------------------------------------------------

static void read_clock(Json *j, ClockRecord *r) {
  const char *key;
  if (!json_begin_object(j)) return;
  while ((key = json_key(j)))
    if (!strcmp(key, "at"))
      r->at = json_number(j);
    else if (!strcmp(key, "took"))
      r->took = json_number(j);
    else if (!strcmp(key, "session"))
      r->session = json_int(j);
    else
      json_skip(j);
}

bool clock_record_member(ClockRecord *r, Json *j, const char *key) {
  const bool number = json_peek(j) == JSON_NUMBER;
  if (!strcmp(key, "step") && number)
    r->step = json_int(j);
  else if (!strcmp(key, "kind"))
    r->eval = !strcmp(json_string(j, NULL), "eval");
  else if (!strcmp(key, "seconds") && number)
    r->at = json_number(j);
  else if (!strcmp(key, "session") && number)
    r->session = json_int(j);
  else if (!strcmp(key, "clock"))
    read_clock(j, r);
  else
    return false;
  return true;
}

// ---- the clock ------------------------------------------------------------------------------------------------------

double run_clock_now(const RunClock *c) { return c->before + c->last; }

// A log may not say its sessions: there a clock that is behind a step's is another one's. One behind an evaluation's is
// not: steps go on beside its scores, and their records follow.
bool run_clock_take(RunClock *c, const ClockRecord *r) {
  if (isnan(r->at)) return false;
  const bool begins = r->session != c->session || r->at < c->steps;
  if (begins) *c = (RunClock){.before = run_clock_now(c), .session = r->session};
  c->last = fmax(c->last, r->at);
  if (!r->eval) c->steps = r->at;
  return begins;
}

// ---- a log ----------------------------------------------------------------------------------------------------------

static void add_session(RunSessions *s, int64_t first, double before) {
  array_reserve((void **)&s->session, &s->cap, (size_t)s->n + 1, sizeof *s->session);
  s->session[s->n++] = (RunSession){first, before};
}

typedef struct SessionsOfLog {
  RunSessions *sessions;
  RunClock clock;
} SessionsOfLog;

static bool take_line(Json *line, void *context) {
  SessionsOfLog *l = context;
  ClockRecord r = CLOCK_RECORD_NONE;
  const char *key;
  if (json_begin_object(line))
    while ((key = json_key(line)))
      if (!clock_record_member(&r, line, key)) json_skip(line);
  // Where the log does not say: before this step, or behind the step of an evaluation that is made again.
  const int64_t resumed = r.session ? r.session : r.eval ? r.step : r.step - 1;
  if (run_clock_take(&l->clock, &r)) add_session(l->sessions, resumed, l->clock.before);
  return true;
}

bool run_sessions_read(RunSessions *s, const char *path, Err *err) {
  SessionsOfLog l = {.sessions = s};
  const bool ok = json_lines(path, take_line, &l, err);
  s->seconds = run_clock_now(&l.clock);
  return ok;
}

double run_sessions_before(const RunSessions *s, int64_t step) {
  double before = 0;
  for (int i = 0; i < s->n && s->session[i].first < step; i++) before = s->session[i].before;
  return before;
}

void run_sessions_free(RunSessions *s) {
  free(s->session);
  *s = (RunSessions){0};
}
