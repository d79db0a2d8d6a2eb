// ./infer --data: runs a data set, distributed over ranks, of which rank 0 prints and has the results, or with
// --benchmark a record.
#pragma once
#include "inference/infer_task.h"

// Called on the ranks of a job that has begun. Returns the program's exit status.
int data_set_run(const InferRun *run, const InferTask *task, const JobOptions *wanted);
