#include "test/harness/jobs.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

enum { LOOK_MS = 200, LIMIT_SECONDS = 900, LIMIT_SECONDS_LONG = 4 * 3600 };

typedef struct Worker {
  pid_t pid; // 0: none
  int socket, output;
  int test;     // the one it runs, -1: none
  double begin; // of that test
  bool late;
} Worker;

typedef struct Jobs {
  Test **tests;
  int count, next; // next to be run
  Worker *workers;
  int jobs, busy;
  void (*run)(const Test *t, Verdict *v);
  Verdict *verdicts;
  bool ok;
} Jobs;

static volatile sig_atomic_t stop_signal;
static void note_signal(int number) { stop_signal = number; }
static void wake(int number) { (void)number; }

static const int stopping[] = {SIGHUP, SIGINT, SIGTERM};
static struct sigaction before[COUNT(stopping)];

static void signals_begin(void) {
  for (int i = 0; i < COUNT(stopping); i++) {
    CHECK(!sigaction(stopping[i], NULL, &before[i]));
    if (before[i].sa_handler != SIG_IGN) // as under nohup
      CHECK(!sigaction(stopping[i], &(struct sigaction){.sa_handler = note_signal}, NULL));
  }
  CHECK(!sigaction(SIGCHLD, &(struct sigaction){.sa_handler = wake}, NULL)); // ends poll
}
static void signals_end(void) {
  signal(SIGCHLD, SIG_DFL);
  for (int i = 0; i < COUNT(stopping); i++) CHECK(!sigaction(stopping[i], &before[i], NULL));
}

// Tests that need a GPU are not sized to share its memory.
static bool runs_alone(const Test *t) { return strstr(t->name, "cuda"); }

static int compare_order(const void *a, const void *b) {
  const Test *x = *(Test *const *)a, *y = *(Test *const *)b;
  const int alone = runs_alone(x) - runs_alone(y), tier = y->tier - x->tier;
  return alone ? alone : tier ? tier : strcmp(x->name, y->name);
}

// ---- a worker -------------------------------------------------------------------------------------------------------

// Takes numbers of tests and returns verdicts until the other end closes.
static void work(Jobs *j, int number, int socket, pid_t parent) {
  Worker *w = &j->workers[number];
  signals_end();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  for (int i = 0; i < j->jobs; i++)
    if (j->workers[i].pid) close(j->workers[i].socket);
  const int nothing = open("/dev/null", O_RDONLY);
  CHECK(nothing >= 0 && dup2(nothing, 0) == 0 && dup2(w->output, 1) == 1 && dup2(w->output, 2) == 2);
  close(nothing);
  setlinebuf(stdout); // so that stderr comes in between at the right place
  tmp_set_process(number);
  int test;
  while (recv(socket, &test, sizeof test, 0) == sizeof test) {
    Verdict v;
    j->run(j->tests[test], &v);
    fflush(NULL);
    CHECK(send(socket, &v, sizeof v, 0) == sizeof v);
  }
  free(j->workers);
  exit(0); // sanitizers look for leaks
}

static void worker_start(Jobs *j, int number) {
  Worker *w = &j->workers[number];
  int ends[2];
  CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  fflush(NULL);
  const pid_t parent = getpid(), pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    setpgid(0, 0);
    close(ends[0]);
    work(j, number, ends[1], parent);
  }
  setpgid(pid, pid); // here as well: it may not have come to it yet
  close(ends[1]);
  w->pid = pid;
  w->socket = ends[0];
  w->test = -1;
}

// What it has printed since the last call.
static void worker_print(Worker *w) {
  char text[1 << 14];
  ssize_t got;
  for (off_t at = 0; (got = pread(w->output, text, sizeof text, at)) > 0; at += got)
    fwrite(text, 1, (size_t)got, stdout);
  CHECK(!ftruncate(w->output, 0));
}

static void describe_end(int status, bool late, char *text, size_t size) {
  if (late)
    snprintf(text, size, "the test hangs");
  else if (WIFSIGNALED(status))
    snprintf(text, size, "ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    snprintf(text, size, "ended with exit status %d", WEXITSTATUS(status));
}

// Of a worker that has ended with `status`: its test, if it has one, has failed.
static void worker_ended(Jobs *j, Worker *w, int status) {
  char why[128];
  kill(-w->pid, SIGKILL); // what it has left running
  close(w->socket);
  w->pid = 0;
  worker_print(w);
  describe_end(status, w->late, why, sizeof why);
  if (w->test >= 0) {
    Verdict *v = &j->verdicts[w->test];
    v->outcome = FAILED;
    snprintf(v->first, sizeof v->first, "%s", why);
    printf("\n%-48s %8.3f s  FAIL (%s)\n", j->tests[w->test]->name, now_seconds() - w->begin, why);
    w->test = -1;
    j->busy--;
  } else if (status) {
    printf("FAIL a worker process, after its last test: %s\n", why);
    j->ok = false;
  }
  fflush(stdout);
}

// ---- all of them ----------------------------------------------------------------------------------------------------

static void worker_give(Jobs *j, int number) {
  Worker *w = &j->workers[number];
  const bool alone = j->next < j->count && runs_alone(j->tests[j->next]);
  if (j->next == j->count || (alone && j->busy)) return;
  if (!w->pid) worker_start(j, number);
  w->late = false;
  w->begin = now_seconds();
  if (send(w->socket, &j->next, sizeof j->next, MSG_NOSIGNAL) != sizeof j->next) return; // it has ended
  w->test = j->next++;
  j->busy++;
}

// Reads the verdict of a worker.
static void worker_hear(Jobs *j, Worker *w) {
  Verdict v;
  if (recv(w->socket, &v, sizeof v, MSG_DONTWAIT) != sizeof v) return; // it has ended
  j->verdicts[w->test] = v;
  worker_print(w);
  fflush(stdout);
  w->test = -1;
  j->busy--;
}

static void worker_look_at_time(const Jobs *j, Worker *w) {
  const int limit = j->tests[w->test]->tier > 1 ? LIMIT_SECONDS_LONG : LIMIT_SECONDS;
  w->late |= now_seconds() - w->begin > limit;
  if (w->late) kill(-w->pid, SIGKILL);
}

// Waits for children that have ended: workers, and orphans of tests.
static void reap(Jobs *j) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (int i = 0; i < j->jobs; i++)
      if (j->workers[i].pid == pid) worker_ended(j, &j->workers[i], status);
}

// Ends the workers, and whatever tests have left running.
static void end_all(Jobs *j) {
  for (int i = 0; i < j->jobs; i++)
    if (j->workers[i].pid) kill(-j->workers[i].pid, SIGKILL);
  for (double begin = now_seconds(); now_seconds() - begin < 10;) {
    const pid_t got = waitpid(-1, NULL, WNOHANG);
    if (got < 0) return;
    if (got > 0) continue;
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *f = fopen(path, "r");
    for (int pid; f && fscanf(f, "%d", &pid) == 1;) kill(pid, SIGKILL);
    if (f) fclose(f);
    usleep(1000);
  }
}

static void stop(Jobs *j) {
  printf("\nended by signal %d (%s); running:", (int)stop_signal, strsignal(stop_signal));
  for (int i = 0; i < j->jobs; i++)
    if (j->workers[i].pid && j->workers[i].test >= 0) printf(" %s", j->tests[j->workers[i].test]->name);
  putchar('\n');
  fflush(NULL);
  tmp_remove();
  signal(stop_signal, SIG_DFL);
  raise(stop_signal);
}

// Waits for a verdict, or the end of a child.
static void hear(Jobs *j) {
  struct pollfd *polled = xcalloc((size_t)j->jobs, sizeof *polled);
  for (int i = 0; i < j->jobs; i++)
    polled[i] = (struct pollfd){.fd = j->workers[i].pid ? j->workers[i].socket : -1, .events = POLLIN};
  const int ready = poll(polled, (nfds_t)j->jobs, LOOK_MS);
  for (int i = 0; i < j->jobs; i++) {
    if (ready > 0 && polled[i].revents) worker_hear(j, &j->workers[i]);
    if (j->workers[i].test >= 0) worker_look_at_time(j, &j->workers[i]);
  }
  free(polled);
  reap(j);
}

static int open_output(void) {
  char *path = xstrdup(test_kept("output"));
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  CHECK(file >= 0 && !unlink(path));
  free(path);
  return file;
}

static bool is_any_left(const Jobs *j) {
  for (int i = 0; i < j->jobs; i++)
    if (j->workers[i].pid) return true;
  return false;
}

bool jobs_run(Test **tests, int count, int jobs, void (*run)(const Test *t, Verdict *v), Verdict *verdicts) {
  Jobs j = {.tests = tests, .count = count, .jobs = jobs, .run = run, .verdicts = verdicts, .ok = true};
  qsort(tests, (size_t)count, sizeof *tests, compare_order);
  j.workers = xcalloc((size_t)jobs, sizeof *j.workers);
  for (int i = 0; i < jobs; i++) j.workers[i] = (Worker){.output = open_output(), .test = -1};
  signals_begin();
  prctl(PR_SET_CHILD_SUBREAPER, 1); // orphans become children of this process, which ends them
  while (!stop_signal && (j.next < j.count || j.busy)) {
    for (int i = 0; i < jobs; i++)
      if (j.workers[i].test < 0) worker_give(&j, i);
    hear(&j);
  }
  for (int i = 0; i < jobs; i++)
    if (j.workers[i].pid) shutdown(j.workers[i].socket, SHUT_WR);
  while (!stop_signal && is_any_left(&j)) hear(&j);
  end_all(&j);
  if (stop_signal) stop(&j);
  signals_end();
  for (int i = 0; i < jobs; i++) close(j.workers[i].output);
  free(j.workers);
  return j.ok;
}
