// The CPU reference as a table of ops, as often compiled as the ops are.
#include "cpu/reference.h"
#include "nn/op_list.h"

#define DECLARE(op) __typeof__(*ops_cpu.op) OP(op);
EACH_OP(DECLARE)

#define ROW(op) .op = OP(op),
const Ops OPS = {.name = REAL_DTYPE == F64 ? "cpu64" : "cpu", EACH_OP(ROW)};
