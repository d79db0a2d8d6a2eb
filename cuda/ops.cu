// The CUDA back end as a table of ops: every op of nn/op_list.h has a launcher named cuda_<op>.
#include "cuda/common.cuh"
#include "nn/op_list.h"

#define DECLARE(op) extern "C" __typeof__(*ops_cuda.op) cuda_##op;
EACH_OP(DECLARE)

#define ROW(op) table.op = cuda_##op;
static Ops make_table() {
  Ops table = {};
  table.name = "cuda";
  EACH_OP(ROW)
  return table;
}
extern "C" const Ops ops_cuda = make_table();
