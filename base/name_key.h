// Compares names that differ only in case or Unicode normalisation, as after a copy between file systems.
#pragma once
#include <stdbool.h>

// A key that is equal for such names: Latin, Greek and Cyrillic letters and Hangul are decomposed (Unicode's form D)
// and, if ignores_case, in lower case. Other letters, and bytes that are not UTF-8, are kept. Caller frees.
char *name_key(const char *name, bool ignores_case);
