// Catches sums over ranks that lack one rank's part.
#include "comm/rank_sum.h"
#include "test/harness/ranks.h"
#include "test/harness/test.h"

static bool add_up(Comm *comm, void *context) {
  (void)context;
  const int64_t world = comm_world(comm), large = INT64_C(1) << 40;
  return EXPECT_INT(rank_sum(comm, comm_rank(comm) + large), world * (world - 1) / 2 + world * large);
}

TEST(rank_sum_is_every_ranks) {
  for (int world = 1; world <= 4; world++) EXPECT(true_on_ranks(world, add_up, NULL));
}
