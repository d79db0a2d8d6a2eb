#include "test/harness/rank_processes.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/session.h"
#include "test/harness/test.h"

enum { TEST_SECONDS = 60 };

void processes_init(RankProcesses *r, int world, void (*run)(Comm *c, void *context), void *context, double silence) {
  Err err;
  int output[2];
  Address a = {"127.0.0.1", 0};
  *r = (RankProcesses){.world = world, .run = run, .context = context};
  r->listener = socket_listen(&a, false, &err);
  CHECK(world <= MAX_TEST_RANKS && r->listener >= 0 && !pipe(r->ready) && !pipe(output));
  r->options = (CommOptions){.launch = {.world = world, .local_world = world, .by = "a test", .secret = true},
                             .meeting_seconds = TEST_SECONDS,
                             .silence_seconds = silence < 0 ? TEST_SECONDS : silence};
  random_bytes(r->options.launch.key);
  snprintf(r->options.launch.meet, sizeof r->options.launch.meet, "tcp:127.0.0.1:%d", a.port);
  r->output = output[0];
  r->input = output[1];
  for (int i = 0; i < world; i++) r->pid[i] = -1;
}

// A child leaks what its parent holds, which a sanitizer would tell.
static void end_rank(int status, void *nothing) {
  (void)nothing;
  fflush(NULL);
  _exit(status);
}

NORETURN static void be_rank(RankProcesses *r, int rank) {
  Err err;
  Comm *c;
  CommOptions o = r->options;
  on_exit(end_rank, NULL);
  alarm(TEST_SECONDS); // nothing is left of a test
  dup2(r->input, STDERR_FILENO);
  close(r->input);
  close(r->output);
  close(r->ready[0]);
  o.launch.rank = o.launch.local_rank = rank;
  o.launch.listener = rank ? -1 : r->listener;
  if (rank) close(r->listener);
  if (r->before) r->before(&o);
  if (!comm_open(&c, &o, &err)) die(EXIT_USAGE, "%s", err.msg);
  r->run(c, r->context);
  comm_close(c);
  exit(0);
}

void processes_fork(RankProcesses *r, int rank) {
  fflush(NULL);
  for (int i = 0; i < r->world; i++) {
    if (rank >= 0 && i != rank) continue;
    r->pid[i] = fork();
    CHECK(r->pid[i] >= 0);
    if (!r->pid[i]) be_rank(r, i);
  }
}

void processes_tell(const RankProcesses *r) { CHECK(write(r->ready[1], "", 1) == 1); }

void processes_await(RankProcesses *r, int n) {
  char byte;
  for (int i = 0; i < n; i++)
    while (read(r->ready[0], &byte, 1) < 0) CHECK(errno == EINTR);
}

void processes_end(RankProcesses *r) {
  close(r->input);
  close(r->ready[1]);
  close(r->listener);
  size_t n = 0;
  for (ssize_t got; (got = read(r->output, r->said + n, sizeof r->said - 1 - n)) > 0;) n += (size_t)got;
  close(r->output);
  close(r->ready[0]);
  for (int i = 0; i < r->world; i++) {
    int status = 0;
    if (r->pid[i] <= 0 || waitpid(r->pid[i], &status, 0) != r->pid[i]) continue;
    r->status[i] = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
}

int processes_lines(const RankProcesses *r) {
  int lines = 0;
  for (const char *p = r->said; *p; p++) lines += *p == '\n';
  return lines;
}
