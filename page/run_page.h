// The page of a run, or of several: one HTML file that holds everything itself, asks for nothing from elsewhere and
// needs no script.
#pragma once
#include "page/run_data.h"

// Writes a page of n runs, replacing the file as a whole: of one, all about it; of several, what they have in common
// side by side and then each, folded.
bool run_page_write(const char *path, const RunPage *runs, int n, Err *err);
