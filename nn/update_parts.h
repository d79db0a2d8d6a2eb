// What a model trains, cut into the parts that the optimiser's step works on (UpdatePart, nn/ops.h).
#pragma once
#include "nn/param.h"

// Writes the parts of all trained parameters, in the order of the flat buffers, as these lie now; `to` NULL: none.
// Returns how many there are.
int update_parts(const Params *p, UpdatePart *to);
