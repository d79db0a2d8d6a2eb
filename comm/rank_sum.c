#include "comm/rank_sum.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

static int64_t take_number(CommPart *part) {
  int64_t number;
  CHECK(part->bytes == sizeof number);
  memcpy(&number, part->data, sizeof number);
  free(part->data);
  return number;
}

int64_t rank_sum(Comm *comm, int64_t mine) {
  const int world = comm_world(comm);
  CommPart *part = xcalloc((size_t)world, sizeof *part);
  int64_t sum = mine;
  if (comm_gather(comm, &mine, sizeof mine, part)) {
    sum = 0;
    for (int r = 0; r < world; r++) sum += take_number(&part[r]);
  }
  comm_broadcast_bytes(comm, &sum, sizeof sum);
  free(part);
  return sum;
}
