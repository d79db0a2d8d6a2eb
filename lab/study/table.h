// Tables in Markdown, and how figures look as text.
#pragma once
#include <stdio.h>
#include "lab/study/figures.h"

// "123.4 ± 0.5": as many digits as the error has with two of its own, or as the measure says; four significant ones
// where there is no error. malloc'ed.
char *study_figure_text(const StudyData *d, const StudyFigure *f, const StudyMeasure *m);
// "throughput, img/s"; malloc'ed.
char *study_measure_title(const StudyMeasure *m);

// For each value of the settings that are neither rows nor columns a heading, the table, and, if it asks for
// the best, that of measures which say what is better, with what is not told apart from it.
void study_table_print(FILE *f, const StudyData *d, const StudyTable *t);
