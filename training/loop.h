// The loop of a training run: its steps, and what falls due between them.
#pragma once
#include "training/run.h"

// Stages the loader's next batch. False when there are images that cannot be used: `trouble` says which.
bool train_stage(TrainingRun *r, Loader *l);
// Starts the step with number `step`, from 0, on the staged batch, and stages the next one if there are `more`.
void train_step(TrainingRun *r, Loader *loader, int64_t step, bool more);
// Whether a step, counted from 1, went wrong for good; then the run ends, and `divergence` has what is known of it.
bool train_diverged(TrainingRun *r, int64_t step, const StepResult *s);

// A session's steps, from `first` to `last`, an interrupt, trouble or a divergence, and the files that they lead to. It
// ends the program when one of them cannot be written, or when there is trouble.
Outcome train_run(TrainingRun *r, Loader *loader);
