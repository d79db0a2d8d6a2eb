// Catches exercises of the course that pass unsolved, or that fail with the right solution.
//
// The exercises of the course: unsolved, their checks fail; with the solutions of test/docs/course/solutions they pass;
// with a likely mistake in these they fail again.
#include <stddef.h>
#include "base/basics.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const struct {
  const char *file;
  const char *mistake; // what sed makes of the solution
} exercises[] = {
    // Of the lessons up to WMMA.
    {"1_naive", "s/j [*] conv->stride/j/"},                           // one stride for two axes
    {"2_smem_tile", "s/in_k && row/row/"},                            // reads past the end of K
    {"3_register_tile", "s/REGISTER_UNIT - 1/0/"},                    // registers rounded down
    {"4_vector_loads", "s/at_once = 128 .*/at_once = LANES;/"},       // a warp at once, however wide
    {"5_cp_async", "s/pipe_wait(stages - 2)/pipe_wait(stages - 1)/"}, // multiplies what is still on its way
    {"6_split_k", "s/workspace[[]s[]] = part;/sum += part;/; $d"},    // adds in the order of arrival
    {"7_wmma", "s/x, &y[[]j[]]/x, \\&y[0]/"},                         // one column of fragments for all
    // Of mma.sync and Hopper.
    {"8_mma_sync", "s|along / 8 [*] 2 + across / 8|across / 8 * 2 + along / 8|"}, // quarters of A in another order
    {"9_swizzle", "s|row / (8 / chunks)|row|"}, // rows of four chunks: every second row is half a turn on
    {"10_wgmma", "s/(uint64_t)64 << 32/(uint64_t)1024 << 32/"}, // not in units of 16 bytes
    {"11_tma", "s/ + 1 - conv/ - conv/"},                       // the last pixel, counted from the size
    {"12_warp_specialised", "s/producer ^ //"},                 // waits for the first stages to be emptied
    {"13_persistent", "/if (width/d"},                          // the last band as wide as the others
    {"14_cluster", "s/blocks [*] consumers/consumers/"},        // overwrites what another block still reads
    // Of what is left between the convolutions.
    {"15_moments", "s/d [*] d [*]/d */"},                 // m2 grows by the means' distance, not by its square
    {"16_suppression", "s|w = i / 64;|w = i / 64 + 1;|"}, // forgets the boxes of the same word
    {"17_bilinear", "s/>= -1/>= 0/g"},                    // no edge outside the map
    {"18_runs", "s/colour = 0, /colour = 1, /"},          // ones first
    {"19_plan", "s/seen[[]v[]] > 0/i < nodes - 1/"},      // adds to what nobody has written
    {"20_buckets", "s/ && i + 1 < pieces//"},             // forgets the rest
};

// Exit status of an exercise's check with an empty gap or, given a mistake, with what sed makes of the solution by it.
// What a reader has written into the gap is left out: who solves an exercise breaks no test.
static int check(const char **said, int i, const char *mistake) {
  char solution[64];
  const int number = atoi(exercises[i].file);
  snprintf(solution, sizeof solution, "test/docs/course/solutions/%d", number);
  return command(said,
                 "sed '%s' %s >%s && "
                 "sed '/-- your code --/,/-- end of your code --/{/your code --/!d;}' docs/course/exercises/%s.c |"
                 "sed '/-- your code --/r %s' >%s && "
                 "B=%s CC='%s' sh docs/course/exercises/check.sh %d %s",
                 mistake ? mistake : "", mistake ? solution : "/dev/null", in_tmp("gap"), exercises[i].file,
                 in_tmp("gap"), in_tmp("filled.c"), test_tmp(), getenv("CC") ? getenv("CC") : "cc", number,
                 in_tmp("filled.c"));
}

static bool compiler_is_there(void) {
  const char *said;
  if (!command(&said, "command -v %s", getenv("CC") ? getenv("CC") : "cc")) return true;
  test_skip("there is no C compiler");
  return false;
}

TEST_TIER(exercises_fail_as_they_are_delivered, 1) {
  const char *said;
  if (!compiler_is_there()) return;
  for (int i = 0; i < COUNT(exercises); i++) {
    EXPECT_INT(check(&said, i, NULL), 1);
    if (!EXPECT(strstr(said, "\nnot solved yet: ") && !strstr(said, "warning"))) puts(said);
  }
}

TEST_TIER(exercises_are_solved_by_their_solutions, 1) {
  const char *said;
  if (!compiler_is_there()) return;
  for (int i = 0; i < COUNT(exercises); i++) {
    EXPECT_INT(check(&said, i, ""), 0);
    if (!EXPECT(strstr(said, "\nsolved\n") && !strstr(said, "warning"))) puts(said);
  }
}

TEST_TIER(exercises_that_are_solved_answer_what_is_asked_next, 1) {
  static const struct {
    int number;
    const char *says;
  } asked[] = {
      {3, "\nsolved\nblocks of 256 threads of up to  32 registers: 8\n"},
      {4, "\nsolved\nrows of  64 bytes: 16 accesses\nrows of  80 bytes:  4 accesses\n"},
      {20, "\nsolved\nbuckets of   1 MB: the end is at 7.936 ms, with ten times the latency at 72.736 ms\n"},
  };
  const char *said;
  if (!compiler_is_there()) return;
  for (int i = 0; i < COUNT(asked); i++) {
    EXPECT_INT(check(&said, asked[i].number - 1, ""), 0);
    if (!EXPECT(strstr(said, asked[i].says))) puts(said);
  }
}

TEST_TIER(exercises_see_mistakes, 1) {
  const char *said;
  if (!compiler_is_there()) return;
  for (int i = 0; i < COUNT(exercises); i++) {
    EXPECT_INT(check(&said, i, exercises[i].mistake), 1);
    if (!EXPECT(strstr(said, "\nnot solved yet: "))) puts(said);
  }
}

TEST_TIER(exercises_say_which_there_are, 1) {
  const char *said;
  EXPECT_INT(command(&said, "sh docs/course/exercises/check.sh 99"), 2);
  EXPECT(strstr(said, "exercise 99: there is none\n") && strstr(said, "  15  moments\n"));
  EXPECT_INT(command(&said, "sh docs/course/exercises/check.sh"), 2);
  EXPECT(strstr(said, "make exercise N, with N of:\n"));
  EXPECT_INT(command(&said, "ls docs/course/exercises/*_check.c | wc -l"), 0);
  EXPECT_INT(atoi(said), COUNT(exercises)); // each has its solution here
}
