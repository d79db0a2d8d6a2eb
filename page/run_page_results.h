// What the last evaluation found, on a run's page: figures of categories, precision over recall, confusion, images.
#pragma once
#include "page/run_page_parts.h"

void page_evaluation(Page *p, const PageEvaluation *e);
