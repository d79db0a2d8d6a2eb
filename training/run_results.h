// A run's results, computed from its log so that they cover all sessions of a resumed run.
#pragma once
#include "base/record.h"
#include "training/run.h"

// Adds what run.json tells of the run up to `step`; nothing may be under way that the log waits for. False where the
// log cannot be read.
//   val_top1, bbox_AP … the metrics of the last evaluation that its task draws, best_val_top1 … of the best, with
//                  best_…_step
//   seconds        of all steps, with the evaluations and checkpoints between them
//   img_s          images of a step by its typical time, without evaluations; where epochs have a few steps, by
//                  the mean of all, evaluations included
//   phase          [{epochs, lr, augment, first_step, steps, seconds, img_s, loss, val_top1 …}] as far as it came;
//                  loss: the mean of its last epoch; val_top1 …: of its last evaluation; one where there are no phases;
//                  amended: of a phase whose steps up to this one were made before --amend changed what is told of it
bool run_results_record(Record *j, const TrainingRun *r, int64_t step, Err *err);
