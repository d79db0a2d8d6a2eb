// A run's results, computed from its log so that they cover all sessions of a resumed run.
#pragma once
#include "base/record.h"
#include "training/run.h"

// Adds the results of the run up to `step` for run.json; nothing that the log waits for may be in progress. False if
// the log cannot be read.
//   val_top1, bbox_AP … the metrics of the last evaluation that its task draws, best_val_top1 … of the best, with
//                  best_…_step
//   seconds        of all steps, with the evaluations and checkpoints between them
//   img_s          images per second by a step's typical time, without evaluations; if epochs have few steps, by
//                  the mean of all, evaluations included
//   phase          [{epochs, lr, augment, first_step, steps, seconds, img_s, loss, val_top1 …}] up to `step`;
//                  loss: the mean of its last epoch; val_top1 …: of its last evaluation; a single one without phases;
//                  amended: the step after which --amend changed the phase, if it did
bool run_results_record(Record *j, const TrainingRun *r, int64_t step, Err *err);
