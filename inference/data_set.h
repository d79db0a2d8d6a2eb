// ./infer --data: runs a data set, distributed over ranks. Rank 0 writes the results or, with --benchmark, prints a
// record.
#pragma once
#include "inference/infer_task.h"

// Called on the ranks of a job that has begun. Returns the program's exit status.
int data_set_run(const InferRun *run, const InferTask *task, const JobOptions *wanted);
