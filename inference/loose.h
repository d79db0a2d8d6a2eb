// ./infer of images that are named, in folders, or in a list: a stream of any sizes.
#pragma once
#include "inference/findings.h"
#include "inference/options.h"

// Returns the program's exit status.
int loose_run(const InferOptions *o, const ModelConfig *config, const ResultForm *form);
