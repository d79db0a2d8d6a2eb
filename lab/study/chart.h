// Plots of a study as SVG, readable on light and on dark pages.
#pragma once
#include "base/error.h"
#include "lab/study/figures.h"

// Means with bars of their standard error; the figures of others dashed, with open marks.
bool study_chart_write(const StudyData *d, const StudyPlot *plot, const char *path, Err *err);
