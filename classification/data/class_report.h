// The doctor's report on a classification data set.
#pragma once
#include "data/batches/source.h"

// Source.survey: opens the training and evaluation splits and examines both. canvas.h = 0: as ClassOptions.
bool class_report(const SourceSurvey *r);
