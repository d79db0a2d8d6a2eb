#include "nn/timeline.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { NONE = -1 };

// ---- stamps -------------------------------------------------------------------------------------------------------

static void stamp(const Timeline *t, Mark *m) { t->dev->memory->timing->mark(t->dev, m); }

// Spans keep their marks and sums from walk to walk.
static int add_span(Timeline *t, const char *name, const char *part, Pass pass) {
  if (t->spans == t->room) {
    t->room = 2 * t->room + 64;
    t->span = xrealloc(t->span, (size_t)t->room * sizeof *t->span);
    memset(t->span + t->spans, 0, (size_t)(t->room - t->spans) * sizeof *t->span);
  }
  TimelineSpan *s = &t->span[t->spans];
  const Queue queue = t->dev->queue;
  s->name = name;
  s->part = part;
  s->pass = pass;
  s->queue = queue;
  s->after[0] = t->last[queue];
  s->after[1] = s->after[2] = NONE;
  stamp(t, &s->end);
  return t->last[queue] = t->spans++;
}

static void begin(Observer *o, Graph *g, Pass pass) {
  Timeline *t = (Timeline *)o;
  (void)g;
  if (pass != PASS_FORWARD) return;
  t->spans = 0;
  t->before = t->followed = NONE;
  for (Queue q = 0; q < QUEUES; q++) t->last[q] = NONE;
  stamp(t, &t->begin);
}

static void add_step(Timeline *t, const Graph *g, const Node *n, Pass pass) {
  const Step *s = &g->walk[n->step[pass]];
  if (s->pass == PASS_BACKWARD && n->type->gradients && !s->splits) t->followed = t->last[QUEUE_GRADIENTS];
  const int i = add_span(t, n->name, n->part, pass);
  if (s->after >= 0) t->span[i].after[1] = t->of_step[s->after];
  if (t->dev->queue == QUEUE_OPS) t->span[i].after[2] = t->followed;
  t->of_step[n->step[pass]] = i;
}

static void between(Observer *o, Graph *g, Node *n, Pass pass) {
  Timeline *t = (Timeline *)o;
  t->before = t->last[QUEUE_OPS];
  add_step(t, g, n, pass);
  t->followed = t->last[QUEUE_GRADIENTS];
}

static void after(Observer *o, Graph *g, Node *n, Pass pass) {
  Timeline *t = (Timeline *)o;
  if (t->dev->queue != QUEUE_GRADIENTS) {
    add_step(t, g, n, pass);
    return;
  }
  const int i = add_span(t, n->name, n->part, pass);
  t->span[i].after[1] = t->before;
}

void timeline_start(Timeline *t, Graph *g) {
  t->observer = (Observer){.begin = begin, .between = between, .after = after, .queues = true};
  t->dev = g->dev;
  if (!t->of_step) t->of_step = xcalloc((size_t)g->steps, sizeof *t->of_step);
  graph_unobserve(g, &t->observer);
  graph_observe(g, &t->observer);
}

void timeline_stop(Timeline *t, Graph *g) {
  graph_unobserve(g, &t->observer);
  t->dev = NULL;
}

void timeline_free(Timeline *t, Graph *g) {
  if (!g->dev) return; // memory ran out before the graph was built
  const Timing *timing = g->dev->memory->timing;
  graph_unobserve(g, &t->observer);
  for (int i = 0; i < t->room; i++) timing->forget(g->dev, &t->span[i].end);
  timing->forget(g->dev, &t->begin);
  free(t->span);
  free(t->of_step);
  *t = (Timeline){0};
}

void timeline_note(Timeline *t, const char *name) {
  const int i = add_span(t, name, name, PASS_BACKWARD);
  t->span[i].after[1] = t->last[QUEUE_GRADIENTS];
}

// ---- sums ---------------------------------------------------------------------------------------------------------

// Which of the spans that one waits for ended last; NONE: it begins with the walk.
static int last_awaited(const TimelineSpan *span, int i) {
  int last = NONE;
  for (int k = 0; k < TIMELINE_WAITS; k++) {
    const int j = span[i].after[k];
    if (j >= 0 && (last < 0 || span[j].to > span[last].to)) last = j;
  }
  return last;
}

double timeline_add(TimelineSpan *span, int spans) {
  int last = 0;
  for (int i = 0; i < spans; i++) {
    TimelineSpan *s = &span[i];
    const int before = last_awaited(span, i);
    s->from = before < 0 ? 0 : span[before].to;
    s->begun += s->from;
    s->seconds += s->to - s->from;
    if (s->to > span[last].to) last = i;
  }
  for (int i = last; i >= 0; i = last_awaited(span, i)) span[i].critical += span[i].to - span[i].from;
  return span[last].to;
}

void timeline_read(Timeline *t) {
  if (!t->spans) return;
  for (int i = 0; i < t->spans; i++)
    t->span[i].to = t->dev->memory->timing->elapsed(t->dev, &t->begin, &t->span[i].end);
  t->seconds += timeline_add(t->span, t->spans);
  t->walks++;
}

// ---- printing -----------------------------------------------------------------------------------------------------

static const char *const queue_names[QUEUES] = {"ops", "beside", "gradients", "side"};

static bool begins_part(const Timeline *t, int i) {
  for (int j = 0; j < i; j++)
    if (!strcmp(t->span[j].part, t->span[i].part)) return false;
  return true;
}

static void print_parts(const Timeline *t, double ms, FILE *out) {
  for (int i = 0; i < t->spans; i++) {
    double seconds = 0, critical = 0;
    if (!begins_part(t, i)) continue;
    for (int j = i; j < t->spans; j++) {
      if (strcmp(t->span[j].part, t->span[i].part)) continue;
      seconds += t->span[j].seconds;
      critical += t->span[j].critical;
    }
    fprintf(out, "%-10s %9.3f ms on the critical path %9.3f ms beside it\n", t->span[i].part, ms * critical,
            ms * (seconds - critical));
  }
}

void timeline_print(const Timeline *t, FILE *out) {
  if (!t->walks) return;
  const double ms = 1e3 / t->walks;
  double critical = 0;
  for (int i = 0; i < t->spans; i++) critical += t->span[i].critical;
  fprintf(out,
          "%.3f ms from the begin of a step to the end of its update, with time stamps (mean of %d); %.1f%% of it on"
          " the critical path:\n",
          ms * t->seconds, t->walks, 100 * critical / t->seconds);
  print_parts(t, ms, out);
  fprintf(out, "%9s %9s %9s  %-9s  %s\n", "begins", "ms", "critical", "queue",
          "step; begins when all is done that it"
          " waits for");
  for (int i = 0; i < t->spans; i++) {
    const TimelineSpan *s = &t->span[i];
    fprintf(out, "%9.3f %9.3f %9.3f  %-9s  %s%s\n", ms * s->begun, ms * s->seconds, ms * s->critical,
            queue_names[s->queue], s->name, s->pass == PASS_BACKWARD ? ", backward" : "");
  }
}
