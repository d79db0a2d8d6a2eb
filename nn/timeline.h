// Timeline: when the steps of a walk end, by time stamps that are queued with them, and so are part of a recorded step;
// what runs beside others is seen to. From these follows the critical path: the chain of steps, each begun when the one
// before it had ended, that a walk takes as long as.
#pragma once
#include <stdio.h>
#include "nn/graph.h"
#include "nn/timing.h"

enum { TIMELINE_WAITS = 3 }; // for the step before it in its queue, and for others

// A step, or its parameters' gradients where these have a queue of their own. Seconds are sums over the walks.
typedef struct TimelineSpan {
  const char *name, *part;
  Pass pass;
  Queue queue;
  int after[TIMELINE_WAITS]; // spans that it waits for; -1: none
  Mark end;
  double from, to; // of the last walk, from its begin on: when all that it waits for had ended, and when it had
  double begun, seconds, critical;
} TimelineSpan;

typedef struct Timeline {
  Observer observer;
  Device *dev; // NULL: not started
  Mark begin;
  TimelineSpan *span; // in the order in which they are queued
  int spans, room;
  int *of_step;     // [graph.steps] span
  int last[QUEUES]; // spans; -1
  int before;       // the last of QUEUE_OPS before a step that splits …
  int followed;     // … and of QUEUE_GRADIENTS that QUEUE_OPS has waited for
  int walks;
  double seconds;
} Timeline;

// Between the two calls, walks of the graph are stamped.
void timeline_start(Timeline *t, Graph *g);
void timeline_stop(Timeline *t, Graph *g);
void timeline_free(Timeline *t, Graph *g);
// Stamps what was queued behind the walk in QUEUE_OPS.
void timeline_note(Timeline *t, const char *name);
// Adds the last walk to the sums, once the device is done with it; it may have been replayed.
void timeline_read(Timeline *t);
// Of spans with `to`: sets `from`, and adds to the sums. Returns when the last ended.
double timeline_add(TimelineSpan *span, int spans);

// The critical path by part, what ran beside it, and a row per span.
void timeline_print(const Timeline *t, FILE *out);
