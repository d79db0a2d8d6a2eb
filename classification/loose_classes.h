// ./infer of images that are named, in folders, or in a list, with a classifier: a stream of any sizes.
#pragma once
#include "inference/options.h"

// Returns the program's exit status.
int loose_classes_run(const InferOptions *o, const ModelConfig *config);
