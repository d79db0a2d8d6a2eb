// ./infer --data: a data set, shared out over ranks, of which the first speaks and has the results, or with --benchmark
// a record.
#pragma once
#include "inference/infer_task.h"

// On the ranks of a job that has begun. Returns the program's exit status.
int data_set_run(const InferRun *run, const InferTask *task, const JobOptions *wanted);
