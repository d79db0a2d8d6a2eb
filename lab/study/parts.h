// Cells of which only some settings count, as the rows and columns of a table have them.
#pragma once
#include "lab/study/plan.h"

enum { STUDY_UNSAID = -2 }; // the value of a setting that does not count

typedef struct StudyParts {
  StudyCell *cells;
  int n;
  size_t cap;
} StudyParts;

StudyCell study_part(const StudyCell *cell, const int *settings, int n);
// Adds the part unless it is there, in order of the values.
void study_parts_add(StudyParts *p, const StudyCell *cell, const int *settings, int n);
bool study_within(const StudyPlan *p, const StudyCell *cell, const StudyCell *part);
// The one part with the values that the other says.
StudyCell study_overlay(const StudyCell *a, const StudyCell *b);
bool study_listed(const int *settings, int n, int setting);
