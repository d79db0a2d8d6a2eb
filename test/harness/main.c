// The harness behind test.h: collects the registered tests, runs those asked for, closes with "N passed, N failed".
#include <dirent.h>
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/team.h"
#include "base/threads.h"
#include "test/harness/jobs.h"

enum { MAX_REPORTS = 10 }; // failed checks printed per test: the first ones tell, a million more do not

static Test *tests;

// The test now running.
static struct {
  long checks, failures;
  char skipped[256]; // why; "": it was not
  char first[512];   // the first failure
} now;

static char process_folder[256], test_folder[288];

void test_register(Test *t) {
  t->next = tests;
  tests = t;
}

// Counts a check and prints why it failed. The first failure of a test is kept for the end of the run.
static void __attribute__((format(printf, 4, 5))) check(bool ok, const char *file, int line, const char *why, ...) {
  now.checks++;
  if (ok) return;
  if (now.failures == 0) putchar('\n'); // the test's name stands alone on its line
  if (++now.failures > MAX_REPORTS) return;
  va_list args;
  va_start(args, why);
  char text[4096];
  vsnprintf(text, sizeof text, why, args);
  va_end(args);
  printf("  %s:%d: %s\n", file, line, text);
  if (now.failures == 1) snprintf(now.first, sizeof now.first, "%s:%d: %.400s", file, line, text);
}

bool test_true(bool ok, const char *expr, const char *file, int line) {
  check(ok, file, line, "%s", expr);
  return ok;
}

bool test_int(long long got, long long want, const char *expr, const char *file, int line) {
  bool ok = got == want;
  check(ok, file, line, "%s is %lld, expected %lld", expr, got, want);
  return ok;
}

bool test_near(double got, double want, double tolerance, const char *expr, const char *file, int line) {
  bool ok = got == want || fabs(got - want) <= tolerance; // equal first: the difference of two infinities is NaN
  check(ok, file, line, "%s is %.17g, expected %.17g within %.3g (off by %.3g)", expr, got, want, tolerance,
        got - want);
  return ok;
}

bool test_str(const char *got, const char *want, const char *expr, const char *file, int line) {
  bool ok = got == want || (got && want && strcmp(got, want) == 0);
  check(ok, file, line, "%s is \"%s\", expected \"%s\"", expr, got ? got : "(null)", want ? want : "(null)");
  return ok;
}

long test_failures(void) { return now.failures; }
void test_skip(const char *why) { snprintf(now.skipped, sizeof now.skipped, "%s", why); }

// Of what is safe in a handler of signals; the test's name stands on the line already.
static void stop_hanging(int signal_number) {
  static const char says[] = "\n  the test hangs: it is past its time limit\n";
  (void)signal_number;
  _exit(write(STDOUT_FILENO, says, sizeof says - 1) > 0 ? 1 : 2);
}

void test_limit(unsigned seconds) {
  signal(SIGALRM, stop_hanging);
  alarm(seconds);
}

const char *shared_path(const char *relative) {
  static char buffers[4][1024];
  static int next;
  char *path = buffers[next++ % 4];
  const char *root = getenv("MASKRCNN_SHARED");
  int length = snprintf(path, sizeof buffers[0], "%s/data/%s", root ? root : "../shared", relative);
  return length < (int)sizeof buffers[0] && access(path, R_OK) == 0 ? path : NULL;
}

const char *test_tmp(void) { return test_folder; }

const char *test_kept(const char *name) {
  static char paths[4][512];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", process_folder, name);
  return path;
}

void tmp_create(void) {
  const char *base = getenv("TMPDIR");
  snprintf(process_folder, sizeof process_folder, "%s/maskrcnn-test-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(process_folder))
    die(EXIT_RUN, "cannot create %s; set TMPDIR to a folder that can be written", process_folder);
}

void tmp_set_process(int process) {
  char *folder = xasprintf("%s/%d", process_folder, process);
  if (mkdir(folder, 0777) && errno != EEXIST) die(EXIT_RUN, "cannot create %s", folder);
  snprintf(process_folder, sizeof process_folder, "%s", folder);
  free(folder);
}

// A number no folder before has had: a process that a test left running still writes to the folder it knows.
static void begin_test_folder(void) {
  static int tests_begun;
  snprintf(test_folder, sizeof test_folder, "%s/test-%d", process_folder, ++tests_begun);
  if (mkdir(test_folder, 0777)) die(EXIT_RUN, "cannot create %s", test_folder);
}

static void remove_tree(const char *path) {
  struct stat st;
  if (lstat(path, &st) != 0) return;
  if (!S_ISDIR(st.st_mode)) { // a link to a folder is removed, not followed
    unlink(path);
    return;
  }
  DIR *dir = opendir(path);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    char *child = xasprintf("%s/%s", path, entry->d_name);
    remove_tree(child);
    free(child);
  }
  if (dir) closedir(dir);
  rmdir(path);
}

void tmp_remove(void) { remove_tree(process_folder); }

static int compare_name(const void *a, const void *b) {
  return strcmp((*(Test *const *)a)->name, (*(Test *const *)b)->name);
}

// All registered tests in the order of their names; the order of constructors is the linker's choice.
static Test **sorted_tests(int *count) {
  *count = 0;
  for (Test *t = tests; t; t = t->next) ++*count;
  Test **sorted = xcalloc((size_t)*count, sizeof *sorted);
  int i = 0;
  for (Test *t = tests; t; t = t->next) sorted[i++] = t;
  qsort(sorted, (size_t)*count, sizeof *sorted, compare_name);
  for (i = 1; i < *count; i++)
    if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) die(EXIT_USAGE, "two tests named %s", sorted[i]->name);
  return sorted;
}

static bool selected(const Test *t, int tier, char **substrings, int count) {
  if (t->tier > tier) return false;
  for (int i = 0; i < count; i++)
    if (strstr(t->name, substrings[i])) return true;
  return count == 0;
}

static void run_test(const Test *t, Verdict *v) {
  memset(&now, 0, sizeof now);
  begin_test_folder();
  printf("%-48s", t->name);
  fflush(stdout); // a test that crashes is named
  double begin = now_seconds();
  t->run();
  alarm(0); // of test_limit
  double seconds = now_seconds() - begin;
  if (now.checks == 0 && !*now.skipped) test_true(false, "the test checked nothing", t->name, 0);
  if (now.failures > MAX_REPORTS) printf("  and %ld more\n", now.failures - MAX_REPORTS);
  v->outcome = now.failures > 0 ? FAILED : *now.skipped ? SKIPPED : PASSED;
  memcpy(v->first, now.first, sizeof v->first);
  if (v->outcome == FAILED)
    printf("%-48s %8.3f s  FAIL (%ld of %ld checks)\n", t->name, seconds, now.failures, now.checks);
  else if (v->outcome == SKIPPED)
    printf(" %8.3f s  skip %s\n", seconds, now.skipped);
  else
    printf(" %8.3f s  ok\n", seconds);
  remove_tree(test_folder);
}

// Tests fork without OpenMP's threads: a lock that one of them holds stays locked in the child. With gcc 12's
// AddressSanitizer 3 of 3,000 children of a program with such threads hung in malloc. LLVM's runtime has handlers of
// its own, which would wait for this one forever.
static void end_workers(void) { omp_pause_resource_all(omp_pause_hard); }

// Of main, but not on its stack: a leak checker does not always find that in a worker process, which is a fork.
static Test **run_tests;
static Verdict *verdicts;

int main(int argc, char **argv) {
  threads_wait_briefly(argv);
  if (team_sleeps()) pthread_atfork(end_workers, NULL, NULL);
  int tier = 1, names = 0, jobs = 1;
  bool list = false;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--list") == 0)
      list = true;
    else if (strcmp(argv[i], "--tier") == 0 && i + 1 < argc && strlen(argv[i + 1]) == 1 &&
             strchr("012", argv[i + 1][0]))
      tier = argv[++i][0] - '0';
    else if (strcmp(argv[i], "--jobs") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0)
      jobs = atoi(argv[++i]);
    else if (argv[i][0] == '-')
      die(EXIT_USAGE, "cannot use %s; usage: %s [--tier 0|1|2] [--jobs N] [--list] [part of a name]...", argv[i],
          argv[0]);
    else
      argv[names++] = argv[i]; // names are kept in the front of argv, behind what is already read
  }

  int count, chosen = 0;
  run_tests = sorted_tests(&count);
  for (int i = 0; i < count; i++)
    if (selected(run_tests[i], tier, argv, names)) run_tests[chosen++] = run_tests[i];
  if (chosen == 0 && !list) die(EXIT_USAGE, "no test of tiers 0 to %d has such a name; --list shows their names", tier);
  verdicts = xcalloc((size_t)chosen, sizeof *verdicts);
  bool ok = true;
  if (!list) tmp_create();
  if (list)
    for (int i = 0; i < chosen; i++) printf("%d %s\n", run_tests[i]->tier, run_tests[i]->name);
  else if (jobs == 1)
    for (int i = 0; i < chosen; i++) run_test(run_tests[i], &verdicts[i]);
  else
    ok = jobs_run(run_tests, chosen, MIN(jobs, chosen), run_test, verdicts);
  if (!list) tmp_remove();
  int outcomes[OUTCOMES] = {0};
  for (int i = 0; i < chosen && !list; i++) {
    outcomes[verdicts[i].outcome]++;
    // Again, where the end of a long log is all that one sees.
    if (verdicts[i].outcome == FAILED) printf("FAIL %s: %s\n", run_tests[i]->name, verdicts[i].first);
  }
  free(run_tests);
  free(verdicts);
  if (list) return 0;
  printf("%d passed, %d failed", outcomes[PASSED], outcomes[FAILED]);
  if (outcomes[SKIPPED] > 0) printf(", %d skipped", outcomes[SKIPPED]);
  putchar('\n');
  return !ok || outcomes[FAILED] > 0;
}
