// HTML pages of runs, drawn by the browser from facts in the runs' folders, with page/run.js and other scripts.
#pragma once
#include "page/run_facts.h"

#define PAGE_FILE "report.html" // a run's page, in its folder

// Writes FOLDER/report.html, replacing an existing one atomically. It may be called while the run continues, by one
// thread at a time. Files that cannot be read are named on the page. `log_facts`, a LogFacts **, keeps what was read of
// the run's log.
bool page_draw(void *log_facts, const char *folder, Err *err);
// The same for the scores of ./infer: evaluation.html from FOLDER/scores.json.
bool page_draw_scores(const char *folder, Err *err);
// A page of n runs, side by side if there are several. single_file: embeds their pictures; otherwise it links to them.
bool page_of_runs(const char *path, const PageRun *run, int n, bool single_file, Err *err);
