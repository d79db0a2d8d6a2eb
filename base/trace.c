#include "base/trace.h"
#include <stdio.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/record.h"

struct Trace {
  AtomicFile file;
  FILE *f;      // its stream
  Record event; // reused
};

static void write_event(Trace *t, bool first) { fprintf(t->f, "%s%s", first ? "[\n" : ",\n", record_end(&t->event)); }

static void begin(Trace *t, const char *phase, const char *name, TraceLane lane) {
  record_begin(&t->event);
  record_str(&t->event, "ph", phase);
  record_str(&t->event, "name", name);
  record_int(&t->event, "pid", 0);
  record_int(&t->event, "tid", lane);
}

Trace *trace_open(const char *path, Err *err) {
  static const char *const args[TRACE_LANES] = {"{\"name\":\"forward\"}", "{\"name\":\"backward\"}"};
  AtomicFile file;
  if (!file_begin(&file, path, err)) return NULL;
  Trace *t = xcalloc(1, sizeof *t);
  t->file = file;
  t->f = file.f;
  for (int i = 0; i < TRACE_LANES; i++) {
    begin(t, "M", "thread_name", (TraceLane)i);
    record_raw(&t->event, "args", args[i]);
    write_event(t, i == 0);
  }
  return t;
}

void trace_event(Trace *t, TraceLane lane, const char *name, const char *category, double start, double seconds) {
  begin(t, "X", name, lane);
  record_str(&t->event, "cat", category);
  record_num(&t->event, "ts", 1e6 * start); // microseconds
  record_num(&t->event, "dur", 1e6 * seconds);
  write_event(t, false);
}

bool trace_close(Trace *t, Err *err) {
  if (!t) return true;
  fputs("\n]\n", t->f);
  const bool ok = file_commit(&t->file, err);
  record_free(&t->event);
  free(t);
  return ok;
}
