// run.json: what came of a run, in one object: accuracy, time to build the model, each phase with its time and speed,
// parameters, settings, machine. All but what is of this process is read from the log, so that a resumed run tells of
// all its parts.
#pragma once
#include "training/run.h"

// Whether the run has such a file: its task says so.
bool run_report_due(const TrainingRun *r);
// Whether a phase ends with so many steps, or, without phases, the run.
bool run_report_phase_ends(const TrainingRun *r, int64_t step);
// Writes OUT/run.json of a run that stands after `step`, as a whole. Nothing may be under way that the log waits for.
//   model, data, classes, images, val_images; step, steps, complete; batch, world; parameters (trained or not)
//   val_top1, val_top5 … the metrics of the last evaluation, best_val_top1 … of the best, with best_…_step
//   build_seconds  opening the device, building and planning the graphs, taking memory; of this process
//   seconds        of all steps, with the evaluations and checkpoints between them
//   img_s          images of a step by its typical time, without evaluations; where epochs have a few steps, by
//                  the mean of all, evaluations included
//   phase          [{epochs, lr, augment, first_step, steps, seconds, img_s, loss, val_…}] as far as it came; loss: the
//                  mean of its last epoch; val_…: of its last evaluation; one where there are no phases; amended: of a
//                  phase whose steps up to this one were made before --amend changed what is told of it
//   settings       every option, as text
//   and what record_origin has
bool run_report_write(const TrainingRun *r, int64_t step, bool complete, Err *err);
// Adds "settings", of TrainOptions.resolved: every option, as text.
void run_report_settings(Record *j, const char *resolved);
