// Tables in Markdown.
#pragma once
#include <stdio.h>
#include "lab/study/figures.h"

// For each value of the settings that are neither rows nor columns a heading, the table, and, if it asks for
// the best, that of measures which say what is better, with what is not told apart from it.
void study_table_print(FILE *f, const StudyData *d, const StudyTable *t);
