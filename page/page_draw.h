// Pages of runs, drawn by the browser from the facts in their folders: page/run.js and its neighbours.
#pragma once
#include "page/run_facts.h"

#define PAGE_FILE "report.html" // a run's, in its folder

// FOLDER/report.html, replacing what is there as a whole. It may be called while the run goes on, by one thread at a
// time. What cannot be read is named on the page.
bool page_draw(const char *folder, Err *err);
// The same for what ./infer has scored, FOLDER/scores.json: evaluation.html.
bool page_draw_scores(const char *folder, Err *err);
// A page of n runs, side by side if there are several. single_file: with their pictures in it; else it refers to them.
bool page_of_runs(const char *path, const PageRun *run, int n, bool single_file, Err *err);
