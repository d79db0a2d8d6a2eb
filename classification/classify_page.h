// What the page of a run tells of a classifier's evaluation.
#pragma once
#include "classification/classify.h"
#include "page/run_page.h"

// Fills `out`, zeroed: classes by ascending recall, the confusion, and the images that are most surely wrong.
void classify_page(const Dataset *d, const Classification *c, PageEvaluation *out);
