#include "evaluation/task.h"
#include "classification/classify.h"
#include "evaluation/evaluate.h"

static const TaskRow *const tasks[TASKS] = {
    [TASK_DETECTION] = &task_detection, [TASK_CLASSIFICATION] = &task_classification};

const TaskRow *task_of(const Model *m) { return tasks[m->task]; }

void metrics_add(Metrics *m, const char *name, double value) {
  CHECK(m->n < MAX_METRICS);
  snprintf(m->metric[m->n].name, METRIC_NAME, "%s", name);
  m->metric[m->n].value = value;
  m->n++;
}
