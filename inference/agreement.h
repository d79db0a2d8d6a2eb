// Agreement: what the ranks of ./infer --data have to have the same, so that their results are those of one.
#pragma once
#include "comm/comm.h"
#include "inference/options.h"
#include "weights/checkpoint.h"

// Compares it over ranks that another program has started, perhaps on several hosts; those of --gpus come of one
// set-up. Ends all of them where something differs.
void agreement_check(Comm *comm, const InferOptions *o, const ModelConfig *config, const Checkpoint *c,
                     const Dataset *d);
