#include "training/step_parts.h"
#include <string.h>

enum { FIRST = 6, LAST = 9 }; // after the steps that load modules and are recorded

static void add(StepParts *p, const char *name, double forward, double backward) {
  int i = 0;
  while (i < p->parts && strcmp(p->part[i].name, name)) i++;
  if (i == STEP_PARTS) i--; // the remainder belongs to the last part
  if (i == p->parts) snprintf(p->part[p->parts++].name, sizeof p->part[i].name, "%s", name);
  p->part[i].forward += forward;
  p->part[i].backward += backward;
}

static void read_profiles(StepParts *p, const Engine *e) {
  for (int c = 0; c < e->train.shapes.canvases; c++) p->steps += e->train.profile[c].walks;
  for (int c = 0; p->steps && c < e->train.shapes.canvases; c++) {
    const Graph *g = &e->train.network[c].graph;
    const Profile *of = &e->train.profile[c];
    for (int i = 0; of->walks && i < g->nodes; i++) {
      const double *seconds = of->node[i].seconds;
      add(p, g->node[i]->part ? g->node[i]->part : "others", seconds[PASS_FORWARD] / p->steps,
          seconds[PASS_BACKWARD] / p->steps);
    }
  }
}

bool step_parts_before(StepParts *p, Engine *e, int64_t i, int64_t steps) {
  if (i == FIRST && steps > LAST && !e->timing) {
    engine_time_nodes(e, true, NULL);
    p->timing = true;
  } else if (i == LAST && p->timing) {
    engine_time_nodes(e, false, NULL);
    p->timing = false;
    read_profiles(p, e);
    return true;
  }
  return false;
}

void step_parts_result(StepParts *p, const StepResult *s) {
  if (s->update_seconds <= 0) return;
  p->update += s->update_seconds;
  p->transfer += s->transfer_seconds;
  p->results++;
}
