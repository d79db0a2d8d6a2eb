// Suggests ./train options for a classification data set.
#pragma once
#include "classification/data/class_survey.h"

// "--model …", malloc'ed. size: the requested input size, 0: none; has_val: there is a split to evaluate on.
char *class_advice(const Dataset *train, const ClassSurvey *survey, int size, bool has_val);
