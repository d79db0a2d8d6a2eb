#include "base/trace.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/record.h"

struct Trace {
  FILE *f;
  char *path;
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
  FILE *f = fopen(path, "w");
  if (!f) {
    err_set(err, "cannot write %s: %s", path, strerror(errno));
    return NULL;
  }
  Trace *t = xcalloc(1, sizeof *t);
  t->f = f;
  t->path = xstrdup(path);
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
  bool failed = ferror(t->f);
  failed |= fclose(t->f) != 0;
  if (failed) err_set(err, "cannot write %s: %s", t->path, strerror(errno));
  record_free(&t->event);
  free(t->path);
  free(t);
  return !failed;
}
