// Catches ranks left running after a failure, failures without a message, and restarts that repeat a mistake.
//
// The supervisor with ranks that do next to nothing: its messages, its exit status, and that no process is left. Every
// job runs in a child whose stderr is a pipe held by all of its processes, so that run_in_child returns when all have
// ended.
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/interrupt.h"
#include "comm/supervisor.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

enum { LIMIT = 60 }; // seconds, for what takes a few milliseconds; half of it for each process of a job

typedef struct Job {
  int ranks, restarts;
  void (*body)(const Launch *l, int attempt); // exits, or returns for status 0
  void (*before)(void);                       // in the process that becomes the supervisor; NULL: nothing
} Job;

static void tell_kept(void *context, char *text, size_t room) {
  (void)context;
  snprintf(text, room, "out/checkpoint stands at step 5");
}

static void run_job(void *context) {
  const Job *job = context;
  Launch l;
  int attempt;
  alarm(LIMIT / 2);
  if (job->before) job->before();
  supervise(&(Supervision){.ranks = job->ranks, .restarts = job->restarts, .kept = tell_kept}, &l, &attempt);
  alarm(LIMIT / 2); // a fork begins without
  job->body(&l, attempt);
  exit(0);
}

static int run(const Job *job, const char **said) {
  test_limit(LIMIT);
  return run_in_child(run_job, (void *)job, said);
}

// Until a rank has begun. It may have ended since, because somebody has said why or asked for it.
static pid_t wait_for_rank(const Launch *l, int rank) {
  pid_t pid;
  while (!(pid = atomic_load(&l->crew->rank[rank].pid))) {
    if (atomic_load(&l->crew->said) || atomic_load(&l->crew->stop)) return 0;
    usleep(1000);
  }
  return pid;
}

static void wait_for_all(const Launch *l) {
  for (int r = 0; r < l->world; r++) wait_for_rank(l, r);
}

// The letter that /proc has for a process: R, S, T (stopped), Z; 0 where there is none.
static char state_of(pid_t pid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE *f = fopen(path, "r");
  if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 0;
  if (f) fclose(f);
  return state;
}

static void until_stopped(pid_t pid) {
  while (state_of(pid) != 'T') usleep(1000);
}

static void until_killed(void) {
  for (;;) pause();
}

// As ranks that learn over their connections that the run ends: with its status.
static void until_said(const Launch *l) {
  while (!atomic_load(&l->crew->said)) usleep(1000);
  exit(EXIT_RUN);
}

static int lines_of(const char *text) {
  int lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

static bool one_line_with(const char *said, const char *a, const char *b) {
  const bool ok = lines_of(said) == 1 && strstr(said, a) && strstr(said, b);
  if (!ok) printf("    said: %s\n", said);
  return ok;
}

// ---- beginnings -----------------------------------------------------------------------------------------------------

static void say_who(const Launch *l, int attempt) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (l->listener >= 0) getsockopt(l->listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
  const bool own = l->crew->supervisor == getppid() && atomic_load(&l->crew->rank[l->rank].pid) == getpid();
  const bool meets = !strncmp(l->meet, "tcp:127.0.0.1:", 14) && atoi(l->meet + 14) > 0 && l->secret;
  const bool right = l->local_rank == l->rank && l->local_world == l->world && !strcmp(l->by, "--gpus");
  fprintf(stderr, "%d of %d, attempt %d, %s %s %s %s\n", l->rank, l->world, attempt, listens ? "listens" : "-",
          own ? "own" : "-", meets ? "meets" : "-", right ? "right" : "-");
}

TEST(supervisor_forks_every_rank_once) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 3, .body = say_who}, &said), 0);
  EXPECT_INT(lines_of(said), 3);
  EXPECT(strstr(said, "0 of 3, attempt 0, listens own meets right\n"));
  EXPECT(strstr(said, "1 of 3, attempt 0, - own meets right\n"));
  EXPECT(strstr(said, "2 of 3, attempt 0, - own meets right\n"));
}

static void print_before(void) { printf("once"); }

static void end(const Launch *l, int attempt) {
  (void)l;
  (void)attempt;
}

static void count_output(void *context) {
  dup2(STDERR_FILENO, STDOUT_FILENO);
  run_job(context);
}

TEST(supervisor_leaves_no_output_to_be_written_twice) {
  const char *said;
  test_limit(LIMIT);
  EXPECT_INT(run_in_child(count_output, &(Job){.ranks = 4, .body = end, .before = print_before}, &said), 0);
  EXPECT_STR(said, "once");
}

// Whoever started this may have these ignored.
static void ignore_signals(void) {
  signal(SIGCHLD, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
}

static void hang_up(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank == 0) kill(getppid(), SIGHUP);
  if (interrupted()) exit(9);
}

TEST(supervisor_starts_with_signals_ignored) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .body = hang_up, .before = ignore_signals}, &said), 0);
  EXPECT_STR(said, "");
}

// ---- failures -------------------------------------------------------------------------------------------------------

static void kill_rank_1(const Launch *l, int attempt) {
  (void)attempt;
  atomic_store(&l->crew->rank[l->rank].step, 12);
  wait_for_all(l);
  if (l->rank == 1) raise(SIGKILL);
  until_said(l);
}

TEST(supervisor_says_which_rank_was_killed) {
  const char *said;
  char host[256] = "", rank[300];
  gethostname(host, sizeof host - 1);
  snprintf(rank, sizeof rank, "rank 1 on %s was killed by SIGKILL at step 12 (perhaps because memory ran out", host);
  EXPECT_INT(run(&(Job){.ranks = 3, .body = kill_rank_1}, &said), EXIT_RUN);
  EXPECT(one_line_with(said, rank, "; out/checkpoint stands at step 5\n"));
}

static void crash(const Launch *l, int attempt) {
  (void)attempt;
  signal(SIGSEGV, SIG_DFL); // a sanitizer catches it
  if (l->rank == 0) raise(SIGSEGV);
  until_said(l);
}

TEST(supervisor_names_the_signal) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .body = crash}, &said), EXIT_RUN);
  EXPECT(one_line_with(said, "rank 0 on ", " was killed by SIGSEGV before its first step; "));
}

static void kill_everybody(const Launch *l, int attempt) {
  (void)attempt;
  wait_for_all(l);
  if (l->rank) until_killed();
  for (int r = 1; r < l->world; r++) kill(atomic_load(&l->crew->rank[r].pid), SIGKILL);
  raise(SIGKILL);
}

TEST(supervisor_says_one_line_when_all_are_killed) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 4, .body = kill_everybody}, &said), EXIT_RUN);
  EXPECT(one_line_with(said, "rank ", " was killed by SIGKILL"));
}

static void claim_and_say(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank != 2) until_said(l);
  crew_claim(l->crew, 3);
  fprintf(stderr, "my own words\n");
  exit(3);
}

TEST(supervisor_is_silent_where_a_rank_has_spoken) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 3, .body = claim_and_say}, &said), 3);
  EXPECT_STR(said, "my own words\n");
}

static void end_without_a_word(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank == 1) exit(7);
  until_said(l);
}

TEST(supervisor_tells_of_a_silent_failure) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .body = end_without_a_word}, &said), 7);
  EXPECT(one_line_with(said, "rank 1 on ", " exited with status 7 and no message before its first step"));
}

static void stop_one_and_fail(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank == 1) raise(SIGSTOP);
  until_stopped(wait_for_rank(l, 1));
  crew_claim(l->crew, EXIT_RUN);
  exit(EXIT_RUN);
}

TEST(supervisor_kills_a_stopped_rank) {
  const char *said;
  const double begin = now_seconds();
  EXPECT_INT(run(&(Job){.ranks = 2, .body = stop_one_and_fail}, &said), EXIT_RUN);
  EXPECT_STR(said, "");
  EXPECT(now_seconds() - begin < GRACE);
}

// A rank that nothing reaches is killed when its time is up; those that end by themselves have had it.
static void one_is_deaf(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank == 1) until_killed();
  if (l->rank == 0) {
    wait_for_all(l);
    raise(SIGKILL);
  }
  while (!atomic_load(&l->crew->said)) usleep(1000);
  usleep(1000000); // as a checkpoint that is being written
  fprintf(stderr, "written\n");
  exit(EXIT_RUN);
}

TEST_TIER(supervisor_kills_who_does_not_end, 2) {
  const char *said;
  const double begin = now_seconds();
  EXPECT_INT(run(&(Job){.ranks = 3, .body = one_is_deaf}, &said), EXIT_RUN);
  EXPECT(now_seconds() - begin >= GRACE);
  EXPECT(lines_of(said) == 2 && strstr(said, "rank 0 on ") && strstr(said, "written\n"));
}

// ---- requests -------------------------------------------------------------------------------------------------------

static void until_asked(void) {
  while (!interrupted()) usleep(1000);
}

static void ask_the_supervisor(const Launch *l, int attempt) {
  (void)attempt;
  wait_for_all(l);
  if (l->rank == l->world - 1) kill(getppid(), SIGTERM);
  until_asked();
  exit(EXIT_RUN);
}

TEST(supervisor_hands_on_a_request) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 3, .restarts = 2, .body = ask_the_supervisor}, &said), EXIT_RUN);
  EXPECT_STR(said, "");
  EXPECT_INT(run(&(Job){.ranks = 1, .restarts = 2, .body = ask_the_supervisor}, &said), EXIT_RUN);
  EXPECT_STR(said, "");
}

// As Ctrl-C does it: all processes of the group get it, and the ranks leave it to the supervisor.
static void lead_a_group(void) { setpgid(0, 0); }

static void ask_the_group(const Launch *l, int attempt) {
  (void)attempt;
  wait_for_all(l);
  if (l->rank == 0) kill(0, SIGINT);
  until_asked();
}

TEST(supervisor_is_asked_by_the_terminal) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 3, .body = ask_the_group, .before = lead_a_group}, &said), 0);
  EXPECT_STR(said, "");
}

// SIGTERM to a rank is that rank's, which tells the others and the supervisor.
static void ask_a_rank(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank == 1) raise(SIGTERM);
  if (l->rank == 1 && interrupted()) atomic_store(&l->crew->stop, 1);
  until_asked();
  exit(EXIT_RUN);
}

TEST(supervisor_leaves_a_rank_its_request) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .restarts = 1, .body = ask_a_rank}, &said), EXIT_RUN);
  EXPECT_STR(said, "");
}

static void ask_twice(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank == 1) {
    kill(getppid(), SIGTERM);
    until_asked(); // the first one has been taken
    kill(getppid(), SIGINT);
  }
  until_killed();
}

TEST(supervisor_ends_at_once_on_a_second_request) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 3, .restarts = 1, .body = ask_twice}, &said), -SIGINT);
  EXPECT_STR(said, "");
}

// Stopped and continued, as by Ctrl-Z and fg: nothing has happened.
static void stop_the_supervisor(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank) return;
  kill(getppid(), SIGSTOP);
  until_stopped(getppid());
  const long long beat = atomic_load(&l->crew->beat);
  kill(getppid(), SIGCONT);
  while (atomic_load(&l->crew->beat) == beat) usleep(1000);
}

TEST(supervisor_goes_on_after_a_stop) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .body = stop_the_supervisor}, &said), 0);
  EXPECT_STR(said, "");
}

// A single rank has no other rank that would notice.
static void kill_the_supervisor(const Launch *l, int attempt) {
  (void)l;
  (void)attempt;
  kill(getppid(), SIGKILL);
  until_asked();
  fprintf(stderr, "saved\n");
}

TEST(supervisor_that_is_killed_ends_a_single_rank) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 1, .body = kill_the_supervisor}, &said), -SIGKILL);
  EXPECT_STR(said, "saved\n");
}

// ---- restarts -------------------------------------------------------------------------------------------------------

static void fail_twice(const Launch *l, int attempt) {
  if (attempt == 2) {
    say_who(l, attempt);
    return;
  }
  if (l->rank == 1) raise(SIGKILL);
  until_said(l);
}

TEST(supervisor_starts_again) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .restarts = 3, .body = fail_twice}, &said), 0);
  EXPECT_INT(lines_of(said), 6);
  EXPECT(strstr(said, "restarting, 1 of 3\n") && strstr(said, "restarting, 2 of 3\n"));
  EXPECT(strstr(said, "0 of 2, attempt 2, listens own meets right\n"));
}

TEST(supervisor_gives_up_after_so_many_restarts) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .restarts = 1, .body = kill_rank_1}, &said), EXIT_RUN);
  EXPECT(lines_of(said) == 3 && strstr(said, "restarting, 1 of 1\n"));
}

static void say_nothing_to_anybody(void) {
  int nobody[2];
  interrupt_by_writing();
  CHECK(!pipe(nobody) && !close(nobody[0]) && dup2(nobody[1], STDERR_FILENO) >= 0 && !close(nobody[1]));
}

static void expect_no_restart(const Launch *l, int attempt) {
  if (attempt) {
    printf("started again");
    exit(0);
  }
  kill_rank_1(l, attempt);
}

// Output that nobody reads is a request to stop, not the user's mistake, and not something to go on after.
TEST(supervisor_does_not_start_again_for_nobody) {
  const char *said;
  const Job job = {.ranks = 2, .restarts = 3, .body = expect_no_restart, .before = say_nothing_to_anybody};
  EXPECT_INT(run(&job, &said), EXIT_RUN);
}

static void make_a_mistake(const Launch *l, int attempt) {
  (void)attempt;
  if (l->rank) until_said(l);
  crew_claim(l->crew, EXIT_USAGE);
  exit(EXIT_USAGE);
}

TEST(supervisor_does_not_repeat_a_mistake) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 1, .restarts = 3, .body = make_a_mistake}, &said), EXIT_USAGE);
  EXPECT_STR(said, "");
}

// ---- forks ----------------------------------------------------------------------------------------------------------

enum { LONELY_USER = 61234 }; // who has no other process

// The second rank cannot be forked. Only the first is ended for that, none of the user's other processes.
static void fork_too_many(void *context) {
  int still[2];
  char byte;
  CHECK(!pipe(still) && !setgid(LONELY_USER) && !setuid(LONELY_USER));
  const pid_t bystander = fork();
  CHECK(bystander >= 0);
  if (!bystander) {
    CHECK(read(still[0], &byte, 1) == 1);
    _exit(7);
  }
  CHECK(!setrlimit(RLIMIT_NPROC, &(struct rlimit){3, 3}));
  const pid_t supervisor = fork();
  if (supervisor < 0) _exit(77); // as many are allowed, but not here
  if (!supervisor) run_job(context);
  int status;
  CHECK(waitpid(supervisor, &status, 0) == supervisor);
  const int ended = WEXITSTATUS(status);
  CHECK(write(still[1], "", 1) == 1 && waitpid(bystander, &status, 0) == bystander);
  _exit(WIFEXITED(status) && WEXITSTATUS(status) == 7 ? ended : 99);
}

static void for_ever(const Launch *l, int attempt) {
  (void)l;
  (void)attempt;
  until_killed();
}

TEST(supervisor_that_cannot_fork_ends_its_ranks_only) {
  const char *said;
  if (geteuid()) {
    test_skip("needs root, to become another user");
    return;
  }
  test_limit(LIMIT);
  EXPECT_INT(run_in_child(fork_too_many, &(Job){.ranks = 3, .body = for_ever}, &said), EXIT_RUN);
  EXPECT(one_line_with(said, "cannot start rank 0: ", "; does ulimit -u allow enough processes?"));
}

// ---- threads --------------------------------------------------------------------------------------------------------

static void *wait_for_ever(void *nothing) {
  (void)nothing;
  until_killed();
  return NULL;
}

static void start_a_thread(void) {
  pthread_t id;
  CHECK(!pthread_create(&id, NULL, wait_for_ever, NULL));
}

TEST(supervisor_refuses_to_fork_threads_away) {
  const char *said;
  EXPECT_INT(run(&(Job){.ranks = 2, .body = end, .before = start_a_thread}, &said), -SIGABRT);
  EXPECT(strstr(said, "check failed: threads <= 1"));
}
