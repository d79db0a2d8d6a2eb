#include "engine/run_clock.h"
#include <stdlib.h>
#include <string.h>

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
  s->session[s->n].first = first;
  s->session[s->n++].before = before;
}

bool run_sessions_read(RunSessions *s, const char *path, Err *err) {
  RunClock clock = {0};
  size_t size;
  char *text = file_read(path, &size, err);
  bool ok = text;
  for (char *line = text, *end; ok && line < text + size; line = end + 1) {
    end = memchr(line, '\n', (size_t)(text + size - line));
    if (!end) break; // cut short by a crash
    Json j;
    ClockRecord r = CLOCK_RECORD_NONE;
    const char *key;
    json_open_within(&j, path, text, line, end);
    if (json_begin_object(&j))
      while ((key = json_key(&j)))
        if (!clock_record_member(&r, &j, key)) json_skip(&j);
    ok = json_done(&j) || err_set(err, "%s", j.err.msg);
    json_close(&j);
    if (ok && run_clock_take(&clock, &r)) add_session(s, r.session ? r.session : r.step - 1, clock.before);
  }
  s->seconds = run_clock_now(&clock);
  free(text);
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
