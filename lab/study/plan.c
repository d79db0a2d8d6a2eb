// What has a name in a plan.
#include "lab/study/plan.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

int study_setting_find(const StudyPlan *p, const char *name) {
  int i = p->num_settings;
  while (--i >= 0 && strcmp(p->settings[i].name, name)) continue;
  return i;
}

int study_measure_find(const StudyPlan *p, const char *name) {
  int i = p->num_measures;
  while (--i >= 0 && strcmp(p->measures[i].name, name)) continue;
  return i;
}

int study_published_find(const StudyPlan *p, const char *name) {
  int i = p->num_published;
  while (--i >= 0 && strcmp(p->published[i].name, name)) continue;
  return i;
}

int study_value_find(const StudySetting *s, const char *name) {
  int i = s->num_values;
  while (--i >= 0 && strcmp(s->values[i].name, name)) continue;
  return i;
}

const StudyGiven *study_given_find(const StudyPlan *p, const char *name) {
  for (int i = 0; i < p->num_givens; i++)
    if (!strcmp(p->givens[i].name, name)) return &p->givens[i];
  return NULL;
}

const char *study_value_name(const StudyPlan *p, const StudyCell *cell, int setting) {
  int v = cell->value[setting];
  return v < 0 ? "–" : p->settings[setting].values[v].name;
}

bool study_same_value(const char *a, const char *b) {
  char *end_a, *end_b;
  const double x = strtod(a, &end_a), y = strtod(b, &end_b);
  return !strcmp(a, b) || (*a && *b && !*end_a && !*end_b && x == y);
}

int study_swept(const StudyPlan *p, const StudyCell *cell) { return p->commands[cell->value[STUDY_COMMAND]].sweep; }

int study_value_add(StudySetting *s, const char *name, const char *text) {
  char *end;
  double number = strtod(name, &end);
  array_reserve((void **)&s->values, &s->cap, (size_t)s->num_values + 1, sizeof *s->values);
  s->values[s->num_values] = (StudyValue){xstrdup(name), xstrdup(text), end > name && !*end ? number : NAN};
  return s->num_values++;
}
