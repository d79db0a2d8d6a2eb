// What an evaluation of a classifier tells people.
#pragma once
#include "classification/classify.h"
#include "evaluation/report.h"

// Fills `out`, zeroed: classes by ascending recall, the confusion, and the images that are most surely wrong.
void classify_report(const Dataset *d, const Classification *c, EvaluationReport *out);
