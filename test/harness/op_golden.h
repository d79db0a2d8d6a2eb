// What PyTorch computes for an op in double, test/goldens/ops.safetensors, on inputs that test_fill draws.
#pragma once
#include "test/harness/op.h"

// Every element within steps · unit roundoff · max(1, |theirs|): inputs are ≤ 1 in size, and `steps` counts roundings.
// One failed check at most.
void expect_op_golden(const char *name, const Tensor *got, double steps);
