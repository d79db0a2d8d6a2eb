// Catches runs of several ranks that end with other bits, leave processes behind or give no reason.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/rank_jobs.h"
#include "test/harness/test.h"

static const char *const programs[] = {"train", "faulty/train"};

// ---- what a run comes to --------------------------------------------------------------------------------------------

TEST_TIER(ranks_train_to_the_same_bits, 1) {
  for (int i = 0; i < COUNT(programs); i++) {
    const char *said, *whole = rank_job_whole(programs[i]);
    char out[64];
    snprintf(out, sizeof out, "ranks-again-%d", i);
    if (!EXPECT_INT(rank_job_run(programs[i], "", out, "--gpus 2", &said), 0)) printf("    %s\n", said);
    EXPECT_INT(text_count(said, "\ndone: "), 1);
    expect_same_run(out, whole);
    expect_no_process(out);
  }
}

TEST_TIER(ranks_one_is_the_program_without_the_option, 1) {
  const char *said;
  EXPECT_INT(rank_job_run("train", "", "ranks-none", "", &said), 0);
  EXPECT_INT(rank_job_run("train", "", "ranks-one", "--gpus 1", &said), 0);
  expect_same_run("ranks-one", "ranks-none");
}

TEST_TIER(ranks_resume_to_the_same_bits, 1) {
  for (int i = 0; i < COUNT(programs); i++) {
    const char *said, *whole = rank_job_whole(programs[i]);
    char out[64];
    snprintf(out, sizeof out, "ranks-resumed-%d", i);
    EXPECT_INT(rank_job_run(programs[i], "", out, "--gpus 2 --stop-after 3", &said), 0);
    if (!EXPECT_INT(rank_job_run(programs[i], "", out, "--gpus 2 --resume", &said), 0)) printf("    %s\n", said);
    expect_same_run(out, whole);
  }
}

// Of the averages, too, with which all ranks evaluate.
TEST_TIER(ranks_resume_averages_to_the_same_bits, 1) {
  static const char scores[] = "grep '\"eval\"' %s | sed 's/,\"clock\".*//'";
  const char *said;
  EXPECT_INT(rank_job_run("train", "", "ranks-ema", "--gpus 2 --ema 0.9 --val-loss", &said), 0);
  EXPECT_INT(rank_job_run("train", "", "ranks-ema-resumed", "--gpus 2 --ema 0.9 --val-loss --stop-after 3", &said), 0);
  EXPECT_INT(rank_job_run("train", "", "ranks-ema-resumed", "--gpus 2 --ema 0.5 --resume", &said), 2);
  expect_one_reason(said, "it was made with \"ema\":0.9, but this run has \"ema\":0.5: ");
  EXPECT_INT(rank_job_run("train", "", "ranks-ema-resumed", "--gpus 2 --ema 0.9 --val-loss --resume", &said), 0);
  expect_same_run("ranks-ema-resumed", "ranks-ema");
  EXPECT_INT(command(&said, scores, rank_job_file("ranks-ema", "log.jsonl")), 0);
  char *whole = xstrdup(said);
  EXPECT_INT(command(&said, scores, rank_job_file("ranks-ema-resumed", "log.jsonl")), 0);
  EXPECT_STR(said, whole);
  free(whole);
}

// Another world goes on with as many images a step, where it is asked to, and not otherwise.
TEST_TIER(ranks_go_on_in_another_world, 1) {
  const char *said;
  EXPECT_INT(rank_job_run("train", "", "ranks-world", "--gpus 2 --stop-after 4", &said), 0);
  EXPECT_INT(rank_job_run("train", "", "ranks-world", "--gpus 1 --resume", &said), 2);
  expect_one_reason(said, "it was made with \"world\":2, but this run has \"world\":1: ");
  EXPECT_INT(rank_job_run("train", "", "ranks-world", "--gpus 1 --batch 4 --resume", &said), 2);
  expect_one_reason(said, "it was made with \"batch\":2, but this run has \"batch\":4: ");
  EXPECT_INT(rank_job_run("train", "", "ranks-world", "--gpus 1 --resume --amend", &said), 2);
  expect_one_reason(said, "it was made with 4 images per step (2 on each of 2 ranks): continue with --batch 4");
  EXPECT_INT(rank_job_run("train", "", "ranks-world", "--gpus 3 --resume --amend", &said), 2);
  expect_one_reason(
      said,
      "it was made with 4 images per step, which cannot be divided evenly between 3 ranks: choose another --gpus");
  if (!EXPECT_INT(rank_job_run("train", "", "ranks-world", "--gpus 1 --batch 4 --resume --amend", &said), 0))
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
  EXPECT(said && !strstr(said, "exited with status "));
  free(said);
}

TEST_TIER(ranks_stop_together_when_one_is_asked, 1) {
  const char *whole = rank_job_whole("train"), *said;
  for (int asked = 0; asked < 3; asked++) {
    char out[64];
    pid_t pid[16];
    snprintf(out, sizeof out, "ranks-stopped-%d", asked);
    const pid_t job_pid = rank_job_start("train", "", out, "--gpus 2 --iters 8");
    if (!EXPECT(rank_job_reaches(out, 3, 2))) continue;
    const int n = rank_job_processes(out, pid, 16);
    for (int i = 0, rank = 0; i < n; i++)
      if (pid[i] == job_pid ? asked == 0 : ++rank == asked) kill(pid[i], SIGTERM);
    const int status = rank_job_end(job_pid);
    EXPECT(status == 1 || status == 0); // it may just have been done
    expect_no_failure_said(out);
    expect_no_process(out);
    if (!EXPECT_INT(rank_job_run("train", "", out, "--gpus 2 --resume", &said), 0)) printf("    %s\n", said);
    expect_same_run(out, whole);
  }
}

// A request that comes while ranks begin is no mistake of whoever started them.
TEST_TIER(ranks_stop_while_they_meet, 1) {
  for (int i = 0; i < 4; i++) {
    char out[64];
    snprintf(out, sizeof out, "ranks-stopped-early-%d", i);
    const pid_t pid = rank_job_start("train", "", out, "--gpus 2 --iters 100000 --eval-every never");
    if (!EXPECT(rank_job_reaches(out, 3, 0))) continue;
    usleep((useconds_t)(20000 * i));
    kill(pid, SIGTERM);
    EXPECT_INT(rank_job_end(pid), 1);
    expect_no_process(out);
  }
}

// Kills the supervisor (0) or the rank that is so many-th.
static void kill_one(const char *out, pid_t supervisor, int which, int signal) {
  pid_t pid[16];
  const int n = rank_job_processes(out, pid, 16);
  for (int i = 0, rank = 0; i < n; i++)
    if (pid[i] == supervisor ? which == 0 : ++rank == which) kill(pid[i], signal);
}

// Has the supervisor and each of two ranks in turn get the signal; all end by one line that says which it was.
static void expect_ends_by(int signal, const char *name, const char *more) {
  static const char *const reason[] = {"supervisor", "rank 0 on ", "rank 1 on "};
  for (int which = 0; which < 3; which++) {
    char out[64], options[128];
    snprintf(out, sizeof out, "ranks-%s-%d", name, which);
    snprintf(options, sizeof options, "--gpus 2 --iters 100000 --eval-every never %s", more);
    const pid_t pid = rank_job_start("train", "", out, options);
    if (!EXPECT(rank_job_reaches(out, 3, 2))) continue;
    kill_one(out, pid, which, signal);
    // A supervisor that is stopped goes on when a rank ends.
    EXPECT_INT(rank_job_end(pid), which == 0 && signal == SIGKILL ? -SIGKILL : 1);
    expect_no_process(out);
    char *text = rank_job_said(out);
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
    const pid_t pid = rank_job_start("train", "", out, "--gpus 3 --iters 100000 --eval-every never --timeout 2");
    if (!EXPECT(rank_job_reaches(out, 4, 2))) continue;
    kill_one(out, pid, cases[i].which, cases[i].rank);
    kill_one(out, pid, 0, cases[i].supervisor);
    EXPECT(rank_job_end(pid) != 0);
    expect_no_process(out);
    char *text = rank_job_said(out);
    expect_one_reason(text, " on ");
    free(text);
  }
}

// A fault of the second GPU, whose rank says so.
TEST_TIER(ranks_end_with_the_gpu_that_is_lost, 1) {
  const char *said;
  EXPECT_INT(rank_job_run("faulty/train", "FAULT_GPU=1 FAULT=kernel:80:cudaErrorLaunchFailure", "ranks-lost",
                          "--gpus 2", &said),
             1);
  expect_one_reason(said, "rank 1 on ");
  expect_no_process("ranks-lost");
}

TEST_TIER(ranks_start_again_by_themselves, 1) {
  const char *whole = rank_job_whole("train");
  for (int which = 1; which < 3; which++) {
    char out[64];
    snprintf(out, sizeof out, "ranks-again-by-themselves-%d", which);
    const pid_t pid = rank_job_start("train", "", out, "--gpus 2 --restarts 2");
    if (EXPECT(rank_job_reaches(out, 3, 2))) kill_one(out, pid, which, SIGKILL);
    EXPECT_INT(rank_job_end(pid), 0);
    expect_no_process(out);
    expect_same_run(out, whole);
  }
}

// ---- ranks of others ------------------------------------------------------------------------------------------------

// One of `world` ranks of this host, as torchrun starts them, which meet through a file.
static pid_t start_rank(const char *out, int rank, int world, const char *more) {
  char *env = xasprintf("RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d", rank, world, rank, world);
  char *all = xasprintf("%s --rendezvous file:%s.meeting", more, in_tmp(out));
  const pid_t pid = rank_job_start("train", env, out, all);
  free(env);
  free(all);
  return pid;
}

// A rank that is stopped when another is killed is its launcher's to end; when it goes on, it ends by itself.
TEST_TIER(ranks_of_others_end_when_they_go_on, 1) {
  static const char out[] = "ranks-others-stopped", more[] = "--iters 100000 --eval-every never --timeout 20";
  pid_t pid[3];
  for (int r = 0; r < 3; r++) pid[r] = start_rank(out, r, 3, more);
  if (EXPECT(rank_job_reaches(out, 3, 2))) {
    int status; // all its threads stand, or one would still hear of the other rank's end
    kill(pid[1], SIGSTOP);
    EXPECT(waitpid(pid[1], &status, WUNTRACED) == pid[1] && WIFSTOPPED(status));
    kill(pid[0], SIGKILL);
  }
  EXPECT_INT(rank_job_end(pid[0]), -SIGKILL);
  EXPECT_INT(rank_job_end(pid[2]), 1);
  kill(pid[1], SIGCONT);
  EXPECT_INT(rank_job_end(pid[1]), 1);
  expect_no_process(out);
}

// Two ranks as torchrun starts them, on data sets of their own. Both end with `status`, and one says why.
static void expect_two(const char *out, const char *const data[2], int status, const char *reason) {
  pid_t pid[2];
  char name[80];
  for (int r = 0; r < 2; r++) {
    char *more = xasprintf("--data %s", data[r]);
    pid[r] = start_rank(out, r, 2, more);
    free(more);
  }
  for (int r = 0; r < 2; r++) EXPECT_INT(rank_job_end(pid[r]), status);
  expect_no_process(out);
  snprintf(name, sizeof name, "%s", out);
  char *said = rank_job_said(name);
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
      {"rm train/000003.png", "it has \"train_missing_files\":1, but rank 0 has \"train_missing_files\":0: "},
      {"rm val/000001.png", "it has \"val_missing_files\":1, but rank 0 has \"val_missing_files\":0: give all ranks "
                            "the same options and data"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    char out[64], other[600];
    snprintf(other, sizeof other, "%s", in_tmp("ranks-other-set"));
    CHECK(!command(NULL, "rm -rf %s; cp -r %s %s; cd %s; %s", other, shapes_set(), other, other, cases[i].change));
    snprintf(out, sizeof out, "ranks-other-data-%d", i);
    expect_two(out, (const char *const[]){shapes_set(), other}, 2, cases[i].reason);
  }
}

// A rate of 0.045 sends this run off before the checkpoint of step 16, which is of half that rate. A restart goes on
// with the rate to which the run was rolled back, not with that of the command.
static const char rolls_back[] =
    "--gpus 2 --resume --augment mirror --warmup 0 --clip-grad 0 --eval-every never --iters 26 --lr 0.045 "
    "--checkpoint-every 16 --on-divergence rollback --restarts 1";

static void begin_to_roll_back(const char *out) {
  const char *said;
  char more[300];
  snprintf(more, sizeof more, "%s --stop-after 4", rolls_back);
  if (!EXPECT_INT(rank_job_run("train", "", out, more, &said), 0)) printf("    %s\n", said);
}

TEST_TIER(ranks_start_again_where_they_were_rolled_back_to, 1) {
  const char *said, out[] = "ranks-rolled-back", whole[] = "ranks-rolled-back-whole";
  begin_to_roll_back(whole);
  begin_to_roll_back(out);
  if (!EXPECT_INT(rank_job_run("train", "", whole, rolls_back, &said), 0)) printf("    %s\n", said);
  EXPECT_INT(text_count(said, "\nrolling back, "), 1);
  const pid_t pid = rank_job_start("train", "", out, rolls_back);
  if (EXPECT(rank_job_reaches(out, 3, 16))) kill_one(out, pid, 2, SIGKILL);
  EXPECT_INT(rank_job_end(pid), 0);
  expect_no_process(out);
  expect_same_run(out, whole);
}

// It would diverge again.
TEST_TIER(ranks_do_not_start_again_what_diverged, 1) {
  const char *said, out[] = "ranks-diverged";
  EXPECT_INT(rank_job_run("train", "", out, "--gpus 2 --lr 1e5 --warmup 0 --clip-grad 0 --restarts 2", &said), 1);
  expect_one_reason(said, "not finite (loss_objectness ");
  EXPECT(!strstr(said, "rank 0 on "));
  expect_no_process(out);
}

// ---- mistakes -------------------------------------------------------------------------------------------------------

TEST_TIER(ranks_refuse_what_cannot_be, 1) {
  static const struct {
    const char *program, *env, *more, *reason;
  } cases[] = {
      {"faulty/train", "", "--gpus 8", "--gpus 8: this machine has 4 GPUs; --gpus all uses all of them"},
      {"faulty/train", "FAULTY_GPUS=1 CUDA_VISIBLE_DEVICES=5", "--gpus 2",
       "--gpus 2: this machine has 1 GPU with CUDA_VISIBLE_DEVICES=5; --gpus all"},
      {"faulty/train", "FAULTY_GPUS=0", "--gpus all", "--gpus all: no GPU found:"},
      {"faulty/train", "FAULT=locate:1:cudaErrorUnknown", "--gpus 2", "--gpus 2: the driver does not respond"},
      {"faulty/train", "FAULT=locate:1:", "--gpus 2", "--gpus 2: the driver does not list its GPUs"},
      {"faulty/train", "", "--gpus 2 --device cuda:0", "--gpus 2 always starts at cuda:0: leave out --device "},
      {"faulty/train", "MASKRCNN_NCCL=/nowhere/libnccl.so.2", "--gpus 2", "/nowhere/libnccl.so.2"},
      {"faulty/train", "NCCL_STUB_VERSION=21000", "--gpus 2", "2.10.0"},
      {"train", "", "--gpus all",
       "--gpus all cannot be used with --device cpu: give the number of processes, such as --gpus 2"},
      {"train",
       "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29611 MASKRCNN_JOB=x",
       "--rendezvous-timeout 1", "rank 1 of 2"},
      {"train", "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29612",
       "--rendezvous-timeout 1", "127.0.0.1:29612"},
      {"train", "RANK=5 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29613", "",
       "RANK"},
      {"train",
       "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29614 MASKRCNN_JOB=x",
       "--restarts 1", "--restarts"},
      {"train",
       "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29615 MASKRCNN_JOB=x",
       "--gpus 3", "--gpus 3"},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    const char *said;
    char out[64];
    snprintf(out, sizeof out, "ranks-refused-%d", i);
    EXPECT_INT(rank_job_run(cases[i].program, cases[i].env, out, cases[i].more, &said), 2);
    expect_one_reason(said, cases[i].reason);
    expect_no_process(out);
  }
}
