// What run.json says about a run's last session besides its results: data and its defects, the curves in the log, how a
// step's time is spent, memory.
#pragma once
#include "base/record.h"
#include "training/run.h"

// Adds, to be drawn by a page:
//   data_text           the data sets, lines for people
//   warnings            [{text}]; `warning` first, NULL: none
//   panels              [{title, unit, log, noisy, metrics, curves: [{key, label}]}]: members of the log that belong
//                       on the same axes; log: their ordinate is logarithmic; metrics: they are scores
//   time                of the session, as training/run_time.h writes it
//   timed_steps, parts  [{name, forward, backward}], seconds: means of timed_steps steps. A session that is too short
// to
//                       be timed keeps the values of the previous session
//   memory              [{name, place, bytes}]: the plan
void run_facts_record(Record *j, const TrainingRun *r, const char *warning, const char *repair);
