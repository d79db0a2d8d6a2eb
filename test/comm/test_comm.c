// Catches host data that is mixed up between ranks, and ranks that differ without being named.
#include "base/alloc.h"
#include "test/harness/rank_processes.h"
#include "test/harness/test.h"

// All ranks end well, without a word.
static void expect_quiet(RankProcesses *r) {
  processes_fork(r, -1);
  processes_end(r);
  EXPECT_STR(r->said, "");
  for (int i = 0; i < r->world; i++) EXPECT_INT(r->status[i], 0);
}

static char byte_of(int rank, size_t i) { return (char)(rank * 31 + (int)(i % 251)); }

static char *bytes_of(int rank, size_t bytes) {
  char *p = xmalloc(bytes);
  for (size_t i = 0; i < bytes; i++) p[i] = byte_of(rank, i);
  return p;
}

// Uneven, empty and large ones; also none at all.
static size_t size_of(int rank, int round) {
  static const size_t sizes[] = {0, 1, 70000, 24u << 20};
  return round == 4 ? 0 : sizes[(rank + round) % 4];
}

static void gather_repeatedly(Comm *c, void *context) {
  (void)context;
  const int rank = comm_rank(c), world = comm_world(c);
  CommPart part[MAX_TEST_RANKS];
  for (int round = 0; round < 5; round++) {
    char *mine = bytes_of(rank, size_of(rank, round));
    const bool all = comm_gather(c, mine, size_of(rank, round), 24u << 20, part);
    CHECK(all == (rank == 0));
    for (int k = 0; all && k < world; k++) {
      CHECK(part[k].bytes == size_of(k, round));
      for (size_t i = 0; i < part[k].bytes; i++) CHECK(part[k].data[i] == byte_of(k, i));
      free(part[k].data);
    }
    free(mine);
    comm_barrier(c);
  }
}

TEST(comm_gather_of_uneven_parts) {
  RankProcesses r;
  processes_init(&r, 4, gather_repeatedly, NULL, -1);
  expect_quiet(&r);
}

static void broadcast_repeatedly(Comm *c, void *context) {
  (void)context;
  static const size_t sizes[] = {0, 1, 3000, 30u << 20};
  for (int round = 0; round < COUNT(sizes); round++) {
    char *p = bytes_of(comm_rank(c), sizes[round]);
    comm_broadcast_bytes(c, p, sizes[round]);
    for (size_t i = 0; i < sizes[round]; i++) CHECK(p[i] == byte_of(0, i));
    free(p);
  }
  CHECK(comm_world(c) == 3 && !comm_stop_asked(c) && *comm_host(c, 2));
  CHECK(comm_launch(c)->rank == comm_rank(c));
}

TEST(comm_broadcast_of_rank_0) {
  RankProcesses r;
  processes_init(&r, 3, broadcast_repeatedly, NULL, -1);
  expect_quiet(&r);
}

static bool same_option(const char *of_rank_0, const char *other, Err *err) {
  if (!strcmp(of_rank_0, other)) return true;
  return err_set(err, "it has %s, rank 0 %s", other, of_rank_0);
}

static void agree_but_two(Comm *c, void *context) {
  (void)context;
  Err err;
  CHECK(comm_agree(c, "--lr 1", same_option, &err));
  if (!comm_agree(c, comm_rank(c) == 2 ? "--lr 2" : "--lr 1", same_option, &err)) die(EXIT_USAGE, "%s", err.msg);
  CHECK(false);
}

// All get the message, and end by it; one says it.
TEST(comm_agree_names_who_differs) {
  RankProcesses r;
  processes_init(&r, 4, agree_but_two, NULL, -1);
  processes_fork(&r, -1);
  processes_end(&r);
  const char *says = strstr(r.said, ": rank 2 on ");
  EXPECT(says && strstr(says, ": it has --lr 2, rank 0 --lr 1\n"));
  if (!EXPECT_INT(processes_lines(&r), 1)) printf("%s", r.said);
  for (int i = 0; i < r.world; i++) EXPECT_INT(r.status[i], EXIT_USAGE);
}

TEST(comm_alone_does_nothing) {
  Comm *c;
  Err err;
  CommPart part;
  char byte = 5;
  EXPECT(comm_open(&c, &(CommOptions){.launch = {.world = 1}}, &err) && !c);
  EXPECT(comm_alone(c) && comm_rank(c) == 0 && comm_world(c) == 1 && !comm_gather(c, &byte, 1, 1, &part));
  EXPECT(comm_agree(c, "a", same_option, &err) && !comm_stop_asked(c));
  comm_broadcast_bytes(c, &byte, 1);
  comm_barrier(c);
  comm_at(c, 1);
  comm_last(c, NULL, NULL);
  comm_check(c, NULL, NULL);
  comm_close(c);
  EXPECT_INT(byte, 5);
}
