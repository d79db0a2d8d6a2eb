// ./infer --data with a classifier: a set of images by class, shared out over ranks, of which the first speaks and has
// the results: the classes of every image, top-1 and top-5, the confusion matrix, or with --benchmark a record.
#pragma once
#include "comm/job.h"
#include "inference/options.h"
#include "weights/checkpoint.h"

// On the ranks of a job that has begun. Returns the program's exit status.
int class_set_run(const InferOptions *o, Job *job, const JobOptions *wanted, const ModelConfig *config,
                  const Category *category, const Checkpoint *c);
