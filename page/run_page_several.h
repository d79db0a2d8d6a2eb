// Several runs on one page: side by side what they have in common, then each by itself.
#pragma once
#include "page/run_page_parts.h"

void page_runs(Page *p, const RunPage *runs, int n);
