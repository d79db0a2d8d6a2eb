// Catches profiles of the lessons' kernels that are misread from ncu's output.
//
// lab/lesson_profile.py on ncu's output, cut to a few columns; the figures that pages make of its records; and
// plans/ladder.plan with stubs for the programs.
#include "base/alloc.h"
#include "base/error.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// Names and units of all that a record has; ncu has more columns, and scales some units.
#define NAMES                                                                                                          \
  "\"ID\",\"Kernel Name\",\"gpu__time_duration.max\",\"gpu__time_duration.sum\",\"launch__registers_per_thread\","     \
  "\"sm__warps_active.avg.pct_of_peak_sustained_active\",\"smsp__issue_active.avg.pct_of_peak_sustained_active\","     \
  "\"sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active\","                                                   \
  "\"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active\","                                                \
  "\"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active\","                                                \
  "\"l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum\","                                                            \
  "\"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed\",\"lts__t_bytes.sum.per_second\","  \
  "\"dram__bytes.sum.per_second\",\"smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio\","       \
  "\"smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio\","                                              \
  "\"smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio\","                                         \
  "\"smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio\"\n"
#define UNITS                                                                                                          \
  "\"\",\"\",\"ns\",\"%s\",\"register/thread\",\"%%\",\"%%\",\"%%\",\"%%\",\"%%\",\"\",\"%%\",\"byte/s\","             \
  "\"Gbyte/s\",\"inst\",\"inst\",\"inst\",\"inst\"\n"
#define VALUES                                                                                                         \
  "\"0\",\"forward_kernel(TmaGemm, int)\",\"1\",\"%s\",\"168\",\"18.75\",\"18.67\",\"3.28\",\"1.06\",\"67.61\","       \
  "\"52,658\",\"43.58\",\"5,495,843,017,074.24\",\"510.1\",\"0.73\",\"9.71\",\"0\",\"0.70\"\n"

static bool put(const char *name, const char *text) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  FILE *f = fopen(in_tmp(name), "w");
  return EXPECT(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

// A profile of two lessons, whose time is in that unit.
static bool put_profiles(const char *unit, const char *time) {
  char text[8192];
  int n = snprintf(text, sizeof text,
                   "# 13_persistent\n==PROF== Connected\n\"ladder\" says this\n" NAMES UNITS VALUES
                   "# 14_cluster\n" NAMES UNITS VALUES "==PROF== Disconnected\n",
                   unit, time, unit, time);
  return EXPECT(n < (int)sizeof text) && put("profiles", text) &&
         put("machine", "{\"date\":\"D\",\"command\":\"m\"}\n");
}

static int profile(const char **said) {
  return command(said, "python3 lab/lesson_profile.py %s %s", in_tmp("machine"), in_tmp("profiles"));
}

TEST_TIER(lesson_profile_reads_what_ncu_says, 1) {
  const char *said;
  if (!put_profiles("ms", "1,511.648")) return;
  if (!EXPECT_INT(profile(&said), 0)) puts(said);
  const char *second = strchr(said, '\n');
  if (!EXPECT(second && strstr(second, "\"rung\": \"14_cluster\", \"op\": \"fwd\", \"layer\": \"p2.3x3\"") &&
              strstr(second, "\"us\": 1511648, \"registers\": 168, \"warps\": 18.75, \"issue\": 18.67, ") &&
              strstr(second, "\"conflicts\": 52658, ") &&
              strstr(second, "\"l2_gb_s\": 5495.843, \"dram_gb_s\": 510.1") && strstr(second, "\"date\": \"D\"") &&
              strstr(second, "--rungs 14_cluster --layer p2.3x3\"}\n")))
    puts(said);
}

TEST_TIER(lesson_profile_says_what_is_missing, 1) {
  const char *said;
  if (!put_profiles("hours", "1")) return;
  EXPECT_INT(profile(&said), 2);
  EXPECT(strstr(said, "lesson_profile: 13_persistent: gpu__time_duration.sum is in hours"));
  if (!put_profiles("ms", "n/a")) return;
  EXPECT_INT(profile(&said), 2);
  EXPECT(strstr(said, "gpu__time_duration.sum is 'n/a', no number"));
  if (!put("profiles", "# 01_naive\n==ERROR== ERR_NVGPUCTRPERM\n")) return;
  EXPECT_INT(profile(&said), 2);
  EXPECT(strstr(said, "lesson_profile: 01_naive: ncu's names, units and values are wanted"));
  if (!put("profiles", "# 01_naive\n\"a\"\n\"\"\n\"1\"\n")) return;
  EXPECT_INT(profile(&said), 2);
  EXPECT(strstr(said, "01_naive: no gpu__time_duration.sum; was ncu called with the flags that --flags says?"));
  if (!put("profiles", "")) return;
  EXPECT_INT(profile(&said), 2);
  EXPECT(strstr(said, "no line `# NN_name`"));
}

static const char profiled[] =
    "{\"bench\":\"ladder-profile\",\"rung\":\"07_wmma\",\"us\":1500.4,\"issue\":45.57,\"tensor_cycles\":5.04,"
    "\"conflicts\":4653074,\"l2_gb_s\":4000,\"barrier\":0.688,\"date\":\"2026-01-01T00:00:00Z\",\"commit\":\"0123456\","
    "\"clean\":true,\"command\":\"made up\",\"machine\":{\"cpu\":\"\",\"cores\":1,\"ram_gib\":1,\"os\":\"\","
    "\"kernel\":\"\",\"compiler\":\"\",\"gpu\":null,\"gpus\":null,\"gpu_memory_gib\":null,\"sm_mhz\":null,"
    "\"sm_mhz_max\":null,\"memory_mhz\":null,\"memory_mhz_max\":null,\"power_limit_w\":null,\"driver\":null,"
    "\"cuda_runtime\":null,\"cuda_toolkit\":null}}\n";

// What a page with these markers becomes.
static const char *page_of(const char *keys, int expected) {
  const char *said, *root = in_tmp("profile-root");
  CHECK(!command(&said,
                 "rm -rf %s && mkdir -p %s/docs %s/results && echo '[]' >%s/results/legacy.json && "
                 "echo '`legacy.json` `ladder-profile-h200.jsonl`' >%s/results/README.md && for key in %s; do "
                 "echo \"<!-- value: profile.$key --><!-- end -->\"; done >%s/docs/page.md",
                 root, root, root, root, root, keys, root));
  if (!put("profile-root/results/ladder-profile-h200.jsonl", profiled)) return NULL;
  if (!EXPECT_INT(command(&said, "python3 lab/tables.py --root %s", in_tmp("profile-root")), expected)) puts(said);
  if (expected) return said;
  CHECK(!command(&said, "sed 's/<!-- [^>]* -->//g' %s", in_tmp("profile-root/docs/page.md")));
  return said;
}

TEST_TIER(lesson_profile_figures, 1) {
  const char *said = page_of("07.us 07.issue 07.tensor_cycles 07.conflicts 07.l2_gb 07.l2_gb_s 07.barrier", 0);
  if (said && !EXPECT(!strcmp(said, "1500\n46 %\n5.0 %\n4.7\n6.0\n4000\n0.69\n"))) puts(said);
  said = page_of("08.us", 2);
  if (said && !EXPECT(strstr(said, "no record of ladder-profile-h200 has rung=08_mma_sync"))) puts(said);
}

// Stubs for the build's programs and for ncu, which records its arguments and prints the sample.
static bool put_programs(void) {
  const char *said, *tmp = test_tmp();
  return put_profiles("ns", "1000") &&
         put("bench", "#!/bin/sh\necho '{\"rung\":\"cudnn\",\"layer\":\"p2.3x3\",\"tflops\":7}' >>$3\n") &&
         put("ncu", "#!/bin/sh\necho \"$@\" >>\"$(dirname \"$0\")/asked\"\nsed -n '2,/^\"0/p' \"$(dirname "
                    "\"$0\")/profiles\"\n") &&
         put("machine", "#!/bin/sh\necho '{\"date\":\"D\"}'\n") &&
         EXPECT(!command(&said, "cd %s && mkdir -p b && mv bench machine b && chmod +x ncu b/*", tmp));
}

// The plan, of two lessons; records go to FILE below test_tmp().
static int measure(const char **said, const char *which, const char *profiler, const char *file) {
  const char *tmp = test_tmp();
  return command(said,
                 "python3 lab/study.py plans/ladder.plan --only 'command=%s' --rerun failed "
                 "--set 'bin=%s/b ncu=%s' --out %s/ladder-out --records %s/%s",
                 which, tmp, profiler, tmp, tmp, file);
}

TEST_TIER(plans_ladder_times_and_profiles, 1) {
  const char *said;
  if (!put_programs()) return;
  char *ncu = xstrdup(in_tmp("ncu"));
  if (!EXPECT_INT(measure(&said, "times", ncu, "times"), 0)) puts(said);
  EXPECT_INT(measure(&said, "counts lesson=01_naive,14_cluster", in_tmp("nowhere"), "none"), 1);
  EXPECT(strstr(said, "counts lesson=01_naive, repeat 1: ") && strstr(said, "nowhere"));
  if (!EXPECT_INT(measure(&said, "counts lesson=01_naive,14_cluster", ncu, "counts"), 0)) puts(said);
  CHECK(!command(&said, "cd %s && cat times counts asked", test_tmp()));
  const char *asked = strstr(said, "\n--clock-control none -k regex:forward_kernel ");
  EXPECT(strstr(said, "{\"rung\":\"cudnn\"") == said);
  EXPECT(strstr(said, "\n{\"bench\": \"ladder-profile\", \"rung\": \"01_naive\", "));
  EXPECT(strstr(said, "\n{\"bench\": \"ladder-profile\", \"rung\": \"14_cluster\", "));
  if (!EXPECT(asked && strstr(asked, "/b/bench ladder --rungs 14_cluster --layer p2.3x3\n"))) puts(said);
  free(ncu);
}
