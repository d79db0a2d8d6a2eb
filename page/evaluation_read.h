// evaluation.json, as evaluation/report.h has it, into what a page shows.
#pragma once
#include "page/run_data.h"

// Fills the page's evaluation, zeroed, with pictures out of the folder as data: addresses; those that are gone are left
// out. What is no run's says more: name, state, facts and settings. False when the file cannot be read or is none of
// ours; what was read is the caller's to free all the same (run_page_free).
bool evaluation_read(const char *path, const char *folder, RunPage *p, Err *err);
