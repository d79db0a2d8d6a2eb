// A trace of what ran when, in Chrome's Trace Event Format (a JSON array): chrome://tracing and ui.perfetto.dev show
// it.
#pragma once
#include <stdbool.h>
#include "base/error.h"

typedef enum TraceLane { TRACE_FORWARD, TRACE_BACKWARD, TRACE_LANES } TraceLane; // one row of the picture each

typedef struct Trace Trace;

Trace *trace_open(const char *path, Err *err); // NULL with a message when it cannot be written
// Adds an event of `category` that began at `start` (the clock of now_seconds) and took `seconds`.
void trace_event(Trace *t, TraceLane lane, const char *name, const char *category, double start, double seconds);
bool trace_close(Trace *t, Err *err); // t may be NULL; false when not all of it could be written
