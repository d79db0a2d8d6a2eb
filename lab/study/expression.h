// Arithmetic over measures: "img_s / img_s[gpus=1]". Read into a list in the order in which a stack machine computes.
#pragma once
#include "lab/study/plan.h"

// Of measure number `measure`, which may name those before it. False with what is wrong, without where that is.
bool study_expression_read(StudyExpression *e, const StudyPlan *p, int measure, const char *text, Err *err);
void study_expression_free(StudyExpression *e);
