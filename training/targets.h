// Targets that end a run: metrics of its evaluations, and the time to reach them. Everything is read from the log, so
// that a resumed run counts the time of all sessions.
#pragma once
#include "training/run.h"

// The targets given by the options --target-….
Targets targets_of(const TrainSpec *o);

// Reads what is new in `folder`/log.jsonl, for which nothing may be in progress, into l->time. Evaluations on another
// set than the first one do not count, as for the best (training/best.h).
bool targets_read(const Targets *t, const char *folder, TargetsOfLog *l, Err *err);

// For a complete run with targets, writes one record to stdout and OUT/time-to-target.json; without targets, nothing.
//   bench "time-to-target"; model, data, seed, batch, world
//   reached; target_bbox_AP, bbox_AP …; step, epochs, images (of training), evaluations
//   seconds, training_seconds, evaluation_seconds  of all sessions of the run
//   build_seconds                                  before the log was opened, as in run.json; of this process
//   and the members of record_origin
bool targets_report(TrainingRun *r, Err *err);
