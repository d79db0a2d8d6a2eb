// All that a page tells of one run.
#pragma once
#include "page/run_page_parts.h"

void page_run(Page *p, const RunPage *r);
// Whether there are steps to be shown: not of weights that were scored by themselves.
bool run_has_steps(const RunPage *r);
