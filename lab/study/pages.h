// What a study writes from its runs: tables.md and cells.jsonl.
#pragma once
#include "lab/study/figures.h"

// Each replaces its file as a whole.
bool study_tables_write(const StudyData *d, const char *path, Err *err);
bool study_cells_write(const StudyData *d, const char *path, Err *err);
