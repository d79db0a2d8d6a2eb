// All that is drawn of a run's folder.
#pragma once
#include "base/error.h"

// Of the facts in the folder: report.html and curves.svg. Each replaces what is there as a whole. It may be called
// while the run goes on, by one thread at a time.
bool page_draw(const char *folder, Err *err);
// Of what ./infer has scored, FOLDER/scores.json: evaluation.html, as the page of a run shows an evaluation.
bool page_draw_scores(const char *folder, Err *err);
