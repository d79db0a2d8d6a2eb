// Suggests ./train options for a classification data set.
#pragma once
#include "classification/data/class_survey.h"

// "--model …", malloc'ed. size: the requested input size, 0: none; holdout: options that hold images out, with a space
// before them; "": none.
char *class_advice(const Dataset *train, const ClassSurvey *survey, int size, const char *holdout);
