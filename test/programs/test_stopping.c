// Catches programs that one signal does not end while they compute, read or wait.
#define _GNU_SOURCE // F_SETPIPE_SZ
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"
#include "training/numbered.h"

static char *train_line(const char *out, const char *more) {
  return xasprintf("exec env OMP_NUM_THREADS=2 %s --data %s --out %s --model tiny --size 320 --max-size 320 "
                   "--batch 2 --iters 9 --lr 0.01 --seed 5 --checkpoint-every 100 --eval-every never --threads 1 "
                   "--device cpu --resume %s",
                   tool("train"), shapes_set(), in_tmp(out), more);
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

static int outcome(int status) { return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status); }

// The exit status, or minus the signal; -1000 where it had to be killed after `seconds`. `held`: a
// thread of another process that this one holds; 0: none.
static int ends_within(pid_t pid, pid_t held, double seconds) {
  int status;
  for (const double begin = now_seconds(); now_seconds() - begin < seconds; usleep(10000)) {
    if (held) waitpid(held, NULL, __WALL | WNOHANG); // whose parent hears of its end then
    if (waitpid(pid, &status, WNOHANG) == pid && !WIFSTOPPED(status)) return outcome(status);
  }
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) == pid && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  return -1000;
}

// Whether a program comes to wait in this call of the system. False: it has ended before, with this outcome.
static bool wait_for_call(pid_t pid, int call, int *ended) {
  char *path = xasprintf("/proc/%d/syscall", pid), *begins = xasprintf("%d 0x", call);
  int seen = 0, status = 0;
  while (seen < 20 && waitpid(pid, &status, WNOHANG) == 0) {
    char *text = file_read(path, &(size_t){0}, NULL);
    seen = !text || !strncmp(text, begins, strlen(begins)) ? seen + 1 : 0;
    free(text);
    usleep(5000);
  }
  free(path);
  free(begins);
  *ended = outcome(status);
  return seen >= 20;
}

// Whether a program comes to have used so many seconds of a core. False: it has ended before.
static bool wait_for_cpu(pid_t pid, double seconds) {
  char *path = xasprintf("/proc/%d/stat", pid);
  double used = 0;
  while (used < seconds && waitpid(pid, NULL, WNOHANG) == 0) {
    long user = 0, system = 0;
    char *text = file_read(path, &(size_t){0}, NULL), *end = text ? strrchr(text, ')') : NULL;
    if (end) sscanf(end, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
    used = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
    free(text);
    usleep(1000);
  }
  free(path);
  return used >= seconds;
}

// Starts a line of the shell whose stream `which` (-1: none) is a pipe with room for so many bytes, which nobody reads.
static pid_t start_on_pipe(const char *line, int which, int room) {
  int ends[2];
  char text[4096];
  CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, sizeof text) == sizeof text);
  memset(text, 'x', sizeof text);
  CHECK(write(ends[1], text, sizeof text - (size_t)room) == (ssize_t)sizeof text - room);
  fflush(NULL);
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    static const int others[] = {STDOUT_FILENO, STDERR_FILENO};
    const int nowhere = open("/dev/null", O_WRONLY);
    signals_end_this();
    for (int i = 0; i < COUNT(others); i++) dup2(others[i] == which ? ends[1] : nowhere, others[i]);
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
    _exit(127);
  }
  close(ends[1]);
  return pid; // the reading end stays open
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
  static const char *const norms[] = {"--norm gn", "--norm bn"};
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
    char *line = train_line(name, "--norm gn"), *ranks = xasprintf("%s --gpus 2", line);
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
    if (late && !EXPECT(holds(said, "\nstopped ") && !holds(said, "train: "))) command(NULL, "cat %s >&2", said);
    char *all[] = {line, ranks, said, log};
    for (int k = 0; k < COUNT(all); k++) free(all[k]);
  }
}

// Held in an evaluation: the state before it stays, and so do the bits of the run.
TEST_TIER(stopping_in_an_evaluation, 1) {
  static const char more[] = "--norm gn --size 64 --max-size 64 --iters 2 --eval-every 1 --val-limit 3 --detections 20";
  const char *out = "stop-evaluation", *said_text;
  char *line = train_line(out, more), *alone = train_line("stop-evaluation-whole", more);
  char *said = xasprintf("%s.said", in_tmp(out)),
       *evaluated = xasprintf("%s/checkpoint-evaluated.safetensors", in_tmp(out));
  const pid_t pid = start(line, said);
  while (!path_is_file(evaluated) && waitpid(pid, NULL, WNOHANG) == 0) usleep(1000);
  const bool held = hold(pid);
  kill(pid, SIGTERM);
  EXPECT_INT(ends_within(pid, 0, 10), 1);
  if (!held) test_skip("no rights to trace a program");
  if (!EXPECT(holds(said, "\nstopped") && holds(said, " has step "))) command(NULL, "cat %s >&2", said);
  if (!EXPECT_INT(command(&said_text, "%s", line), 0)) printf("%s\n", said_text);
  if (!EXPECT_INT(command(&said_text, "%s", alone), 0)) printf("%s\n", said_text);
  EXPECT_INT(
      command(NULL, "cmp %s/model.safetensors %s/model.safetensors", in_tmp(out), in_tmp("stop-evaluation-whole")), 0);
  char *all[] = {line, alone, said, evaluated};
  for (int k = 0; k < COUNT(all); k++) free(all[k]);
}

// The only process, or one rank of two, is held while results come.
TEST_TIER(stopping_infer, 1) {
  const char *text;
  char *set = xstrdup(in_tmp("stop-set"));
  if (!EXPECT_INT(command(&text, "%s --out %s --train 1 --val 300 --size 64 --seed 3", tool("shapes"), set), 0)) return;
  for (int ranks = 1; ranks <= 2; ranks++) {
    char *out = xasprintf("stop-infer-%d", ranks), *said = xasprintf("%s.said", in_tmp(out));
    char *partial = xasprintf("%s/detections.json.partial", in_tmp(out));
    char *line =
        xasprintf("%s --data %s --eval --overlays 0 --batch 1 --threads 1 --gpus %d", infer_line(out), set, ranks);
    const pid_t pid = start(line, said);
    while (file_length(partial) < 1000 && waitpid(pid, NULL, WNOHANG) == 0) usleep(1000);
    const pid_t rank = last_rank(pid), of = rank ? rank : pid;
    const bool held = hold(of);
    kill(pid, SIGTERM);
    EXPECT_INT(ends_within(pid, rank, 10), 1);
    if (!held) test_skip("no rights to trace a program");
    EXPECT(results_in(partial) > 0);
    if (!EXPECT_INT(command(&text, "grep -c '^infer: ' %s | grep -qx 1 && grep -q '^infer: stopped' %s", said, said),
                    0))
      command(NULL, "cat %s >&2", said);
    char *all[] = {out, said, partial, line};
    for (int k = 0; k < COUNT(all); k++) free(all[k]);
  }
  free(set);
}

// Programs that have nothing to save end by the signal: at annotations that take a second to parse, and at images.
TEST_TIER(stopping_at_large_files, 1) {
  const char *text;
  char *set = xstrdup(in_tmp("stop-large"));
  char *make = xasprintf("mkdir -p %s/annotations %s/train && cp -r %s/val %s && cp %s/annotations/instances_val.json "
                         "%s/annotations && %s --out %s/annotations/instances_train.json --images 3000 --points 8 "
                         "--annotations 100000",
                         set, set, shapes_set(), set, shapes_set(), set, tool("large_coco"), set);
  if (!EXPECT_INT(command(&text, "%s", make), 0)) printf("%s\n", text);
  char *train = xasprintf("exec %s --data %s --model tiny --device cpu --resume --out %s", tool("train"), set,
                          in_tmp("stop-train"));
  char *infer = xasprintf("%s --data %s --split train", infer_line("stop-start"), set);
  char *lines[] = {
      xasprintf("exec %s --data %s", tool("doctor"), set),
      xasprintf("exec %s --gt %s/annotations/instances_train.json --dt /dev/null", tool("cocoeval"), set),
      xasprintf("%s", train),
      xasprintf("%s --gpus 2", train),
      xasprintf("%s", infer),
      xasprintf("%s --gpus 2", infer),
  };
  char *said = xasprintf("%s/said", set);
  for (int i = 0; i < COUNT(lines); i++) {
    const pid_t pid = start(lines[i], said);
    const bool is_running = wait_for_cpu(pid, 0.03);
    kill(pid, i % 2 ? SIGTERM : SIGINT);
    const int status = is_running ? ends_within(pid, 0, 10) : 0;
    if (!EXPECT(status == 1 || status == (i % 2 ? -SIGTERM : -SIGINT))) {
      printf("%s: %d\n", lines[i], status);
      command(NULL, "cat %s >&2", said);
    }
    free(lines[i]);
  }
  char *all[] = {set, make, train, infer, said};
  for (int k = 0; k < COUNT(all); k++) free(all[k]);
}

// Programs that wait for a pipe: nobody writes what they read, or reads what they write.
TEST_TIER(stopping_where_nobody_reads, 1) {
  char *folder = xstrdup(in_tmp("stop-fifo")), *set = xstrdup(shapes_set());
  const char *weights = infer_weights();
  char *gt = xasprintf("%s/annotations/instances_val.json", set);
  CHECK(!command(NULL, "mkdir -p %s && mkfifo %s/fifo && echo '[]' >%s/none.json", folder, folder, folder));
  const struct {
    char *line;
    int call, status;
  } of[] = {
      {xasprintf("exec 3<>%s/fifo; exec %s --gt /dev/fd/3 --dt %s/none.json", folder, tool("cocoeval"), folder),
       SYS_read, -SIGTERM},
      {xasprintf("exec 3<>%s/fifo; exec %s --gt %s --dt /dev/fd/3", folder, tool("cocoeval"), gt), SYS_read, -SIGTERM},
      {xasprintf("exec %s --gt %s --dt %s/none.json", tool("cocoeval"), gt, folder), SYS_write, -SIGTERM},
      {xasprintf("exec %s --data %s", tool("doctor"), set), SYS_write, -SIGTERM},
      {xasprintf("exec %s --weights %s %s/val --device cpu --out %s/found", tool("infer"), weights, set, folder),
       SYS_write, EXIT_RUN},
      {xasprintf("exec %s --help", tool("report")), SYS_write, -SIGTERM},
  };
  for (int i = 0; i < COUNT(of); i++) {
    const pid_t pid = start_on_pipe(of[i].line, of[i].call == SYS_write ? STDOUT_FILENO : -1, 0);
    int status;
    const bool waits = wait_for_call(pid, of[i].call, &status);
    if (waits) kill(pid, SIGTERM);
    if (waits) status = ends_within(pid, 0, 10);
    const bool refused = status == EXIT_USAGE && of[i].call == SYS_openat; // a FIFO that nobody reads or writes
    if (!EXPECT(refused || (waits && status == of[i].status))) printf("%s: %d\n", of[i].line, status);
    free(of[i].line);
  }
  free(folder);
  free(set);
  free(gt);
}

// Standard error is a pipe that is full after some lines on evaluations.
TEST_TIER(stopping_on_a_full_pipe, 1) {
  const char *out = "stop-pipe", *text;
  char *line = train_line(
      out, "--norm gn --size 32 --max-size 32 --batch 1 --eval-every 1 --val-limit 1 --detections 1 --iters 1000");
  char *log = xasprintf("%s/log.jsonl", in_tmp(out)), *saved = xasprintf("%s/checkpoint.safetensors", in_tmp(out));
  const pid_t pid = start_on_pipe(line, STDERR_FILENO, 1200);
  EXPECT(wait_for_call(pid, SYS_write, &(int){0}));
  kill(pid, SIGTERM);
  EXPECT_INT(ends_within(pid, 0, 10), 1);
  EXPECT(checkpoint_step(saved) > 0);
  EXPECT_INT(command(&text, "tail -1 %s | grep '^{\"step\":%lld,'", log, (long long)checkpoint_step(saved)), 0);
  free(line);
  free(log);
  free(saved);
}
