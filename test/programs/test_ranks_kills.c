// Catches runs of several ranks that do not recover from being killed at an unlucky moment.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/rng.h"
#include "test/harness/command.h"
#include "test/harness/rank_jobs.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

enum { KILLED_RANKS = 3, KILLED_RESTARTS = 2 };

// When something in the run's folder got its name last, as checkpoints do, in nanoseconds.
static int64_t last_name(const char *out) {
  struct stat st;
  return stat(in_tmp(out), &st) ? 0 : st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
}

// Until any moment of a run of `seconds` or, every other time, until soon after one at which it was writing.
static void wait_somewhere(const char *out, double seconds, int key) {
  double wait = seconds * rng_uniform(RNG_TEST, UINT64_C(1) << 32 | (uint64_t)key);
  const double begin = now_seconds();
  const int64_t before = last_name(out);
  if (key % 2) {
    while (now_seconds() - begin < seconds && last_name(out) <= before) usleep(200);
    wait *= 0.03;
  }
  usleep((useconds_t)(1e6 * wait));
}

// One of the processes that are there, drawn by the key, gets SIGKILL; which, or 0 when none is there.
static pid_t kill_anyone(const char *out, int key) {
  pid_t pid[16];
  const int n = rank_job_processes(out, pid, 16);
  const pid_t who = n ? pid[(int)(n * rng_uniform(RNG_TEST, (uint64_t)key))] : 0;
  return who && kill(who, SIGKILL) == 0 ? who : 0;
}

// A process that ends gives its memory back, by which processes_of knows it, before its lock.
static void expect_folder_free(const char *out) {
  const int file = open(rank_job_file(out, "lock"), O_RDONLY | O_CLOEXEC);
  const double begin = now_seconds();
  while (file >= 0 && flock(file, LOCK_EX | LOCK_NB) && now_seconds() - begin < 5) usleep(1000);
  EXPECT(now_seconds() - begin < 5);
  if (file >= 0) close(file);
}

// Starts a run and kills one of its processes, and another as often as it starts again by itself. How it ended.
static int run_and_kill(const char *out, int restarts, double seconds, int kills, int *killed) {
  char more[96], file[80];
  snprintf(more, sizeof more, "--gpus %d --resume --restarts %d", KILLED_RANKS, restarts);
  snprintf(file, sizeof file, "%s.said", out);
  remove(in_tmp(file));
  const pid_t supervisor = rank_job_start("train", "", out, more);
  pid_t who = 0;
  int of_ranks = 0;
  for (int i = 0; i <= restarts && *killed < kills && who != supervisor; i++) {
    wait_somewhere(out, seconds, *killed);
    if (!(who = kill_anyone(out, *killed))) break;
    ++*killed;
    of_ranks += who != supervisor;
  }
  const int status = rank_job_end(supervisor);
  expect_no_process(out);
  expect_folder_free(out);
  char *said = rank_job_said(out);
  // A rank's end has its line; one that had done its part may be killed for nothing, and so may a supervisor.
  const int again = text_count(said, "train: restarting, "), lines = text_count(said, "train: ") - again;
  EXPECT(lines <= of_ranks + (who == supervisor) && again <= lines);
  if (status > 0) EXPECT(status == 1 && lines == again + 1);
  if (status == 0) EXPECT_INT(lines, again);
  EXPECT(status >= 0 || who == supervisor);
  if (lines > of_ranks + (who == supervisor) || status > 1) printf("    status %d: %s\n", status, said);
  free(said);
  return status;
}

// The step of the checkpoint, which must be whole; -1 where there is none.
static long saved_step(const char *out) {
  Checkpoint c;
  Err err = {""};
  if (!path_is_file(rank_job_file(out, "checkpoint.safetensors"))) return -1;
  if (!EXPECT(ckpt_open(&c, rank_job_file(out, "checkpoint.safetensors"), &err))) printf("    %s\n", err.msg);
  if (*err.msg) return -1;
  const long step = atol(ckpt_find_meta(&c, "step"));
  ckpt_close(&c);
  return step;
}

// Kills runs and has them go on, by themselves (--restarts) and by hand in turns, until `kills` are done: each ends as
// one that is left alone.
static void check_kills(int kills) {
  const char *said;
  char whole[32];
  int killed = 0, runs = 0;
  const double begin = now_seconds();
  snprintf(whole, sizeof whole, "kills-whole-%d", kills);
  if (!EXPECT_INT(rank_job_run("train", "", whole, "--gpus 3", &said), 0)) printf("    %s\n", said);
  const double seconds = now_seconds() - begin;
  for (; killed < kills; runs++) {
    char out[32];
    snprintf(out, sizeof out, "kills-%d-%d", kills, runs);
    long step = -1;
    for (int status = 1; status != 0;) {
      status = run_and_kill(out, runs % 2 ? KILLED_RESTARTS : 0, seconds, kills, &killed);
      const long now = saved_step(out);
      if (!EXPECT(now >= step && (status == 0 || status == 1 || status == -SIGKILL))) return;
      step = now;
    }
    expect_same_run(out, whole);
    EXPECT(!path_is_file(rank_job_file(out, "checkpoint.safetensors.tmp")));
    command(NULL, "rm -r %s", in_tmp(out));
  }
  printf("  %d kills in %d runs of %.1f s\n", killed, runs, seconds);
}

TEST_TIER(ranks_survive_some_kills, 1) { check_kills(6); }
TEST_TIER(ranks_survive_fifty_kills, 2) { check_kills(50); }
