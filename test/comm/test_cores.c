// Catches ranks that share CPU cores while others are idle, or that run far from their GPU.
#define _GNU_SOURCE // sched_getaffinity
#include <omp.h>
#include <sched.h>
#include "base/file.h"
#include "comm/cores.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

enum { MAX_GPUS = 8 };

typedef struct Machine {
  int sockets, cores, threads;    // sockets; cores of each; threads of each core, numbered as on Linux: all first ones
                                  // before all second ones
  const char *near[MAX_GPUS + 1]; // local_cpulist of each GPU; NULL: no more
  const char *allowed;
} Machine;

static void write_line(const char *sys, const char *folder, const char *file, const char *text) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", sys, folder);
  CHECK(dirs_make(path, NULL));
  snprintf(path, sizeof path, "%s/%s/%s", sys, folder, file);
  FILE *f = fopen(path, "w");
  CHECK(f && fprintf(f, "%s\n", text) > 0 && !fclose(f));
}

static void build_cpu(const Machine *m, const char *sys, int cpu) {
  const int all = m->sockets * m->cores;
  char folder[64], text[64];
  snprintf(folder, sizeof folder, "devices/system/cpu/cpu%d/topology", cpu);
  snprintf(text, sizeof text, m->threads > 1 ? "%d,%d" : "%d", cpu % all, cpu % all + all);
  write_line(sys, folder, "thread_siblings_list", text);
  snprintf(text, sizeof text, "%d", cpu % all / m->cores);
  write_line(sys, folder, "physical_package_id", text);
}

// The tree of a machine; its path.
static const char *build(const Machine *m) {
  static char sys[512];
  static int machines;
  snprintf(sys, sizeof sys, "%s/sys%d", test_tmp(), machines++);
  for (int cpu = 0; cpu < m->sockets * m->cores * m->threads; cpu++) build_cpu(m, sys, cpu);
  for (int g = 0; m->near[g]; g++) {
    char folder[64];
    snprintf(folder, sizeof folder, "bus/pci/devices/0000:%da:00.0", g);
    write_line(sys, folder, "local_cpulist", m->near[g]);
  }
  return sys;
}

// As CUDA writes them.
static const char *const gpus[MAX_GPUS] = {"0000:0A:00.0", "0000:1A:00.0", "0000:2A:00.0", "0000:3A:00.0",
                                           "0000:4A:00.0", "0000:5A:00.0", "0000:6A:00.0", "0000:7A:00.0"};

// want: the ranks' sets, one after another, NULL at the end.
static void expect_shares(const Machine *m, const char *const *bus_id, const char *const *want) {
  const char *sys = build(m);
  int ranks = 0;
  while (want[ranks]) ranks++;
  CpuSet allowed, share;
  CHECK(cpus_parse(&allowed, m->allowed));
  for (int r = 0; r < ranks; r++) {
    char text[256];
    cores_share(&share, sys, &allowed, bus_id, ranks, r);
    cpus_print(&share, text, sizeof text);
    if (!EXPECT_STR(text, want[r])) printf("    rank %d\n", r);
  }
}
#define EXPECT_SHARES(machine, bus_id, ...) expect_shares(&(machine), bus_id, (const char *const[]){__VA_ARGS__, NULL})

// ---- sets -----------------------------------------------------------------------------------------------------------

TEST(cores_sets_are_read_and_written) {
  static const char *const right[] = {"0", "0-3", "1,3,5-7", "63-64,8191"}, *const wrong[] = {
                                                                                "",   "x",  "3-",   "3-1", "1,,2",
                                                                                "1,", "-1", "8192", "1 2", "0x3"};
  CpuSet s;
  char text[64];
  for (int i = 0; i < COUNT(right); i++) {
    EXPECT(cpus_parse(&s, right[i]));
    cpus_print(&s, text, sizeof text);
    EXPECT_STR(text, right[i]);
  }
  for (int i = 0; i < COUNT(wrong); i++) EXPECT(!cpus_parse(&s, wrong[i]) && cpus_count(&s) == 0);
  EXPECT(cpus_parse(&s, "2-4,9\n") && cpus_count(&s) == 4 && cpus_has(&s, 9) && !cpus_has(&s, 5));
  cpus_print(&s, text, 4); // what has no room is cut
  EXPECT_STR(text, "2-4");
}

// ---- machines -------------------------------------------------------------------------------------------------------

static const Machine eight = {
    2,
    8,
    2,
    {"0-7,16-23", "0-7,16-23", "0-7,16-23", "0-7,16-23", "8-15,24-31", "8-15,24-31", "8-15,24-31", "8-15,24-31"},
    "0-31"};

TEST(cores_of_two_sockets_with_four_gpus_each) {
  EXPECT_SHARES(eight, gpus, "0-1,16-17", "2-3,18-19", "4-5,20-21", "6-7,22-23", "8-9,24-25", "10-11,26-27",
                "12-13,28-29", "14-15,30-31");
}

// GPUs in another order than the sockets, and not all of them.
TEST(cores_follow_the_gpu_of_a_rank) {
  const char *const across[] = {gpus[6], gpus[0], gpus[5]};
  EXPECT_SHARES(eight, across, "8-11,24-27", "0-7,16-23", "12-15,28-31");
}

TEST(cores_without_locality_are_divided_evenly) {
  EXPECT_SHARES(eight, NULL, "0-7,16-23", "8-15,24-31");
  EXPECT_SHARES(eight, NULL, "0-4,16-20", "5-9,21-25", "10-15,26-31");
  const char *const partly[] = {gpus[4], ""}; // one is not known
  EXPECT_SHARES(eight, partly, "0-7,16-23", "8-15,24-31");
  const char *const absent[] = {gpus[4], "0000:ff:00.0"};
  EXPECT_SHARES(eight, absent, "0-7,16-23", "8-15,24-31");
  const Machine overlapping = {1, 8, 1, {"0-5", "2-7"}, "0-7"}, virtual = {1, 8, 1, {"0-7", "0-7"}, "0-7"};
  EXPECT_SHARES(overlapping, gpus, "0-3", "4-7");
  EXPECT_SHARES(virtual, gpus, "0-3", "4-7");
  const Machine garbage = {1, 4, 1, {"all of them", ""}, "0-3"};
  EXPECT_SHARES(garbage, gpus, "0-1", "2-3");
}

// Four NUMA nodes of which two have a GPU: nobody's cores go to ranks of their socket.
TEST(cores_near_no_gpu_are_not_idle) {
  const Machine quarters = {2, 8, 1, {"4-7", "8-11"}, "0-15"};
  EXPECT_SHARES(quarters, gpus, "0-7", "8-15");
  const Machine one_side = {2, 4, 1, {"0-3", "0-3"}, "0-7"}; // nor those of a socket without any
  EXPECT_SHARES(one_side, gpus, "0-3", "4-7");
}

TEST(cores_are_those_that_the_process_may_use) {
  Machine m = eight;
  m.allowed = "0-3,8-9,24"; // a batch system's share: the second socket has two cores, of which one has both threads
  const char *const two[] = {gpus[0], gpus[4]};
  EXPECT_SHARES(m, two, "0-3", "8-9,24");
  m.allowed = "0-3"; // nothing near the second GPU
  EXPECT_SHARES(m, two, "0-1", "2-3");
}

TEST(cores_are_at_least_one_for_a_rank) {
  const Machine small = {1, 2, 2, {NULL}, "0-3"};
  EXPECT_SHARES(small, NULL, "0,2", "1,3");
  EXPECT_SHARES(small, NULL, "0", "1", "2-3");              // fewer cores than ranks: their threads
  EXPECT_SHARES(small, NULL, "0", "0", "1", "2", "2", "3"); // fewer threads than ranks
  const Machine bare = {0, 0, 0, {NULL}, "0-2"};            // no topology at all
  EXPECT_SHARES(bare, NULL, "0", "1-2");
  EXPECT_SHARES(bare, NULL, "0-2");
}

// ---- this machine ---------------------------------------------------------------------------------------------------

static void take(void *context) {
  (void)context;
  CpuSet before = {0}, after = {0};
  CHECK(!sched_getaffinity(0, sizeof before, (cpu_set_t *)&before));
  const int alone = cores_take(NULL, 1, 0), all = cpus_count(&before);
  CHECK(!sched_getaffinity(0, sizeof after, (cpu_set_t *)&after) && !memcmp(&before, &after, sizeof before));
  const int share = cores_take(NULL, 2, 1);
  CHECK(!sched_getaffinity(0, sizeof after, (cpu_set_t *)&after));
  const bool right = alone == all && share == cpus_count(&after) && share <= MAX((all + 1) / 2 + 1, 1) && share >= 1;
  const bool follows = omp_get_num_procs() == share && omp_get_max_threads() == share;
  fprintf(stderr, right && follows ? "right" : "%d of %d: OpenMP has %d, takes %d", share, all, omp_get_num_procs(),
          omp_get_max_threads());
}

TEST(cores_are_taken_by_process_and_openmp) {
  const char *said, *chosen = getenv("OMP_NUM_THREADS");
  if (chosen) {
    test_skip("OMP_NUM_THREADS is set");
    return;
  }
  EXPECT_INT(run_in_child(take, NULL, &said), 0);
  EXPECT_STR(said, "right");
}
