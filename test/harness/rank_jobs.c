#include "test/harness/rank_jobs.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

// All processes of a job have this variable; it is how they are found.
static const char *mark_of(const char *out) {
  static char mark[64];
  snprintf(mark, sizeof mark, "TEST_JOB=%d-%s", (int)getpid(), out);
  return mark;
}

const char *rank_job_file(const char *out, const char *file) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", out, file);
  return in_tmp(path);
}

static char *job_line(const char *program, const char *env, const char *out, const char *more) {
  const char *stub = tool("libnccl_stub.so");
  char *path = realpath(stub, NULL);
  char *line =
      xasprintf("env %s OMP_NUM_THREADS=1 MASKRCNN_NCCL=%s FAULTY_GPUS=4 %s %s --data %s --out %s --model tiny "
                "--size 64 --batch 2 --iters 8 --lr 0.01 --checkpoint-every 2 --seed 5 --eval-every 3 "
                "--val-limit 2 --detections 10 --threads 1 --device %s %s",
                mark_of(out), path ? path : stub, env, tool(program), shapes_set(), in_tmp(out),
                strcmp(program, "train") ? "cuda" : "cpu", more);
  free(path);
  return line;
}

int rank_job_run(const char *program, const char *env, const char *out, const char *more, const char **said) {
  char *line = job_line(program, env, out, more);
  const int status = command(said, "%s", line);
  free(line);
  return status;
}

pid_t rank_job_start(const char *program, const char *env, const char *out, const char *more) {
  char *line = job_line(program, env, out, more);
  char *redirected = xasprintf("exec %s >>%s.said 2>&1", line, in_tmp(out));
  const pid_t pid = command_start(redirected);
  free(redirected);
  free(line);
  return pid;
}

int rank_job_end(pid_t pid) {
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

char *rank_job_said(const char *out) {
  char path[128];
  size_t size;
  snprintf(path, sizeof path, "%s.said", out);
  char *text = file_read(in_tmp(path), &size, NULL);
  return text ? text : xstrdup("");
}

int rank_job_processes(const char *out, pid_t *pid, int room) {
  int n = 0;
  char path[300], text[1 << 15];
  DIR *dir = opendir("/proc");
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    snprintf(path, sizeof path, "/proc/%s/environ", entry->d_name);
    const int file = atoi(entry->d_name) > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    const ssize_t got = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0) close(file);
    bool ours = false;
    for (ssize_t i = 0; i < got; i += (ssize_t)strnlen(text + i, (size_t)(got - i)) + 1)
      ours |= (size_t)(got - i) > strlen(mark_of(out)) && !strncmp(text + i, mark_of(out), strlen(mark_of(out)) + 1);
    if (ours && n < room) pid[n++] = atoi(entry->d_name);
  }
  if (dir) closedir(dir);
  return n;
}

void expect_no_process(const char *out) {
  pid_t pid[16];
  const double begin = now_seconds();
  while (rank_job_processes(out, pid, 16) > 0 && now_seconds() - begin < 20) usleep(20000);
  if (EXPECT_INT(rank_job_processes(out, pid, 16), 0)) return;
  for (int i = 0; i < rank_job_processes(out, pid, 16); i++) kill(pid[i], SIGKILL);
}

bool rank_job_reaches(const char *out, int processes, long step) {
  pid_t pid[16];
  for (double begin = now_seconds(); now_seconds() - begin < 60; usleep(2000)) {
    Checkpoint c;
    long now = 0;
    if (step && path_is_file(rank_job_file(out, "checkpoint.safetensors")) &&
        ckpt_open(&c, rank_job_file(out, "checkpoint.safetensors"), NULL)) {
      now = atol(ckpt_find_meta(&c, "step"));
      ckpt_close(&c);
    }
    if (now >= step && rank_job_processes(out, pid, 16) >= processes) return true;
  }
  return false;
}

int text_count(const char *text, const char *what) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
  return n;
}

void expect_one_reason(const char *said, const char *reason) {
  int lines = !strncmp(said, "train: ", 7) + text_count(said, "\ntrain: ");
  if (!EXPECT_INT(lines, 1) || !EXPECT(strstr(said, reason))) printf("    wanted: %s\n    said: %s\n", reason, said);
}

void expect_same_run(const char *out, const char *whole) {
  EXPECT(same_file(rank_job_file(out, "model.safetensors"), rank_job_file(whole, "model.safetensors")));
  EXPECT(same_file(rank_job_file(out, "checkpoint.safetensors"), rank_job_file(whole, "checkpoint.safetensors")));
}

const char *rank_job_whole(const char *program) {
  const char *out = strcmp(program, "train") ? "ranks-whole-gpu" : "ranks-whole", *said;
  if (folder_fetch(out)) return out;
  if (!EXPECT_INT(rank_job_run(program, "", out, "--gpus 2", &said), 0)) printf("    %s\n", said);
  expect_no_process(out);
  folder_keep(out);
  return out;
}
