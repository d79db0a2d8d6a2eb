// Runs of several ranks: `--gpus N` over CPU ranks and over stand-ins of GPUs with a stand-in of NCCL, and ranks that
// others start. They end with the same bits however often they are interrupted, all processes end together, and one
// line says why.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/rng.h"
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

// ---- jobs -----------------------------------------------------------------------------------------------------------

// All processes of a job have this variable; it is how they are found.
static const char *mark_of(const char *out) {
  static char mark[64];
  snprintf(mark, sizeof mark, "TEST_JOB=%d-%s", (int)getpid(), out);
  return mark;
}

static const char *file_of(const char *out, const char *file) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", out, file);
  return in_tmp(path);
}

// Eight steps of two ranks, unless `more` says otherwise; a checkpoint after every second. `program`: train or
// faulty/train, whose GPUs are stand-ins.
static char *job_line(const char *program, const char *env, const char *out, const char *more) {
  const char *stub = tool("libnccl_stub.so");
  char *path = realpath(stub, NULL);
  char *line =
      xasprintf("env %s OMP_NUM_THREADS=1 MASKRCNN_NCCL=%s FAULTY_GPUS=4 %s %s --data %s --out %s --model tiny "
                "--size 64 --batch 2 --iters 8 --lr 0.01 --checkpoint-every 2 --seed 5 --eval-every 3 "
                "--threads 1 --device %s %s",
                mark_of(out), path ? path : stub, env, tool(program), shapes_set(), in_tmp(out),
                strcmp(program, "train") ? "cuda" : "cpu", more);
  free(path);
  return line;
}

static int job(const char *program, const char *env, const char *out, const char *more, const char **said) {
  char *line = job_line(program, env, out, more);
  const int status = command(said, "%s", line);
  free(line);
  return status;
}

// In the background; what it says goes to OUT.said.
static pid_t start_job(const char *program, const char *env, const char *out, const char *more) {
  char *line = job_line(program, env, out, more);
  char *redirected = xasprintf("exec %s >>%s.said 2>&1", line, in_tmp(out));
  const pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", redirected, (char *)NULL);
    _exit(127);
  }
  free(redirected);
  free(line);
  return pid;
}

static int end_of(pid_t pid) {
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static char *said_by(const char *out) {
  char path[128];
  size_t size;
  snprintf(path, sizeof path, "%s.said", out);
  char *text = file_read(in_tmp(path), &size, NULL);
  return text ? text : xstrdup("");
}

// The processes of a job, at most `room` of them, by number.
static int processes_of(const char *out, pid_t *pid, int room) {
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

// Ten seconds are what the last may take.
static void expect_nobody_left(const char *out) {
  pid_t pid[16];
  const double begin = now_seconds();
  while (processes_of(out, pid, 16) > 0 && now_seconds() - begin < 20) usleep(20000);
  if (EXPECT_INT(processes_of(out, pid, 16), 0)) return;
  for (int i = 0; i < processes_of(out, pid, 16); i++) kill(pid[i], SIGKILL);
}

// Waits until the job has so many processes and the checkpoint of step `step` or a later one.
static bool wait_for_step(const char *out, int processes, long step) {
  pid_t pid[16];
  for (double begin = now_seconds(); now_seconds() - begin < 60; usleep(2000)) {
    Checkpoint c;
    long now = 0;
    if (step && path_is_file(file_of(out, "checkpoint.safetensors")) &&
        ckpt_open(&c, file_of(out, "checkpoint.safetensors"), NULL)) {
      now = atol(ckpt_find_meta(&c, "step"));
      ckpt_close(&c);
    }
    if (now >= step && processes_of(out, pid, 16) >= processes) return true;
  }
  return false;
}

static int count_of(const char *text, const char *what) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, what)); p += strlen(what)) n++;
  return n;
}

// Exactly one line begins with the program's name: the one that says why.
static void expect_one_reason(const char *said, const char *reason) {
  int lines = !strncmp(said, "train: ", 7) + count_of(said, "\ntrain: ");
  if (!EXPECT_INT(lines, 1) || !EXPECT(strstr(said, reason))) printf("    wanted: %s\n    said: %s\n", reason, said);
}

static void expect_same_run(const char *out, const char *whole) {
  EXPECT(same_file(file_of(out, "model.safetensors"), file_of(whole, "model.safetensors")));
  EXPECT(same_file(file_of(out, "checkpoint.safetensors"), file_of(whole, "checkpoint.safetensors")));
}

static const char *whole_of(const char *program) {
  const char *out = strcmp(program, "train") ? "ranks-whole-gpu" : "ranks-whole", *said;
  if (path_is_file(file_of(out, "model.safetensors"))) return out;
  if (!EXPECT_INT(job(program, "", out, "--gpus 2", &said), 0)) printf("    %s\n", said);
  expect_nobody_left(out);
  return out;
}

static const char *const programs[] = {"train", "faulty/train"};

// ---- what a run comes to --------------------------------------------------------------------------------------------

TEST_TIER(ranks_train_to_the_same_bits, 1) {
  for (int i = 0; i < COUNT(programs); i++) {
    const char *said, *whole = whole_of(programs[i]);
    char out[64];
    snprintf(out, sizeof out, "ranks-again-%d", i);
    if (!EXPECT_INT(job(programs[i], "", out, "--gpus 2", &said), 0)) printf("    %s\n", said);
    EXPECT_INT(count_of(said, "\ndone: "), 1);
    expect_same_run(out, whole);
    expect_nobody_left(out);
  }
}

TEST_TIER(ranks_one_is_the_program_without_the_option, 1) {
  const char *said;
  EXPECT_INT(job("train", "", "ranks-none", "", &said), 0);
  EXPECT_INT(job("train", "", "ranks-one", "--gpus 1", &said), 0);
  expect_same_run("ranks-one", "ranks-none");
}

TEST_TIER(ranks_resume_to_the_same_bits, 1) {
  for (int i = 0; i < COUNT(programs); i++) {
    const char *said, *whole = whole_of(programs[i]);
    char out[64];
    snprintf(out, sizeof out, "ranks-resumed-%d", i);
    EXPECT_INT(job(programs[i], "", out, "--gpus 2 --stop-after 3", &said), 0);
    if (!EXPECT_INT(job(programs[i], "", out, "--gpus 2 --resume", &said), 0)) printf("    %s\n", said);
    expect_same_run(out, whole);
  }
}

// Another world goes on with as many images a step, where it is asked to, and not otherwise.
TEST_TIER(ranks_go_on_in_another_world, 1) {
  const char *said;
  EXPECT_INT(job("train", "", "ranks-world", "--gpus 2 --stop-after 4", &said), 0);
  EXPECT_INT(job("train", "", "ranks-world", "--gpus 1 --resume", &said), 2);
  expect_one_reason(said, "it was made with \"world\":2, this run has \"world\":1");
  EXPECT_INT(job("train", "", "ranks-world", "--gpus 1 --batch 4 --resume", &said), 2);
  expect_one_reason(said, "it was made with \"batch\":2, this run has \"batch\":4");
  EXPECT_INT(job("train", "", "ranks-world", "--gpus 1 --resume --amend", &said), 2);
  expect_one_reason(said, "it was made with 4 images a step (2 of 2 ranks each): go on with --batch 4");
  EXPECT_INT(job("train", "", "ranks-world", "--gpus 3 --resume --amend", &said), 2);
  expect_one_reason(said, "it was made with 4 images a step, which 3 ranks cannot share evenly: give another --gpus");
  if (!EXPECT_INT(job("train", "", "ranks-world", "--gpus 1 --batch 4 --resume --amend", &said), 0))
    printf("%s\n", said);
  EXPECT(strstr(said, "\"batch\":[2,4],\"world\":[2,1]"));
}

// ---- requests and faults --------------------------------------------------------------------------------------------

// To the supervisor and to each of two ranks; the run is saved, and goes on to the same bits.
// Ranks that end as they were asked to have not failed.
static void expect_no_failure_said(const char *out) {
  char name[80];
  size_t size;
  snprintf(name, sizeof name, "%s.said", out);
  char *said = file_read(in_tmp(name), &size, NULL);
  EXPECT(said && !strstr(said, "ended with status"));
  free(said);
}

TEST_TIER(ranks_stop_together_when_one_is_asked, 1) {
  const char *whole = whole_of("train"), *said;
  for (int asked = 0; asked < 3; asked++) {
    char out[64];
    pid_t pid[16];
    snprintf(out, sizeof out, "ranks-stopped-%d", asked);
    const pid_t job_pid = start_job("train", "", out, "--gpus 2 --iters 8");
    if (!EXPECT(wait_for_step(out, 3, 2))) continue;
    const int n = processes_of(out, pid, 16);
    for (int i = 0, rank = 0; i < n; i++)
      if (pid[i] == job_pid ? asked == 0 : ++rank == asked) kill(pid[i], SIGTERM);
    const int status = end_of(job_pid);
    EXPECT(status == 1 || status == 0); // it may just have been done
    expect_no_failure_said(out);
    expect_nobody_left(out);
    if (!EXPECT_INT(job("train", "", out, "--gpus 2 --resume", &said), 0)) printf("    %s\n", said);
    expect_same_run(out, whole);
  }
}

// A request that comes while ranks begin is no mistake of whoever started them.
TEST_TIER(ranks_stop_while_they_meet, 1) {
  for (int i = 0; i < 4; i++) {
    char out[64];
    snprintf(out, sizeof out, "ranks-stopped-early-%d", i);
    const pid_t pid = start_job("train", "", out, "--gpus 2 --iters 100000 --eval-every -1");
    if (!EXPECT(wait_for_step(out, 3, 0))) continue;
    usleep((useconds_t)(20000 * i));
    kill(pid, SIGTERM);
    EXPECT_INT(end_of(pid), 1);
    expect_nobody_left(out);
  }
}

// Kills the supervisor (0) or the rank that is so many-th.
static void kill_one(const char *out, pid_t supervisor, int which, int signal) {
  pid_t pid[16];
  const int n = processes_of(out, pid, 16);
  for (int i = 0, rank = 0; i < n; i++)
    if (pid[i] == supervisor ? which == 0 : ++rank == which) kill(pid[i], signal);
}

// Has the supervisor and each of two ranks in turn get the signal; all end by one line that says which it was.
static void expect_ends_by(int signal, const char *name, const char *more) {
  static const char *const reason[] = {"supervisor", "rank 0 on ", "rank 1 on "};
  for (int which = 0; which < 3; which++) {
    char out[64], options[128];
    snprintf(out, sizeof out, "ranks-%s-%d", name, which);
    snprintf(options, sizeof options, "--gpus 2 --iters 100000 --eval-every -1 %s", more);
    const pid_t pid = start_job("train", "", out, options);
    if (!EXPECT(wait_for_step(out, 3, 2))) continue;
    kill_one(out, pid, which, signal);
    EXPECT_INT(end_of(pid), which ? 1 : -SIGKILL); // a supervisor that is stopped is killed by the ranks
    expect_nobody_left(out);
    char *text = said_by(out);
    expect_one_reason(text, reason[which]);
    EXPECT(strstr(text, "step "));
    free(text);
  }
}

TEST_TIER(ranks_end_with_the_one_that_is_killed, 1) { expect_ends_by(SIGKILL, "killed", ""); }
TEST_TIER(ranks_end_with_the_one_that_is_stopped, 1) { expect_ends_by(SIGSTOP, "silent", "--timeout 2"); }

// The supervisor and a rank at once, each killed (K) or stopped (S).
TEST_TIER(ranks_end_when_two_are_lost_at_once, 1) {
  static const struct {
    int supervisor, rank, which;
  } cases[] = {{SIGKILL, SIGKILL, 1}, {SIGSTOP, SIGSTOP, 1}, {SIGKILL, SIGSTOP, 1},
               {SIGSTOP, SIGKILL, 1}, {SIGSTOP, SIGSTOP, 3}, {SIGSTOP, SIGKILL, 3}};
  for (int i = 0; i < COUNT(cases); i++) {
    char out[64];
    snprintf(out, sizeof out, "ranks-two-%d", i);
    const pid_t pid = start_job("train", "", out, "--gpus 3 --iters 100000 --eval-every -1 --timeout 2");
    if (!EXPECT(wait_for_step(out, 4, 2))) continue;
    kill_one(out, pid, cases[i].which, cases[i].rank);
    kill_one(out, pid, 0, cases[i].supervisor);
    EXPECT(end_of(pid) != 0);
    expect_nobody_left(out);
    char *text = said_by(out);
    expect_one_reason(text, " on ");
    free(text);
  }
}

// A fault of the second GPU, whose rank says so.
TEST_TIER(ranks_end_with_the_gpu_that_is_lost, 1) {
  const char *said;
  EXPECT_INT(job("faulty/train", "FAULT_GPU=1 FAULT=kernel:80:cudaErrorLaunchFailure", "ranks-lost", "--gpus 2", &said),
             1);
  expect_one_reason(said, "rank 1 on ");
  expect_nobody_left("ranks-lost");
}

TEST_TIER(ranks_start_again_by_themselves, 1) {
  const char *whole = whole_of("train");
  for (int which = 1; which < 3; which++) {
    char out[64];
    snprintf(out, sizeof out, "ranks-again-by-themselves-%d", which);
    const pid_t pid = start_job("train", "", out, "--gpus 2 --restarts 2");
    if (EXPECT(wait_for_step(out, 3, 2))) kill_one(out, pid, which, SIGKILL);
    EXPECT_INT(end_of(pid), 0);
    expect_nobody_left(out);
    expect_same_run(out, whole);
  }
}

// ---- kills ----------------------------------------------------------------------------------------------------------

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
  const int n = processes_of(out, pid, 16);
  const pid_t who = n ? pid[(int)(n * rng_uniform(RNG_TEST, (uint64_t)key))] : 0;
  return who && kill(who, SIGKILL) == 0 ? who : 0;
}

// A process that ends gives its memory back, by which processes_of knows it, before its lock.
static void expect_folder_free(const char *out) {
  const int file = open(file_of(out, "lock"), O_RDONLY | O_CLOEXEC);
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
  const pid_t supervisor = start_job("train", "", out, more);
  pid_t who = 0;
  int of_ranks = 0;
  for (int i = 0; i <= restarts && *killed < kills && who != supervisor; i++) {
    wait_somewhere(out, seconds, *killed);
    if (!(who = kill_anyone(out, *killed))) break;
    ++*killed;
    of_ranks += who != supervisor;
  }
  const int status = end_of(supervisor);
  expect_nobody_left(out);
  expect_folder_free(out);
  char *said = said_by(out);
  // A rank's end has its line; one that had done its part may be killed for nothing, and so may a supervisor.
  const int again = count_of(said, "train: starting again, "), lines = count_of(said, "train: ") - again;
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
  if (!path_is_file(file_of(out, "checkpoint.safetensors"))) return -1;
  if (!EXPECT(ckpt_open(&c, file_of(out, "checkpoint.safetensors"), &err))) printf("    %s\n", err.msg);
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
  if (!EXPECT_INT(job("train", "", whole, "--gpus 3", &said), 0)) printf("    %s\n", said);
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
    EXPECT(!path_is_file(file_of(out, "checkpoint.safetensors.tmp")));
    command(NULL, "rm -r %s", in_tmp(out));
  }
  printf("  %d kills in %d runs of %.1f s\n", killed, runs, seconds);
}

TEST_TIER(ranks_survive_some_kills, 1) { check_kills(6); }
TEST_TIER(ranks_survive_fifty_kills, 2) { check_kills(50); }

// ---- ranks of others ------------------------------------------------------------------------------------------------

// One of `world` ranks of this host, as torchrun starts them.
static pid_t start_rank(const char *out, int rank, int world, int port, const char *more) {
  char *env = xasprintf("RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d",
                        rank, world, rank, world, port);
  const pid_t pid = start_job("train", env, out, more);
  free(env);
  return pid;
}

// A rank that is stopped when another is killed is not left.
TEST_TIER(ranks_of_others_leave_nobody_who_is_stopped, 1) {
  static const char out[] = "ranks-others-stopped", more[] = "--iters 100000 --eval-every -1 --timeout 20";
  pid_t pid[3];
  for (int r = 0; r < 3; r++) pid[r] = start_rank(out, r, 3, 29630, more);
  if (EXPECT(wait_for_step(out, 3, 2))) {
    kill(pid[1], SIGSTOP);
    kill(pid[0], SIGKILL);
  }
  EXPECT_INT(end_of(pid[0]), -SIGKILL);
  EXPECT_INT(end_of(pid[2]), 1);
  if (!EXPECT_INT(end_of(pid[1]), -SIGKILL)) expect_nobody_left(out);
}

// Two ranks as torchrun starts them, on data sets of their own. Both end with `status`, and one says why.
static void expect_two(const char *out, int port, const char *const data[2], int status, const char *reason) {
  pid_t pid[2];
  char name[80];
  for (int r = 0; r < 2; r++) {
    char *more = xasprintf("--data %s", data[r]);
    pid[r] = start_rank(out, r, 2, port, more);
    free(more);
  }
  for (int r = 0; r < 2; r++) EXPECT_INT(end_of(pid[r]), status);
  expect_nobody_left(out);
  snprintf(name, sizeof name, "%s", out);
  char *said = said_by(name);
  expect_one_reason(said, reason);
  free(said);
}

// A set that differs from another in what only an evaluation reads, in one box, or in a file that is not there.
TEST_TIER(ranks_of_others_have_the_same_data, 1) {
  static const struct {
    const char *change, *reason;
  } cases[] = {
      {"sed -i 's/\"bbox\":\\[[0-9.]*,/\"bbox\":[1.5,/' annotations/instances_val.json", "it has \"val_data\":"},
      {"sed -i 's/\"bbox\":\\[[0-9.]*,/\"bbox\":[1.5,/' annotations/instances_train.json", "it has \"train_data\":"},
      {"rm train/000003.png", "it has \"train_missing_files\":1, the first rank \"train_missing_files\":0: "},
      {"rm val/000001.png", "it has \"val_missing_files\":1, the first rank \"val_missing_files\":0: "},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    char out[64], other[600];
    snprintf(other, sizeof other, "%s", in_tmp("ranks-other-set"));
    CHECK(!command(NULL, "rm -rf %s; cp -r %s %s; cd %s; %s", other, shapes_set(), other, other, cases[i].change));
    snprintf(out, sizeof out, "ranks-other-data-%d", i);
    expect_two(out, 29620 + i, (const char *const[]){shapes_set(), other}, 2, cases[i].reason);
  }
}

// A rate of 0.04 sends this run off before the checkpoint of step 20, which is of half that rate. A restart goes on
// with the rate to which the run was rolled back, not with that of the command.
static const char rolls_back[] = "--gpus 2 --resume --warmup 0 --clip-grad 0 --eval-every -1 --iters 60 --lr 0.04 "
                                 "--checkpoint-every 20 --on-divergence rollback --restarts 1";

static void begin_to_roll_back(const char *out) {
  const char *said;
  char more[300];
  snprintf(more, sizeof more, "%s --stop-after 4", rolls_back);
  if (!EXPECT_INT(job("train", "", out, more, &said), 0)) printf("    %s\n", said);
}

TEST_TIER(ranks_start_again_where_they_were_rolled_back_to, 1) {
  const char *said, out[] = "ranks-rolled-back", whole[] = "ranks-rolled-back-whole";
  begin_to_roll_back(whole);
  begin_to_roll_back(out);
  if (!EXPECT_INT(job("train", "", whole, rolls_back, &said), 0)) printf("    %s\n", said);
  EXPECT_INT(count_of(said, "\nrolling back, "), 1);
  const pid_t pid = start_job("train", "", out, rolls_back);
  if (EXPECT(wait_for_step(out, 3, 20))) kill_one(out, pid, 2, SIGKILL);
  EXPECT_INT(end_of(pid), 0);
  expect_nobody_left(out);
  expect_same_run(out, whole);
}

// It would diverge again.
TEST_TIER(ranks_do_not_start_again_what_diverged, 1) {
  const char *said, out[] = "ranks-diverged";
  EXPECT_INT(job("train", "", out, "--gpus 2 --lr 1e5 --warmup 0 --clip-grad 0 --restarts 2", &said), 1);
  expect_one_reason(said, "not finite (loss_objectness ");
  EXPECT(!strstr(said, "rank 0 on "));
  expect_nobody_left(out);
}

// ---- mistakes -------------------------------------------------------------------------------------------------------

TEST_TIER(ranks_refuse_what_cannot_be, 1) {
  static const struct {
    const char *program, *env, *more, *reason;
  } cases[] = {
      {"faulty/train", "", "--gpus 8", "--gpus 8: this machine has 4 GPUs; --gpus all takes what there is"},
      {"faulty/train", "FAULTY_GPUS=1 CUDA_VISIBLE_DEVICES=5", "--gpus 2",
       "--gpus 2: this machine has 1 GPU with CUDA_VISIBLE_DEVICES=5; --gpus all"},
      {"faulty/train", "FAULTY_GPUS=0", "--gpus all", "--gpus all: no GPU found;"},
      {"faulty/train", "FAULT=locate:1:cudaErrorUnknown", "--gpus 2", "--gpus 2: the driver does not answer"},
      {"faulty/train", "FAULT=locate:1:", "--gpus 2", "--gpus 2: the driver does not say which GPUs there are"},
      {"faulty/train", "", "--gpus 2 --device cuda:0", "--gpus 2 takes GPUs from cuda:0 on"},
      {"faulty/train", "MASKRCNN_NCCL=/nowhere/libnccl.so.2", "--gpus 2", "/nowhere/libnccl.so.2"},
      {"faulty/train", "NCCL_STUB_VERSION=21000", "--gpus 2", "2.10.0"},
      {"train", "", "--gpus all", "--gpus all counts GPUs: with --device cpu"},
      {"train", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29611",
       "--rendezvous-timeout 1", "rank 1 of 2"},
      {"train", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29612",
       "--rendezvous-timeout 1", "127.0.0.1:29612"},
      {"train", "RANK=5 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29613", "",
       "RANK"},
      {"train", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29614",
       "--restarts 1", "--restarts"},
      {"train", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29615",
       "--gpus 3", "--gpus 3"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    const char *said;
    char out[64];
    snprintf(out, sizeof out, "ranks-refused-%d", i);
    EXPECT_INT(job(cases[i].program, cases[i].env, out, cases[i].more, &said), 2);
    expect_one_reason(said, cases[i].reason);
    expect_nobody_left(out);
  }
}
