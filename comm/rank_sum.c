#include "comm/rank_sum.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static uint64_t take_number(CommPart *part) {
  uint64_t number;
  memcpy(&number, part->data, sizeof number);
  free(part->data);
  return number;
}

int64_t rank_sum(Comm *comm, int64_t mine) {
  const int world = comm_world(comm);
  CommPart *part = xcalloc((size_t)world, sizeof *part);
  int64_t sum = mine;
  if (comm_gather_equal(comm, &mine, sizeof mine, part)) {
    uint64_t total = 0; // without a sign, which wraps whatever a rank says
    for (int r = 0; r < world; r++) total += take_number(&part[r]);
    sum = (int64_t)total;
  }
  comm_broadcast_bytes(comm, &sum, sizeof sum);
  free(part);
  return sum;
}
