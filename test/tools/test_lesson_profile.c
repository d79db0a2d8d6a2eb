// tools/lesson_profile.py on what ncu says, cut to a few columns, and the table that is made of its records; and
// test/programs/measure_ladder.sh with stand-ins for the programs.
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
                   "# 13_persistent\n==PROF== Connected\nladder \"says\" this\n" NAMES UNITS VALUES
                   "# 14_cluster\n" NAMES UNITS VALUES "==PROF== Disconnected\n",
                   unit, time, unit, time);
  return EXPECT(n < (int)sizeof text) && put("profiles", text) &&
         put("machine", "{\"date\":\"D\",\"command\":\"m\"}\n");
}

static int profile(const char **said) {
  return command(said, "python3 tools/lesson_profile.py %s %s", in_tmp("machine"), in_tmp("profiles"));
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

// ncu says the sample, whatever it is asked to run; it keeps its command line.
TEST_TIER(measure_ladder_times_and_profiles, 1) {
  const char *said;
  char ncu[64 + 4096];
  if (!put_profiles("ns", "1000")) return;
  int n = snprintf(ncu, sizeof ncu, "#!/bin/sh\necho \"$@\" >>%s\n", in_tmp("asked"));
  EXPECT(n < (int)sizeof ncu);
  n += snprintf(ncu + n, sizeof ncu - (size_t)n, "sed 1d %s\n", in_tmp("profiles"));
  if (!put("ncu", ncu) || !put("bench", "#!/bin/sh\necho time >>$3\n") ||
      !put("ladder_machine", "#!/bin/sh\necho '{\"date\":\"D\"}'\n"))
    return;
  CHECK(!command(&said, "cd %s && mkdir -p b && mv bench b/ && mv ladder_machine b/machine && chmod +x ncu b/*",
                 test_tmp()));
  if (!EXPECT_INT(
          command(&said, "B=%s/b PROFILE=%s/ncu LESSONS=01_naive sh test/programs/measure_ladder.sh %s %s && cat %s %s",
                  test_tmp(), test_tmp(), in_tmp("times"), in_tmp("counts"), in_tmp("times"), in_tmp("counts")),
          0))
    puts(said);
  EXPECT(strstr(said, "time\n{\"bench\": \"ladder-profile\", \"rung\": \"01_naive\""));
}
