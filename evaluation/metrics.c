#include "evaluation/metrics.h"
#include <stdio.h>

void metrics_add(Metrics *m, const char *name, double value) {
  CHECK(m->n < MAX_METRICS);
  snprintf(m->metric[m->n].name, METRIC_NAME, "%s", name);
  m->metric[m->n].value = value;
  m->n++;
}
