// How figures look as text.
#pragma once
#include "lab/study/figures.h"

// "123.4 ± 0.5": as many digits as the error has with two of its own, or as the measure says; four significant ones
// where there is no error. malloc'ed.
char *study_figure_text(const StudyData *d, const StudyFigure *f, const StudyMeasure *m);
// "throughput, img/s"; malloc'ed.
char *study_measure_title(const StudyMeasure *m);
