// The evaluator's fixtures in ../shared/data.
#pragma once
#include <stdbool.h>

// Calls `check` with the path of every JSON file among them; false, and the running test is marked as skipped, where
// they are not there.
bool evaluator_fixtures(void (*check)(const char *path, void *context), void *context);
