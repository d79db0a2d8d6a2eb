// Reads a run's log.jsonl: numbers over steps, and what was changed on the way.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef struct Curve { // one member of the log's records over steps
  double *x, *y;
  int n;
  size_t cap_x, cap_y;
} Curve;

// out[k] receives the numbers that stand under keys[k]. A last line that a crash cut short is ignored.
bool curves_read(const char *path, const char *const *keys, int count, Curve *out, Err *err);
void curves_free(Curve *curves, int count);

// A record of kind "amend", which --amend and a rollback leave. step: after which it holds. changes: an object as text,
// the old and the new value of each member.
typedef void AmendmentFn(void *context, int64_t step, const char *changes);
// Calls `each` for those of the log, in their order; none of one that cannot be read.
void amendments_read(const char *path, AmendmentFn *each, void *context);
bool amendment_is_logged(const char *path, int64_t step, const char *changes);
