// OUT/report/session.json: what the page of a run tells of its last session beside the log: state, model, data,
// settings, machine, memory, defects of the data, where the time of a step goes, and which curves there are. Its
// members are training/session.c's; page/page_read.c reads them.
#pragma once
#include "training/run.h"

// Writes the file as a whole. state: "running", "complete", …; warning: one more, NULL: none.
bool page_session_write(const TrainingRun *r, const char *state, const char *warning, Err *err);
