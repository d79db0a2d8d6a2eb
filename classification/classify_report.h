// The report on a classifier's evaluation.
#pragma once
#include "classification/classify.h"
#include "evaluation/report.h"

// Fills `out`, zeroed: classes by ascending recall, the confusion matrix, and the most confident mistakes.
void classify_report(const Dataset *d, const Classification *c, EvaluationReport *out);
