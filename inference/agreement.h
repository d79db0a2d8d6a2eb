// Checks that the ranks of ./infer --data agree on everything that affects results.
#pragma once
#include "comm/comm.h"
#include "inference/options.h"
#include "weights/checkpoint.h"

// Compares ranks that another program has started, perhaps on several hosts; those of --gpus share their options
// anyway. Ends all ranks if something differs.
void agreement_check(Comm *comm, const InferOptions *o, const ModelConfig *config, const Checkpoint *c,
                     const Dataset *d);
