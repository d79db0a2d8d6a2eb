// ./infer on images of any size that are named, in folders, or in a list.
#pragma once
#include "inference/infer_task.h"

// Returns the program's exit status.
int named_images_run(const InferRun *run, const InferTask *task);
