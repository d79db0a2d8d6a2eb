// The loop of a training run: its steps, and evaluations, checkpoints and records between them.
#pragma once
#include "training/run.h"

// Stages the loader's next batch. False if there are unusable images: `trouble` says which.
bool train_stage(TrainingRun *r, Loader *l);
// Starts step number `step`, from 0, on the staged batch, and stages the next one if there are `more`.
void train_step(TrainingRun *r, Loader *loader, int64_t step, bool more);

// Runs a session's steps, from `first` to `last`, an interrupt, trouble or a divergence, and writes its files. Exits if
// one of them cannot be written, or on trouble.
Outcome train_run(TrainingRun *r, Loader *loader);
