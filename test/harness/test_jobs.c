// Catches test runs that end with the first crash, mix what tests print, or leave processes behind when interrupted.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/error.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/jobs.h"

static void pass(void) { usleep(20000); }
static void crash(void) { raise(SIGKILL); }
static void leave(void) { exit(3); }
static void hang(void) {
  test_limit(1);
  for (;;) pause();
}

// A process of its own session outlives its parent and gets no signal of the terminal's.
static void interrupt(void) {
  command(NULL, "setsid sleep 1000 >/dev/null 2>&1 & echo $! >%s/left", test_tmp());
  kill(getppid(), SIGINT);
  for (;;) pause();
}

// Prints in two parts, and has nothing to check.
static void run(const Test *t, Verdict *v) {
  printf("%s begins\n", t->name);
  t->run();
  fprintf(stderr, "%s ends\n", t->name);
  *v = (Verdict){.outcome = strncmp(t->name, "fails", 5) ? PASSED : FAILED, .first = "a check"};
}

// Runs tests in a process of its own, two at a time, and prints how they ended.
typedef struct Sample {
  Test *tests;
  int count;
} Sample;
static void run_sample(void *context) {
  const Sample *s = context;
  Test *tests[16];
  Verdict verdicts[16] = {0};
  CHECK(dup2(2, 1) == 1);
  tmp_set_process(9);
  for (int i = 0; i < s->count; i++) tests[i] = &s->tests[i];
  EXPECT(jobs_run(tests, s->count, 2, run, verdicts));
  for (int i = 0; i < s->count; i++) printf("%s: %d %s\n", tests[i]->name, verdicts[i].outcome, verdicts[i].first);
  fflush(stdout);
}

TEST(jobs_go_on_after_a_crash) {
  Test tests[] = {{"a", pass, 0, NULL},        {"b", pass, 0, NULL},       {"fails_by_a_check", pass, 0, NULL},
                  {"crashes", crash, 0, NULL}, {"leaves", leave, 0, NULL}, {"hangs", hang, 0, NULL},
                  {"z", pass, 0, NULL}};
  static const char *const wanted[] = {"\na: 0 a check\nb: 0 a check\n",
                                       "\nfails_by_a_check: 1 a check\n",
                                       "\ncrashes: 1 ended by signal 9 (Killed)\n",
                                       "\nleaves: 1 ended with exit status 3\n",
                                       "\nhangs begins\n\n  the test hangs: it is past its time limit\n\nhangs ",
                                       "\nhangs: 1 ended with exit status 1\n",
                                       "\nz: 0 a check\n",
                                       "\na begins\na ends\n",
                                       "\nb begins\nb ends\n",
                                       "\nz begins\nz ends\n"};
  const char *said;
  char text[8192];
  EXPECT_INT(run_in_child(run_sample, &(Sample){tests, COUNT(tests)}, &said), 0);
  snprintf(text, sizeof text, "\n%s", said);
  for (int i = 0; i < COUNT(wanted); i++)
    if (!EXPECT(strstr(text, wanted[i]))) printf("    wanted: %s\n    in: %s\n", wanted[i], text);
}

TEST(jobs_start_with_long_tests_and_run_gpu_tests_alone) {
  Test tests[] = {{"a", pass, 0, NULL},
                  {"b", pass, 1, NULL},
                  {"of_cuda_0", pass, 1, NULL},
                  {"c", pass, 0, NULL},
                  {"of_cuda_1", pass, 2, NULL}};
  const char *said;
  EXPECT_INT(run_in_child(run_sample, &(Sample){tests, COUNT(tests)}, &said), 0);
  const char *order[] = {"b: 0", "a: 0", "c: 0", "of_cuda_1: 0", "of_cuda_0: 0"};
  for (int i = 0; i < COUNT(order); i++) {
    said = strstr(said, order[i]);
    if (!EXPECT(said)) return;
  }
}

TEST(jobs_leave_nothing_behind_when_interrupted) {
  Test tests[] = {{"interrupts", interrupt, 0, NULL}, {"waits", hang, 0, NULL}, {"z", pass, 0, NULL}};
  const char *said;
  struct stat st;
  EXPECT_INT(run_in_child(run_sample, &(Sample){tests, COUNT(tests)}, &said), -SIGINT);
  if (!EXPECT(strstr(said, "ended by signal 2 (Interrupt); running: interrupts waits\n"))) printf("    %s\n", said);
  EXPECT(stat(test_kept("9"), &st) != 0);
  EXPECT(command(NULL, "kill -0 $(cat %s)", in_tmp("left")) != 0);
}
