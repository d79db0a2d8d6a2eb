// The flags of ./train that suit a set of classes.
#pragma once
#include "classification/data/class_survey.h"

// "--model …", malloc'ed. size: the side that is asked for, 0: none; has_val: there is a split to evaluate on.
char *class_advice(const Dataset *train, const ClassSurvey *survey, int size, bool has_val);
