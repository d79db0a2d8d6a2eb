#include "lab/study/parts.h"
#include <string.h>
#include "base/alloc.h"

StudyCell study_part(const StudyCell *cell, const int *settings, int n) {
  StudyCell part;
  for (int s = 0; s < STUDY_MAX_SETTINGS; s++) part.value[s] = STUDY_UNSAID;
  for (int i = 0; i < n; i++) part.value[settings[i]] = cell->value[settings[i]];
  return part;
}

static int compare_parts(const StudyCell *a, const StudyCell *b, const int *settings, int n) {
  for (int i = 0; i < n; i++) {
    const int difference = a->value[settings[i]] - b->value[settings[i]];
    if (difference) return difference;
  }
  return 0;
}

void study_parts_add(StudyParts *p, const StudyCell *cell, const int *settings, int n) {
  const StudyCell part = study_part(cell, settings, n);
  int at = 0;
  while (at < p->n && compare_parts(&p->cells[at], &part, settings, n) < 0) at++;
  if (at < p->n && !compare_parts(&p->cells[at], &part, settings, n)) return;
  array_reserve((void **)&p->cells, &p->cap, (size_t)p->n + 1, sizeof *p->cells);
  memmove(&p->cells[at + 1], &p->cells[at], (size_t)(p->n - at) * sizeof *p->cells);
  p->cells[at] = part;
  p->n++;
}

bool study_within(const StudyPlan *p, const StudyCell *cell, const StudyCell *part) {
  for (int s = 0; s < p->num_settings; s++)
    if (part->value[s] != STUDY_UNSAID && part->value[s] != cell->value[s]) return false;
  return true;
}

bool study_listed(const int *settings, int n, int setting) {
  for (int i = 0; i < n; i++)
    if (settings[i] == setting) return true;
  return false;
}

StudyCell study_overlay(const StudyCell *a, const StudyCell *b) {
  StudyCell out = *a;
  for (int s = 0; s < STUDY_MAX_SETTINGS; s++)
    if (b->value[s] != STUDY_UNSAID) out.value[s] = b->value[s];
  return out;
}
