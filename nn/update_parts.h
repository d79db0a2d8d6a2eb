// The trained parameters of a model, divided into the parts on which the optimizer's kernels work (UpdatePart,
// nn/ops.h).
#pragma once
#include "nn/param.h"

// Writes the parts of all trained parameters in the order of the flat buffers and returns their number; with `to` NULL,
// only returns the number.
int update_parts(const Params *p, UpdatePart *to);
