// A run's log as TensorBoard's event files.
#pragma once
#include "page/run_facts.h"

// Writes DIR/NAME/events.out.tfevents.maskrcnn for each run, NAME being the run's: the numbers of its log.jsonl over
// steps, under tags such as train/loss and eval/bbox_AP. Made anew, from the beginning.
bool tensorboard_write(const char *dir, const PageRun *run, int n, Err *err);
