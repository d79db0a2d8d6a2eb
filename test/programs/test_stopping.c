// Catches programs that one signal does not end while they compute, read or wait.
#define _GNU_SOURCE // F_SETPIPE_SZ
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "training/numbered.h"

static char *train_line(const char *out, const char *norm) {
  return xasprintf("exec env OMP_NUM_THREADS=2 %s --data %s --out %s --model tiny --norm %s --size 320 --max-size 320 "
                   "--batch 2 --iters 9 --lr 0.01 --seed 5 --checkpoint-every 100 --eval-every never --threads 1 "
                   "--device cpu --resume",
                   tool("train"), shapes_set(), in_tmp(out), norm);
}

static pid_t start(const char *line, const char *said) {
  char *redirected = xasprintf("%s >%s 2>&1", line, said);
  const pid_t pid = command_start(redirected);
  free(redirected);
  return pid;
}

static bool holds(const char *path, const char *text) {
  char *all = file_read(path, &(size_t){0}, NULL);
  const bool found = all && strstr(all, text);
  free(all);
  return found;
}

static bool wait_until(const char *path, const char *text) {
  for (const double begin = now_seconds(); now_seconds() - begin < 120; usleep(1000))
    if (holds(path, text)) return true;
  return false;
}

// The exit status, or minus the signal; -1000 where it had to be killed after `seconds`. `held`: a
// thread of another process that this one holds; 0: none.
static int ends_within(pid_t pid, pid_t held, double seconds) {
  int status;
  for (const double begin = now_seconds(); now_seconds() - begin < seconds; usleep(10000)) {
    if (held) waitpid(held, NULL, __WALL | WNOHANG); // whose parent hears of its end then
    if (waitpid(pid, &status, WNOHANG) == pid && !WIFSTOPPED(status))
      return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  return -1000;
}

static int count_lines(const char *path) {
  char *text = file_read(path, &(size_t){0}, NULL);
  int n = 0;
  for (const char *at = text; at && (at = strchr(at, '\n')); at++) n++;
  free(text);
  return n;
}

// Whether the main thread of a process is held from here on.
static bool hold(pid_t pid) {
  int status;
  return ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0 && ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0 &&
         waitpid(pid, &status, __WALL) == pid;
}

// The thread of the steps is held within one (by ptrace), as by a step that takes for ever. What the steps before have
// left is saved, batch norm's running statistics too, and the run goes on to the bits of the one left alone.
TEST_TIER(stopping_within_a_step, 1) {
  static const char *const norms[] = {"gn", "bn"};
  for (int i = 0; i < COUNT(norms); i++) {
    const char *said_text, *name = i ? "stop-step-bn" : "stop-step-gn";
    char *whole = xasprintf("%s-whole", name), *line = train_line(name, norms[i]), *alone = train_line(whole, norms[i]);
    char *said = xasprintf("%s.said", in_tmp(name)), *log = xasprintf("%s/log.jsonl", in_tmp(name));
    char *saved = xasprintf("%s/checkpoint.safetensors", in_tmp(name));
    if (!EXPECT_INT(command(&said_text, "%s", alone), 0)) printf("%s\n", said_text);
    const pid_t pid = start(line, said);
    EXPECT(wait_until(log, "{\"step\":3,"));
    usleep(30000);
    const bool traced = hold(pid);
    kill(pid, SIGTERM);
    EXPECT_INT(ends_within(pid, 0, 10), 1);
    if (!traced) test_skip("no rights to trace a program");
    if (traced && !EXPECT(holds(said, "stopped within step "))) command(NULL, "cat %s >&2", said);
    EXPECT_INT(checkpoint_step(saved), count_lines(log));
    EXPECT(count_lines(log) >= 3);
    if (!EXPECT_INT(command(&said_text, "%s", line), 0)) printf("%s\n", said_text);
    char *a = xasprintf("%s/model.safetensors", in_tmp(name)), *b = xasprintf("%s/model.safetensors", in_tmp(whole));
    EXPECT(same_file(a, b));
    char *all[] = {whole, line, alone, said, log, saved, a, b};
    for (int k = 0; k < COUNT(all); k++) free(all[k]);
  }
}

// The rank that the supervisor started last; 0: there is none yet.
static pid_t last_rank(pid_t supervisor) {
  char *path = xasprintf("/proc/%d/task/%d/children", supervisor, supervisor);
  char *text = file_read(path, &(size_t){0}, NULL), *space = text;
  if (text) text[strcspn(text, "\n")] = '\0';
  for (char *at = text; at && (at = strchr(at, ' ')) && at[1]; at++) space = at;
  const pid_t pid = text ? atoi(space) : 0;
  free(text);
  free(path);
  return pid;
}

// One rank of two is held as it starts, as by a large file, or later.
TEST_TIER(stopping_a_rank_that_hangs, 1) {
  for (int late = 0; late < 2; late++) {
    const char *name = late ? "stop-rank-late" : "stop-rank";
    char *line = train_line(name, "gn"), *ranks = xasprintf("%s --gpus 2", line);
    char *said = xasprintf("%s.said", in_tmp(name)), *log = xasprintf("%s/log.jsonl", in_tmp(name));
    const pid_t pid = start(ranks, said);
    pid_t rank = 0;
    while (!(rank = last_rank(pid)) && kill(pid, 0) == 0) usleep(1000);
    if (late)
      EXPECT(wait_until(log, "{\"step\":1,"));
    else
      usleep(50000);
    if (!hold(rank)) test_skip("no rights to trace a program");
    kill(pid, SIGTERM);
    if (!EXPECT_INT(ends_within(pid, rank, 10), 1)) command(NULL, "cat %s >&2", said);
    char *all[] = {line, ranks, said, log};
    for (int k = 0; k < COUNT(all); k++) free(all[k]);
  }
}

// While they wait for what they read.
TEST_TIER(stopping_cocoeval, 1) {
  char *folder = xstrdup(in_tmp("stop-start"));
  CHECK(!command(NULL, "mkdir -p %s/annotations %s/train %s/val && mkfifo %s/annotations/instances_train.json %s/fifo",
                 folder, folder, folder, folder, folder));
  char *lines[] = {
      xasprintf("exec %s --gt %s/fifo --dt %s/fifo", tool("cocoeval"), folder, folder),
  };
  char *said = xasprintf("%s/said", folder);
  for (int i = 0; i < COUNT(lines); i++) {
    const pid_t pid = start(lines[i], said);
    usleep(500000);
    kill(pid, SIGTERM);
    EXPECT_INT(ends_within(pid, 0, 10), -SIGTERM);
    free(lines[i]);
  }
  free(said);
  free(folder);
}

// Standard error is a pipe that is full and that nobody reads.
TEST_TIER(stopping_on_a_full_pipe, 1) {
  int ends[2];
  char *line = train_line("stop-pipe", "gn"), *log = xasprintf("%s/log.jsonl", in_tmp("stop-pipe"));
  CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETPIPE_SZ, 4096) > 0 && fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  while (write(ends[1], "x", 1) == 1) {
  }
  CHECK(fcntl(ends[1], F_SETFL, 0) == 0);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGTERM, SIG_DFL);
    dup2(ends[1], 2);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
  }
  usleep(2000000);
  kill(pid, SIGTERM);
  const int status = ends_within(pid, 0, 10);
  EXPECT(status == 1 || status == -SIGTERM);
  close(ends[0]);
  close(ends[1]);
  free(line);
  free(log);
}
