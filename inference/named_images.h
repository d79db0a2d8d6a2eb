// ./infer of images that are named, in folders, or in a list: of any sizes.
#pragma once
#include "inference/infer_task.h"

// Returns the program's exit status.
int named_images_run(const InferRun *run, const InferTask *task);
