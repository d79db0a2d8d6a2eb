// The best settings of a table.
#pragma once
#include <stdio.h>
#include "lab/study/figures.h"

// A difference of two figures smaller than so many of its standard errors tells nothing apart.
extern const double study_told_apart;

// Of measures that say what is better, for each combination of the settings that the table's `best` does not name: the
// best of the cells within `group` (lab/study/parts.h), and what is not told apart from it.
void study_best_print(FILE *f, const StudyData *d, const StudyTable *t, const StudyCell *group);
