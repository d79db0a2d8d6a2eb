// ./infer --data: a data set, shared out over ranks, of which the first speaks and has the results: detections,
// overlays, scores, or with --benchmark a record.
#pragma once
#include "comm/job.h"
#include "inference/findings.h"
#include "inference/options.h"
#include "weights/checkpoint.h"

// On the ranks of a job that has begun. Returns the program's exit status.
int data_set_run(const InferOptions *o, Job *job, const JobOptions *wanted, const ModelConfig *config,
                 const Category *category, const Checkpoint *c, const ResultForm *form);
