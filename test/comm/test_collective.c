// Catches sums, gathers and broadcasts between ranks with wrong bits, and a failed collective that hangs.
//
// Collectives over device memory, over TCP and through a stub for NCCL, compared bit for bit with plain loops.
#include <signal.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "comm/collective.h"
#include "test/harness/command.h"
#include "test/harness/ranks.h"
#include "test/harness/test.h"

enum { MAX_WORLD = 5 };

// A device of the tests: the CPU, or what passes for a GPU.
static Device *open_device(Comm *c, bool gpu) {
  Err err;
  Device *dev = device_open("cpu", &err);
  dev->gpu = gpu;
  if (gpu) setenv("MASKRCNN_NCCL", tool("libnccl_stub.so"), 1);
  if (!collective_open(c, dev, 4, &err)) die(EXIT_USAGE, "%s", err.msg);
  return dev;
}

static void close_device(Comm *c, Device *dev) {
  collective_close(c);
  dev->gpu = false;
  device_close(dev);
}

// ---- values ---------------------------------------------------------------------------------------------------------

static uint64_t key_of(int rank) { return rng_key(rng_key(19, RNG_TEST), (uint64_t)rank); }

// Element i of a rank's buffer, of all magnitudes in 2^±8, so that the order of a sum shows.
static double value_of(uint64_t key, size_t i) {
  static const double magnitudes[] = {0x1p-39, 0x1p-38, 0x1p-37, 0x1p-36, 0x1p-35, 0x1p-34, 0x1p-33, 0x1p-32, 0x1p-31,
                                      0x1p-30, 0x1p-29, 0x1p-28, 0x1p-27, 0x1p-26, 0x1p-25, 0x1p-24, 0x1p-23};
  const uint32_t bits = rng_u32(key, i);
  return ((double)bits - 0x1p31) * magnitudes[bits % COUNT(magnitudes)];
}

static float from_bf16(uint16_t h) {
  const uint32_t bits = (uint32_t)h << 16;
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

// By trying: the nearer of the two neighbours, the even one of a tie.
static uint16_t to_bf16(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  const uint16_t below = (uint16_t)(bits >> 16), above = (uint16_t)(below + 1);
  const double to_below = fabs((double)v - from_bf16(below)), to_above = fabs((double)from_bf16(above) - v);
  if (to_below == to_above) return below & 1 ? above : below;
  return to_below < to_above ? below : above;
}

static void store(void *p, size_t i, DType dtype, double v) {
  if (dtype == F64) ((double *)p)[i] = v;
  if (dtype == F32) ((float *)p)[i] = (float)v;
  if (dtype == BF16) ((uint16_t *)p)[i] = to_bf16((float)v);
}

static double load(const void *p, size_t i, DType dtype) {
  return dtype == F64 ? ((const double *)p)[i] : dtype == F32 ? ((const float *)p)[i] : from_bf16(((uint16_t *)p)[i]);
}

static void fill(void *p, int rank, size_t n, DType dtype) {
  const uint64_t key = key_of(rank);
  for (size_t i = 0; i < n; i++) store(p, i, dtype, value_of(key, i));
}

// ((r0 + r1) + r2 + …) / world, in the type's arithmetic; of bfloat16 in float.
static void mean_of_ranks(void *p, int world, size_t n, DType dtype) {
  void *other = xmalloc(n * dtype_size(dtype));
  double *sum = xcalloc(n, sizeof *sum);
  for (int r = 0; r < world; r++) {
    fill(other, r, n, dtype);
    for (size_t i = 0; i < n; i++) {
      const double v = r > 0 ? sum[i] + load(other, i, dtype) : load(other, i, dtype);
      sum[i] = dtype == F64 ? v : (float)v;
    }
  }
  for (size_t i = 0; i < n; i++) store(p, i, dtype, dtype == F64 ? sum[i] / world : (float)sum[i] / (float)world);
  free(other);
  free(sum);
}

// ---- cases ----------------------------------------------------------------------------------------------------------

typedef struct Plan {
  bool gpu;
  const size_t *sizes;
  int count;
} Plan;

static const DType dtypes[] = {F32, BF16, F64};

static void check_mean(Comm *c, Device *dev, CommQueue queue, size_t n, DType dtype) {
  const size_t bytes = n * dtype_size(dtype);
  char *p = xmalloc(bytes + 1), *want = xmalloc(bytes);
  fill(p, comm_rank(c), n, dtype);
  p[bytes] = 77;
  mean_of_ranks(want, comm_world(c), n, dtype);
  collective_mean(c, dev, queue, p, n, dtype);
  EXPECT(!memcmp(p, want, bytes) && p[bytes] == 77);
  free(p);
  free(want);
}

static void do_means(Comm *c, void *context) {
  const Plan *plan = context;
  Device *dev = open_device(c, plan->gpu);
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < plan->count; i++)
      check_mean(c, dev, i % 2 ? COMM_SIDE_STREAM : COMM_WITH_OPS, plan->sizes[i], dtypes[d]);
  close_device(c, dev);
}

static void check_gather(Comm *c, Device *dev, bool in_place, size_t n, DType dtype) {
  const size_t bytes = n * dtype_size(dtype);
  char *mine = xmalloc(bytes), *all = xcalloc(MAX_WORLD, bytes), *want = xmalloc(bytes);
  char *own = all + (size_t)comm_rank(c) * bytes;
  fill(mine, comm_rank(c), n, dtype);
  if (in_place) memcpy(own, mine, bytes);
  collective_all_gather(c, dev, COMM_WITH_OPS, in_place ? own : mine, all, n, dtype);
  for (int r = 0; r < comm_world(c); r++) {
    fill(want, r, n, dtype);
    EXPECT(!memcmp(all + (size_t)r * bytes, want, bytes));
  }
  free(mine);
  free(all);
  free(want);
}

static void do_gathers(Comm *c, void *context) {
  const Plan *plan = context;
  Device *dev = open_device(c, plan->gpu);
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int i = 0; i < plan->count; i++) check_gather(c, dev, i % 2, plan->sizes[i], dtypes[d]);
  close_device(c, dev);
}

static void do_broadcasts(Comm *c, void *context) {
  const Plan *plan = context;
  Device *dev = open_device(c, plan->gpu);
  for (int i = 0; i < plan->count; i++) {
    const size_t bytes = plan->sizes[i];
    unsigned char *p = xmalloc(bytes);
    for (size_t j = 0; j < bytes; j++) p[j] = (unsigned char)(j * 7 + (size_t)comm_rank(c));
    collective_broadcast(c, dev, COMM_WITH_OPS, p, bytes);
    size_t wrong = 0;
    for (size_t j = 0; j < bytes; j++) wrong += p[j] != (unsigned char)(j * 7);
    EXPECT_INT(wrong, 0);
    free(p);
  }
  close_device(c, dev);
}

// What rank 0 takes at a time is 65536 floats: one less, so many, one more, and several with a rest.
static const size_t sizes[] = {0, 1, 2, 7, 1000, 65535, 65536, 65537, 32768, 131072, 131073, 300001};
static const size_t large[] = {1500001};

static void check(bool gpu, RankWork *work) {
  test_limit(120);
  for (int world = 1; world <= MAX_WORLD; world++) expect_ranks(world, work, &(Plan){gpu, sizes, COUNT(sizes)});
  expect_ranks(3, work, &(Plan){gpu, large, 1});
}

TEST_TIER(collective_mean_over_tcp, 1) { check(false, do_means); }
TEST_TIER(collective_mean_over_nccl, 1) { check(true, do_means); }
TEST_TIER(collective_all_gather_over_tcp, 1) { check(false, do_gathers); }
TEST_TIER(collective_all_gather_over_nccl, 1) { check(true, do_gathers); }
TEST_TIER(collective_broadcast_over_tcp, 1) { check(false, do_broadcasts); }
TEST_TIER(collective_broadcast_over_nccl, 1) { check(true, do_broadcasts); }

// ---- special values, alone, facts -----------------------------------------------------------------------------------

static void do_special(Comm *c, void *context) {
  (void)context;
  Device *dev = open_device(c, false);
  const bool first = comm_rank(c) == 0;
  float p[] = {first ? INFINITY : 1, first ? INFINITY : -INFINITY, first ? NAN : 1, -0.0f, first ? 3e38f : 2e38f};
  collective_mean(c, dev, COMM_WITH_OPS, p, COUNT(p), F32);
  EXPECT(p[0] == INFINITY && isnan(p[1]) && isnan(p[2]) && p[3] == 0 && signbit(p[3]));
  EXPECT(p[4] == INFINITY); // the sum has no room, as the mean would have
  uint16_t h[] = {first ? 0x7f80 : 0x3f80, first ? 0x7fff : 0x3f80, 0x8000, 0x3f80,
                  (uint16_t)(first ? 0x3f80 : 0x3f81)};
  collective_mean(c, dev, COMM_WITH_OPS, h, COUNT(h), BF16);
  EXPECT(h[0] == 0x7f80 && isnan(from_bf16(h[1])) && h[2] == 0x8000 && h[3] == 0x3f80);
  EXPECT_INT(h[4], 0x3f80); // halfway between it and 0x3f81: to even
  close_device(c, dev);
}
TEST(collective_mean_of_special_values) {
  test_limit(60);
  expect_ranks(2, do_special, NULL);
}

TEST(collective_alone_copies) {
  Err err;
  Device *dev = device_open("cpu", &err);
  EXPECT(collective_open(NULL, dev, 0, &err));
  float p[] = {1, 2, 3}, all[3] = {0};
  collective_mean(NULL, dev, COMM_WITH_OPS, p, 3, F32);
  collective_broadcast(NULL, dev, COMM_WITH_OPS, p, sizeof p);
  collective_all_gather(NULL, dev, COMM_WITH_OPS, p, all, 3, F32);
  EXPECT(p[0] == 1 && p[1] == 2 && p[2] == 3 && !memcmp(p, all, sizeof p));
  collective_all_gather(NULL, dev, COMM_WITH_OPS, p, p, 3, F32);
  EXPECT(!memcmp(p, all, sizeof p));
  collective_close(NULL);
  device_close(dev);
}

// A measuring walk runs no collectives and changes nothing: other ranks may measure another graph.
static void do_measuring(Comm *c, void *context) {
  (void)context;
  Device *dev = open_device(c, false);
  dev->measuring = comm_rank(c) == 1;
  if (dev->measuring) {
    collective_mean(c, dev, COMM_WITH_OPS, NULL, 9, F32);
    collective_all_gather(c, dev, COMM_WITH_OPS, NULL, NULL, 9, F32);
    collective_broadcast(c, dev, COMM_WITH_OPS, NULL, 9);
  }
  dev->measuring = false;
  float p = (float)comm_rank(c);
  collective_mean(c, dev, COMM_WITH_OPS, &p, 1, F32);
  EXPECT(p == 0.5f);
  close_device(c, dev);
}
TEST(collective_measuring_does_nothing) {
  test_limit(60);
  expect_ranks(2, do_measuring, NULL);
}

static void do_facts(Comm *c, void *gpu) {
  setenv("NCCL_STUB_VERSION", "22809", 1);
  setenv("NCCL_ALGO", "Ring \"of\" three", 1);
  Device *dev = open_device(c, gpu);
  CollectiveFacts facts;
  collective_facts(c, &facts);
  EXPECT_STR(facts.transport, gpu ? "nccl" : "tcp");
  EXPECT_INT(facts.nccl_version, gpu ? 22809 : 0);
  EXPECT_INT(facts.ctas, gpu ? 4 : 0);
  EXPECT(strstr(facts.variables, "\"NCCL_ALGO\":\"Ring \\\"of\\\" three\""));
  EXPECT(strstr(facts.variables, ",\"NCCL_STUB_VERSION\":\"22809\"")); // in the order of names
  free(facts.variables);
  close_device(c, dev);
}
TEST(collective_facts_are_told) {
  test_limit(60);
  expect_ranks(2, do_facts, NULL);
  expect_ranks(2, do_facts, "a GPU");
  CollectiveFacts facts;
  collective_facts(NULL, &facts);
  EXPECT(!facts.transport && facts.nccl_version == 0 && facts.variables);
  free(facts.variables);
}

// ---- a rank that fails ----------------------------------------------------------------------------------------------

// One line, of which this is a part, and no word of the other ranks; all end with that status.
static void expect_one_line(int world, RankWork *work, int status, const char *part) {
  const char *said;
  run_ranks(world, work, NULL, status, &said);
  const char *end = strchr(said, '\n');
  if (!EXPECT(strstr(said, part) && end && end[1] == '\0')) printf("  said: %s\n", said);
}

// In the environment of the ranks: a call of the stand-in fails on rank 1.
static void faults_begin(const char *fault, const char *text) {
  setenv("NCCL_STUB_FAULT", fault, 1);
  setenv("NCCL_STUB_RANK", "1", 1);
  setenv("NCCL_STUB_TEXT", text, 1);
}
static void faults_end(void) {
  unsetenv("NCCL_STUB_FAULT");
  unsetenv("NCCL_STUB_RANK");
  unsetenv("NCCL_STUB_TEXT");
}

// Steps without end: only the others' fate ends it.
static void do_steps(Comm *c, void *context) {
  (void)context;
  Device *dev = open_device(c, true);
  for (int64_t step = 1;; step++) {
    float p[100] = {0};
    comm_at(c, step);
    collective_mean(c, dev, COMM_WITH_OPS, p, COUNT(p), F32);
    if (comm_rank(c) == 2 && step == 5 && getenv("NCCL_STUB_LEAVE")) raise(SIGKILL);
  }
}

TEST_TIER(collective_call_that_fails_ends_all, 1) {
  test_limit(60);
  faults_begin("AllReduce:7:1", "Xid 79");
  expect_one_line(3, do_steps, 1, ", step 7: NCCL: ncclAllReduce: unhandled cuda error: Xid 79; set NCCL_DEBUG=INFO");
  faults_end();
}

TEST_TIER(collective_error_on_side_stream_ends_all, 1) {
  test_limit(60);
  faults_begin("async:7:1", "Xid 79");
  expect_one_line(3, do_steps, 1, ": NCCL: ncclCommGetAsyncError: unhandled cuda error: Xid 79; set NCCL_DEBUG=INFO");
  faults_end();
}

TEST_TIER(collective_gpu_given_twice, 1) {
  test_limit(60);
  faults_begin("CommInitRankConfig:1:5", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b000");
  expect_one_line(3, do_steps, EXIT_USAGE, "two ranks use the same GPU (NCCL: Duplicate GPU detected : rank 1 and");
  faults_end();
}

// What NCCL says of its end waits until that has been said.
TEST_TIER(collective_rank_killed_is_what_is_said, 1) {
  test_limit(60);
  setenv("NCCL_STUB_LEAVE", "1", 1);
  expect_one_line(3, do_steps, 128 + SIGKILL, "rank 2 on ");
  unsetenv("NCCL_STUB_LEAVE");
}

static void load_nothing(Comm *c, void *context) {
  (void)context;
  Err err;
  Device *dev = device_open("cpu", &err);
  dev->gpu = true;
  if (!collective_open(c, dev, 0, &err)) die(EXIT_USAGE, "%s", err.msg);
}
TEST_TIER(collective_no_nccl_anywhere, 1) {
  test_limit(60);
  setenv("MASKRCNN_NCCL", "/nowhere/libnccl.so.2", 1);
  expect_one_line(3, load_nothing, EXIT_USAGE, "MASKRCNN_NCCL: cannot open NCCL: /nowhere/libnccl.so.2: cannot open");
  unsetenv("MASKRCNN_NCCL");
}
