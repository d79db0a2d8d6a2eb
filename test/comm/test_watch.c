// Catches a run that hangs when one of its ranks fails, is killed or stops.
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "test/harness/rank_processes.h"
#include "test/harness/test.h"

enum { WORLD = 3 };

// In a run's step 7, for ever.
static void at_work(Comm *c, void *context) {
  const RankProcesses *r = context;
  comm_at(c, 7);
  comm_barrier(c);
  poll(NULL, 0, 700); // the others hear of the step, unless the machine is very busy
  processes_tell(r);
  for (;; usleep(1000)) comm_barrier(c);
}

static void start(RankProcesses *r, void (*run)(Comm *c, void *context), double silence) {
  processes_init(r, WORLD, run, r, silence);
}

// One line, which holds both; the others end with `status`.
static void expect_line(const RankProcesses *r, int lost, int status, const char *a, const char *b) {
  if (!EXPECT(processes_lines(r) == 1 && strstr(r->said, a) && strstr(r->said, b)))
    printf("    said of rank %d, not %s…%s: %s\n", lost, a, b, r->said);
  for (int i = 0; i < r->world; i++)
    if (i != lost) EXPECT_INT(r->status[i], status);
}

TEST_TIER(watch_killed_rank_ends_all, 1) {
  bool step = false;
  for (int lost = 0; lost < WORLD; lost++) {
    RankProcesses r;
    char who[32];
    start(&r, at_work, -1);
    processes_fork(&r, -1);
    processes_await(&r, WORLD);
    kill(r.pid[lost], SIGKILL);
    processes_end(&r);
    snprintf(who, sizeof who, ": rank %d on ", lost);
    expect_line(&r, lost, EXIT_RUN, who, ": it exited without a message");
    EXPECT_INT(r.status[lost], -SIGKILL);
    step |= strstr(r.said, ", step 7: ") != NULL;
  }
  EXPECT(step);
}

// The others end. The one that is stopped is nobody's but its launcher's; when it goes on, it ends, too.
TEST_TIER(watch_stopped_rank_ends_all, 1) {
  for (int lost = 0; lost < WORLD; lost++) {
    RankProcesses r;
    char who[64];
    siginfo_t end;
    start(&r, at_work, 1.5);
    processes_fork(&r, -1);
    processes_await(&r, WORLD);
    kill(r.pid[lost], SIGSTOP);
    for (int i = 0; i < WORLD; i++)
      if (i != lost) EXPECT(!waitid(P_PID, (id_t)r.pid[i], &end, WEXITED | WNOWAIT));
    EXPECT(!waitid(P_PID, (id_t)r.pid[lost], &end, WSTOPPED | WNOHANG | WNOWAIT) && end.si_pid == r.pid[lost]);
    kill(r.pid[lost], SIGCONT);
    processes_end(&r);
    for (int i = 0; i < WORLD; i++) EXPECT_INT(r.status[i], EXIT_RUN);
    snprintf(who, sizeof who, ": rank %d on ", lost);
    EXPECT(strstr(r.said, who) && strstr(r.said, ": no heartbeat for "));
    EXPECT_INT(processes_lines(&r), lost ? 1 : 2);
    if (!lost) EXPECT(strstr(r.said, ": rank 0 sent no heartbeat\n")); // what it hears when it goes on
  }
}

// ---- failures -----------------------------------------------------------------------------------------------------

static int failing; // the rank that does

static void fail_by_die(Comm *c, void *context) {
  (void)context;
  comm_at(c, 3);
  comm_barrier(c);
  if (comm_rank(c) == failing) die(EXIT_USAGE, "the disk is full");
  for (;;) comm_barrier(c);
}
static void fail_by_check(Comm *c, void *context) {
  (void)context;
  comm_barrier(c);
  if (comm_rank(c) == failing) CHECK(failing < 0);
  for (;;) comm_barrier(c);
}
static void fail_together(Comm *c, void *context) {
  (void)context;
  comm_barrier(c);
  die(EXIT_USAGE, "all found this");
}
static bool gpu_is_lost(void *context, Err *err) {
  (void)context;
  return err_set(err, "the GPU fell off the bus");
}
static void fail_by_library(Comm *c, void *context) {
  (void)context;
  comm_barrier(c);
  if (comm_rank(c) == failing) comm_check(c, gpu_is_lost, NULL);
  for (;; usleep(1000)) comm_barrier(c);
}

static void expect_failure(void (*run)(Comm *c, void *context), int status, const char *says) {
  for (failing = 0; failing < WORLD; failing++) {
    RankProcesses r;
    char who[32];
    start(&r, run, -1);
    processes_fork(&r, -1);
    processes_end(&r);
    snprintf(who, sizeof who, ": rank %d on ", failing);
    expect_line(&r, -1, status, run == fail_together ? ": rank " : who, says);
  }
}

TEST(watch_failure_is_said_once) {
  expect_failure(fail_by_die, EXIT_USAGE, ", step 3: the disk is full\n");
  expect_failure(fail_by_check, EXIT_RUN, "test_watch.c:");
}
TEST(watch_common_failure_is_said_once) { expect_failure(fail_together, EXIT_USAGE, ": all found this\n"); }
TEST_TIER(watch_failure_of_a_library_is_said_once, 1) {
  expect_failure(fail_by_library, EXIT_RUN, ": the GPU fell off the bus\n");
}

// ---- what else goes through it ------------------------------------------------------------------------------------

static void save_in(void *path) {
  FILE *f = fopen(path, "w");
  if (f) fclose(f);
}
static void save_at_the_end(Comm *c, void *context) {
  const char *path = context;
  if (comm_rank(c) == 0) comm_last(c, save_in, (void *)path);
  comm_barrier(c);
  if (comm_rank(c) == 1) die(EXIT_RUN, "full");
  for (;;) comm_barrier(c);
}

TEST(watch_saves_what_must_not_be_lost) {
  RankProcesses r;
  char *path = xasprintf("%s/last", test_tmp());
  processes_init(&r, 2, save_at_the_end, path, -1);
  processes_fork(&r, -1);
  processes_end(&r);
  EXPECT(path_is_file(path));
  expect_line(&r, -1, EXIT_RUN, ": rank 1 on ", ": full\n");
  free(path);
}

static void until_asked(Comm *c, void *context) {
  processes_tell(context);
  while (!comm_stop_asked(c)) poll(NULL, 0, 10);
}
static void catch_requests(CommOptions *o) {
  (void)o;
  interrupt_catch();
}

TEST(watch_spreads_a_request_to_stop) {
  for (int asked = 0; asked < WORLD; asked++) {
    RankProcesses r;
    start(&r, until_asked, -1);
    r.before = catch_requests;
    processes_fork(&r, -1);
    processes_await(&r, WORLD);
    kill(r.pid[asked], SIGTERM);
    processes_end(&r);
    EXPECT_STR(r.said, "");
    for (int i = 0; i < WORLD; i++) EXPECT_INT(r.status[i], 0);
  }
}

// All ranks are stopped, as by Ctrl-Z, for longer than silence lasts, and go on.
TEST_TIER(watch_pause_of_all_is_no_silence, 1) {
  RankProcesses r;
  start(&r, until_asked, 2);
  r.before = catch_requests;
  processes_fork(&r, -1);
  processes_await(&r, WORLD);
  for (int i = 0; i < WORLD; i++) kill(r.pid[i], SIGSTOP);
  poll(NULL, 0, 3000);
  for (int i = 0; i < WORLD; i++) kill(r.pid[i], SIGCONT);
  poll(NULL, 0, 1000);
  kill(r.pid[1], SIGTERM);
  processes_end(&r);
  EXPECT_STR(r.said, "");
  for (int i = 0; i < WORLD; i++) EXPECT_INT(r.status[i], 0);
}

// ---- under a supervisor -------------------------------------------------------------------------------------------

static Crew *crew_shared(void) {
  Crew *crew = mmap(NULL, sizeof *crew, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(crew != MAP_FAILED);
  crew->supervisor = getpid();
  return crew;
}

static void start_crew(RankProcesses *r, void (*run)(Comm *c, void *context), double silence) {
  start(r, run, silence);
  r->options.launch.crew = crew_shared();
  r->options.launch.crew->ranks = WORLD;
}

TEST(watch_crew_says_it_once) {
  for (failing = 0; failing < WORLD; failing++) {
    RankProcesses r;
    char who[32];
    start_crew(&r, failing ? fail_by_die : fail_together, -1);
    processes_fork(&r, -1);
    processes_end(&r);
    snprintf(who, sizeof who, failing ? ": rank %d on " : ": rank ", failing);
    expect_line(&r, -1, EXIT_USAGE, who, failing ? "the disk is full" : "all found this");
    EXPECT_INT(crew_code(r.options.launch.crew), EXIT_USAGE);
    munmap(r.options.launch.crew, sizeof(Crew));
  }
}

// What the supervisor says of a rank that was killed is enough.
TEST(watch_crew_leaves_killed_ranks_to_the_supervisor) {
  for (int lost = 0; lost < WORLD; lost++) {
    RankProcesses r;
    start_crew(&r, at_work, -1);
    processes_fork(&r, -1);
    processes_await(&r, WORLD);
    kill(r.pid[lost], SIGKILL);
    EXPECT(crew_claim(r.options.launch.crew, EXIT_RUN));
    processes_end(&r);
    EXPECT_STR(r.said, "");
    EXPECT_INT((long long)r.options.launch.crew->rank[1].step, 7);
    for (int i = 0; i < WORLD; i++) EXPECT_INT(r.status[i], i == lost ? -SIGKILL : EXIT_RUN);
    munmap(r.options.launch.crew, sizeof(Crew));
  }
}

// Forks a supervisor that does nothing but beat and wait for its ranks; then sends it a signal.
static void lose_supervisor(int which, const char *says) {
  RankProcesses r;
  start_crew(&r, at_work, 2);
  Crew *crew = r.options.launch.crew;
  pid_t supervisor = fork();
  CHECK(supervisor >= 0);
  if (!supervisor) {
    crew->supervisor = getpid();
    processes_fork(&r, -1);
    close(r.input);
    close(r.output);
    while (waitpid(-1, NULL, WNOHANG) >= 0) {
      crew->beat++;
      poll(NULL, 0, 100);
    }
    _exit(5);
  }
  processes_await(&r, WORLD);
  kill(supervisor, which);
  processes_end(&r);
  int status;
  CHECK(waitpid(supervisor, &status, 0) == supervisor);
  EXPECT(which == SIGSTOP ? WIFEXITED(status) && WEXITSTATUS(status) == 5 : WIFSIGNALED(status));
  if (!EXPECT(processes_lines(&r) == 1 && strstr(r.said, ": rank 0 on ") && strstr(r.said, says))) printf("%s", r.said);
  munmap(crew, sizeof *crew);
}

TEST(watch_killed_supervisor_ends_all) { lose_supervisor(SIGKILL, "exited, so the run ends"); }
// It goes on, and ends with its ranks.
TEST_TIER(watch_stopped_supervisor_ends_all, 1) { lose_supervisor(SIGSTOP, "is stopped, so the run ends"); }
