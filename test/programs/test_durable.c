// Catches checkpoints lost or half written when a run is killed or the disk is full.
#define _GNU_SOURCE // prlimit
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "test/harness/command.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

static const char *path_of(const char *out, const char *file) {
  static char paths[8][512];
  static int next;
  char *p = paths[next++ % COUNT(paths)];
  snprintf(p, sizeof paths[0], "%s/%s%s%s", test_tmp(), out, *file ? "/" : "", file);
  return p;
}

// A shell's command line for training in the folder `out`: eight steps unless `more` says otherwise.
static const char *train_line(const char *out, const char *more) {
  static char line[1536];
  const char *set = test_kept("durable-set"), *said;
  if (!path_is_dir(set))
    CHECK(!command(&said, "%s --out %s --train 16 --val 2 --size 64 --seed 3", tool("shapes"), set));
  snprintf(line, sizeof line,
           "exec env OMP_NUM_THREADS=1 %s --data %s --out %s --model tiny --size 64 --batch 1 --iters 8 --lr 0.01 "
           "--checkpoint-every 2 --seed 5 --eval-every 3 --detections 10 --threads 1 --device cpu "
           "--resume %s",
           tool("train"), set, path_of(out, ""), more);
  return line;
}

static int train(const char *out, const char *more, const char **said) {
  return command(said, "%s", train_line(out, more));
}

// The same in the background; what it says goes to OUT.said.
static pid_t start(const char *out, const char *more) {
  const char *line = train_line(out, more), *said = path_of(out, "");
  char *redirected = xasprintf("%s >%s.said 2>&1", line, said);
  const pid_t pid = command_start(redirected);
  free(redirected);
  return pid;
}

static char *said_path(const char *out) { return xasprintf("%s.said", path_of(out, "")); }

static char *said_by(const char *out) {
  size_t size;
  char *path = said_path(out), *text = file_read(path, &size, NULL);
  free(path);
  return text ? text : xstrdup("");
}

// Exit status, or minus the signal that ended it.
static int wait_for(pid_t pid) {
  int status;
  CHECK(waitpid(pid, &status, 0) == pid);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void pause_for(double seconds) { usleep((useconds_t)(1e6 * seconds)); }

static bool holds_text(const char *path, const char *what) {
  size_t size;
  char *text = file_read(path, &size, NULL);
  bool found = text && strstr(text, what);
  free(text);
  return found;
}

// Until the file holds the text, a minute at most; "": until it is there and not empty.
static bool wait_for_text(const char *path, const char *what) {
  struct stat st;
  for (double begin = now_seconds(); now_seconds() - begin < 60; pause_for(1e-4))
    if (stat(path, &st) == 0 && st.st_size > 0 && holds_text(path, what)) return true;
  return false;
}
static bool wait_for_file(const char *path) { return wait_for_text(path, ""); }

// The step of a checkpoint, which must be whole; -1 when there is none.
static long step_of(const char *path) {
  if (!path_is_file(path)) return -1;
  Checkpoint c;
  Err err = {""};
  if (!EXPECT(ckpt_open(&c, path, &err))) {
    printf("    %s\n", err.msg);
    return -1;
  }
  long step = atol(ckpt_find_meta(&c, "step"));
  ckpt_close(&c);
  return step;
}

static long saved_step(const char *out) { return step_of(path_of(out, "checkpoint.safetensors")); }
static long previous_step(const char *out) { return step_of(path_of(out, "checkpoint-previous.safetensors")); }

// The log without what a clock says: each line as far as the speed, or the evaluation's times.
static char *timeless_log(const char *out) {
  size_t size;
  char *text = file_read(path_of(out, "log.jsonl"), &size, NULL), *to = text;
  if (!text) return xstrdup("");
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = '\0';
    char *clock = strstr(line, ",\"img_s\"");
    if (!clock) clock = strstr(line, ",\"clock\"");
    size_t n = clock ? (size_t)(clock - line) : strlen(line);
    memmove(to, line, n);
    to[n] = '\n';
    to += n + 1;
  }
  *to = '\0';
  return text;
}

static void expect_same_run(const char *out, const char *whole) {
  EXPECT(same_file(path_of(out, "model.safetensors"), path_of(whole, "model.safetensors")));
  EXPECT(same_file(path_of(out, "checkpoint.safetensors"), path_of(whole, "checkpoint.safetensors")));
  EXPECT(previous_step(out) >= 0 && previous_step(out) < saved_step(out));
  char *log = timeless_log(out), *want = timeless_log(whole);
  EXPECT(*want);
  EXPECT_STR(log, want);
  free(log);
  free(want);
}

// The uninterrupted run, made once; how long it takes.
static double whole_run(void) {
  static double seconds;
  if (folder_fetch("durable-whole")) return seconds;
  double begin = now_seconds();
  const char *said;
  if (!EXPECT_INT(train("durable-whole", "", &said), 0)) printf("    %s\n", said);
  seconds = now_seconds() - begin;
  folder_keep("durable-whole");
  return seconds;
}

// When the checkpoint or its temporary file last changed, in nanoseconds; 0 where there is neither.
static int64_t last_write(const char *out) {
  static const char *const files[] = {"checkpoint.safetensors", "checkpoint.safetensors.tmp"};
  int64_t last = 0;
  struct stat st;
  for (int i = 0; i < COUNT(files); i++)
    if (stat(path_of(out, files[i]), &st) == 0)
      last = MAX(last, st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
  return last;
}

// Kills a run of `seconds` at a moment that the key draws: any, or every other time one soon after it began to write.
static void kill_somewhere(pid_t pid, const char *out, double seconds, int key) {
  static const double WRITING = 0.03;
  double wait = seconds * rng_uniform(RNG_TEST, (uint64_t)key), begin = now_seconds();
  if (key % 2) {
    int64_t before = last_write(out);
    while (now_seconds() - begin < seconds && last_write(out) <= before) pause_for(1e-4);
    wait *= WRITING / seconds;
  }
  pause_for(wait);
  kill(pid, SIGKILL);
}

// Kills and resumes runs until `kills` are done; every run that gets to its end must equal the uninterrupted one.
static void check_kills(int kills) {
  double seconds = whole_run();
  int killed = 0, writing = 0, runs = 0, tries = 0;
  for (; killed < kills; runs++) {
    char out[32];
    snprintf(out, sizeof out, "durable-%d-%d", kills, runs);
    long step = -1;
    int status = -SIGKILL;
    while (status == -SIGKILL) {
      pid_t pid = start(out, "");
      if (killed < kills) kill_somewhere(pid, out, seconds, tries++);
      status = wait_for(pid);
      killed += status == -SIGKILL;
      writing += status == -SIGKILL && path_is_file(path_of(out, "checkpoint.safetensors.tmp"));
      long now = saved_step(out);
      EXPECT(now >= step && previous_step(out) <= now);
      step = now;
    }
    if (EXPECT_INT(status, 0)) {
      expect_same_run(out, "durable-whole");
    } else {
      char *said = said_by(out);
      printf("    %s\n", said);
      free(said);
      return;
    }
    EXPECT(!path_is_file(path_of(out, "checkpoint.safetensors.tmp")));
    command(NULL, "rm -r %s", path_of(out, ""));
  }
  EXPECT(writing > 0 || kills < 20);
  printf("  %d kills, %d of them while a checkpoint was written, in %d runs of %.1f s\n", killed, writing, runs,
         seconds);
}

TEST_TIER(durable_survives_some_kills, 1) { check_kills(6); }
TEST_TIER(durable_survives_a_hundred_kills, 2) { check_kills(100); }

// A request to end saves at the step's end. A hangup is one, too.
static void check_request(int which, const char *out) {
  pid_t pid = start(out, "--iters 100000 --checkpoint-every 100000 --eval-every never");
  EXPECT(wait_for_file(path_of(out, "log.jsonl"))); // the first record
  kill(pid, which);
  EXPECT_INT(wait_for(pid), 1);
  char *log = timeless_log(out);
  long steps = 0;
  for (const char *at = log; (at = strchr(at, '\n')); at++) steps++;
  EXPECT_INT(saved_step(out), steps); // no step is lost
  free(log);
  char *said = said_by(out);
  if (!EXPECT(strstr(said, "stopped: ") && strstr(said, "; continue with --resume\n"))) printf("    %s\n", said);
  free(said);
}
TEST_TIER(durable_interrupt_saves_and_stops, 1) { check_request(SIGTERM, "interrupted"); }
TEST_TIER(durable_hangup_saves_and_stops, 1) { check_request(SIGHUP, "hung-up"); }

// So does output that nobody reads: the reader leaves after the first evaluation, the second is not heard.
TEST_TIER(durable_unread_output_saves_and_stops, 1) {
  char *status = xstrdup(path_of("unread-status", ""));
  const char *line = train_line("unread", "--iters 100000 --checkpoint-every 100000 --eval-every 1");
  EXPECT_INT(command(NULL, "( ( %s ) 2>&1; echo $? >%s ) | grep -m 1 '^step 1: bbox AP'", line, status), 0);
  EXPECT_INT(command(NULL, "grep -x 1 %s", status), 0);
  EXPECT(saved_step("unread") > 0);
  // One that leaves at the first step is missed at the next line about steps, ten seconds later, between two of them.
  // The program is stopped for that long, so that it does not train meanwhile.
  const char *pid = path_of("unread-pid", "");
  line = train_line("unread-steps", "--iters 100000 --checkpoint-every 100000 --eval-every never");
  EXPECT_INT(command(NULL,
                     "( sh -c 'echo $$ >%s; %s' 2>&1; echo $? >%s ) | { grep -m 1 '^step 1/' && exec <&- && "
                     "kill -STOP $(cat %s) && sleep 10 && kill -CONT $(cat %s); }",
                     pid, line, status, pid, pid),
             0);
  EXPECT_INT(command(NULL, "grep -x 1 %s", status), 0);
  EXPECT(saved_step("unread-steps") > 1);
  // One that leaves earlier, perhaps before the first step.
  line = train_line("unread-first", "--iters 100000");
  EXPECT_INT(command(NULL, "( ( %s ) 2>&1; echo $? >%s ) | head -1", line, status), 0);
  EXPECT_INT(command(NULL, "grep -x 1 %s", status), 0);
  free(status);
}

// A checkpoint that is due comes before the evaluation of the same step, which hears an interrupt between two images;
// where none is due, one is made then. Of 600 images it takes seconds.
static void check_interrupt_in_evaluation(const char *out, int save_every) {
  const char *set = test_kept("durable-long"), *said;
  if (!path_is_dir(set))
    CHECK(!command(&said, "%s --out %s --train 4 --val 600 --size 64 --seed 3", tool("shapes"), set));
  char *more = xasprintf("--iters 4 --eval-every 2 --checkpoint-every %d --data %s", save_every, set);
  pid_t pid = start(out, more);
  EXPECT(wait_for_text(path_of(out, "log.jsonl"), "{\"step\":2,"));
  if (save_every == 2) EXPECT(wait_for_file(path_of(out, "checkpoint.safetensors")));
  kill(pid, SIGTERM);
  EXPECT_INT(wait_for(pid), 1);
  EXPECT_INT(saved_step(out), 2);
  EXPECT(!holds_text(path_of(out, "log.jsonl"), "\"eval\""));
  char *kept = xasprintf("stopped: %s has step 2; continue with --resume", path_of(out, "checkpoint.safetensors"));
  char *log = said_by(out);
  EXPECT(strstr(log, kept) != NULL);
  free(log);
  free(kept);
  free(more);
}
TEST_TIER(durable_checkpoint_comes_before_an_evaluation, 1) { check_interrupt_in_evaluation("evaluated", 2); }
TEST_TIER(durable_interrupt_in_an_evaluation_saves, 1) { check_interrupt_in_evaluation("unevaluated", 100000); }

// Resuming a run that is complete adds nothing.
TEST_TIER(durable_complete_run_stays_as_it_is, 1) {
  const char *said;
  whole_run();
  CHECK(!command(NULL, "cp -r %s %s", path_of("durable-whole", ""), path_of("complete", "")));
  EXPECT_INT(train("complete", "", &said), 0);
  EXPECT(same_file(path_of("complete", "log.jsonl"), path_of("durable-whole", "log.jsonl")));
  expect_same_run("complete", "durable-whole");
}

static bool catches(pid_t pid, int which) {
  char *path = xasprintf("/proc/%d/status", pid), *text = file_read(path, &(size_t){0}, NULL);
  const char *caught = text ? strstr(text, "\nSigCgt:") : NULL;
  const bool is_caught = caught && strtoull(caught + strlen("\nSigCgt:"), NULL, 16) >> (which - 1) & 1;
  free(path);
  free(text);
  return is_caught;
}

// The second signal ends it at once, in the midst of a step of some seconds.
TEST_TIER(durable_second_interrupt_does_not_wait, 1) {
  pid_t pid = start("twice", "--size 512 --batch 8");
  while (!catches(pid, SIGTERM) && waitpid(pid, NULL, WNOHANG) == 0) pause_for(1e-3);
  kill(pid, SIGTERM);
  for (int i = 0; i < 2; i++) { // within 0.2 s of the first it would count as the same, and the first may arrive late
    pause_for(0.25);
    kill(pid, SIGINT);
  }
  EXPECT_INT(wait_for(pid), -SIGINT);
  EXPECT_INT(saved_step("twice"), -1);
}

TEST_TIER(durable_folder_takes_one_run, 1) {
  const char *said;
  pid_t pid = start("shared", "--iters 100000");
  EXPECT(wait_for_file(path_of("shared", "checkpoint.safetensors")));
  EXPECT_INT(train("shared", "--iters 100000 --stop-after 1", &said), 2);
  char *want = xasprintf("is in use by process %ld on ", (long)pid);
  if (!EXPECT(strstr(said, want) && strchr(said, '\n')[1] == '\0')) printf("    %s\n", said);
  free(want);
  kill(pid, SIGKILL);
  EXPECT_INT(wait_for(pid), -SIGKILL);
  long step = saved_step("shared");
  EXPECT_INT(train("shared", "--iters 100000 --stop-after 2", &said), 0); // the killed one's lock is gone
  EXPECT_INT(saved_step("shared"), step + 2);
}

// A limit on the size of files fails a write in its midst, as a full disk does.
TEST_TIER(durable_full_disk_keeps_what_was_saved, 1) {
  const char *said;
  whole_run();
  if (!EXPECT_INT(train("full", "--stop-after 4", &said), 0)) return;
  CHECK(!command(NULL, "cp %s %s", path_of("full", "checkpoint.safetensors"), path_of("full", "before")));
  EXPECT_INT(command(&said, "ulimit -f 4096; %s", train_line("full", "")), 1);
  if (!EXPECT(strstr(said, "step 6: the checkpoint could not be written: ") &&
              strstr(said, "checkpoint.safetensors has step 4, and checkpoint-previous.safetensors has step 3; "
                           "continue with --resume")))
    printf("    %s\n", said);
  EXPECT(same_file(path_of("full", "checkpoint.safetensors"), path_of("full", "before")));
  EXPECT(!path_is_file(path_of("full", "checkpoint.safetensors.tmp")));
  // A log that is cut in a record fails the next checkpoint, which would promise what is not there.
  EXPECT_INT(command(&said, "ulimit -f 4; %s", train_line("full", "")), 1);
  if (!EXPECT(strstr(said, "log.jsonl: could not be written"))) printf("    %s\n", said);
  EXPECT_INT(saved_step("full"), 4);
  EXPECT_INT(train("full", "", &said), 0);
  expect_same_run("full", "durable-whole");
}

// A disk that is full for a moment, in a file system of 100 MB that only this command sees: filled up after the first
// checkpoint, a save waits until there is room again, and the run ends with what it would have come to.
TEST_TIER(durable_checkpoint_waits_for_room, 1) {
  char *disk = xstrdup(path_of("disk", ""));
  CHECK(dirs_make(disk, NULL));
  if (command(NULL, "unshare -m mount -t tmpfs tmpfs %s", disk) != 0) {
    test_skip("no rights to mount");
    free(disk);
    return;
  }
  static const char script[] =
      "mount -t tmpfs -o size=100m tmpfs %1$s || exit 9; "
      "(%2$s) >%3$s 2>&1 & pid=$!; "
      "until [ -s %1$s/run/checkpoint.safetensors ]; do sleep 0.01; done; "
      "dd if=/dev/zero of=%1$s/filler bs=1M 2>/dev/null; "
      "until grep -q 'No space left on device; retrying' %3$s || ! kill -0 $pid 2>/dev/null; do sleep 0.01; "
      "done; "
      "rm %1$s/filler; wait $pid; echo ended $?; cp %1$s/run/*.safetensors %1$s/run/log.jsonl %4$s";
  char *said = said_path("no-room"), *to = xstrdup(path_of("no-room", "")), *more = xasprintf("--out %s/run", disk),
       *line = xstrdup(train_line("no-room", more)), *in_shell = xasprintf(script, disk, line, said, to);
  CHECK(dirs_make(to, NULL));
  whole_run();
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    execlp("unshare", "unshare", "-m", "sh", "-c", in_shell, (char *)NULL);
    _exit(127);
  }
  EXPECT_INT(wait_for(pid), 0);
  EXPECT(holds_text(said, "No space left on device; retrying\n"));
  expect_same_run("no-room", "durable-whole");
  char *all[] = {disk, said, to, more, line, in_shell};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// The same for the log: no line of it is lost, and none is cut.
TEST_TIER(durable_log_waits_for_room, 1) {
  pid_t pid = start("no-room-for-log", "--iters 100000 --checkpoint-every 100000 --eval-every never");
  const char *log = path_of("no-room-for-log", "log.jsonl");
  char *said = said_path("no-room-for-log");
  EXPECT(wait_for_text(log, "{\"step\":2,"));
  struct rlimit before, none;
  CHECK(!prlimit(pid, RLIMIT_FSIZE, NULL, &before));
  none = before;
  none.rlim_cur = 16384; // what it says has room
  CHECK(!prlimit(pid, RLIMIT_FSIZE, &none, NULL));
  EXPECT(wait_for_text(said, "log.jsonl: could not be written completely: File too large; retrying\n"));
  CHECK(!prlimit(pid, RLIMIT_FSIZE, &before, NULL));
  kill(pid, SIGTERM);
  EXPECT_INT(wait_for(pid), 1);
  size_t size;
  char *text = file_read(log, &size, NULL);
  long lines = 0, step;
  for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1)
    EXPECT_INT(sscanf(line, "{\"step\":%ld,", &step) == 1 ? step : -1, ++lines);
  EXPECT_INT(saved_step("no-room-for-log"), lines);
  free(text);
  free(said);
}

// Data that is away for a moment stops nothing; when it stays away, the state is saved first.
TEST_TIER(durable_data_that_is_away, 1) {
  char *set = xstrdup(path_of("durable-away", "")), *said = said_path("away");
  CHECK(!command(NULL, "%s --out %s --train 16 --val 2 --size 64 --seed 3", tool("shapes"), set));
  char *more = xasprintf("--iters 100000 --checkpoint-every 100000 --eval-every never --data %s", set);
  pid_t pid = start("away", more);
  EXPECT(wait_for_file(path_of("away", "log.jsonl")));
  CHECK(!command(NULL, "mv %s/train %s/away", set, set));
  EXPECT(wait_for_text(said, "; retrying for up to 10 s\n"));
  CHECK(!command(NULL, "mv %s/away %s/train", set, set));
  char *log = file_read(path_of("away", "log.jsonl"), &(size_t){0}, NULL);
  long steps = 0, saved;
  for (char *at = log; (at = strchr(at, '\n')); at++) steps++;
  char *later = xasprintf("{\"step\":%ld,", steps + 6); // more than are under way and decoded ahead
  EXPECT(wait_for_text(path_of("away", "log.jsonl"), later));
  CHECK(!command(NULL, "mv %s/train %s/away", set, set));
  EXPECT_INT(wait_for(pid), 2);
  EXPECT((saved = saved_step("away")) > steps + 6);
  char *want =
      xasprintf("No such file or directory; %s has step %ld", path_of("away", "checkpoint.safetensors"), saved);
  if (!EXPECT(holds_text(said, want) && !holds_text(said, "bad image"))) command(NULL, "cat %s", said);
  char *all[] = {set, said, more, log, later, want};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

// A step that is not finite ends the run, which names what is left; the records before it are there.
TEST_TIER(durable_divergence_stops, 1) {
  const char *said;
  EXPECT_INT(train("diverged", "--iters 40 --lr 1e6 --warmup 0 --clip-grad 0 --checkpoint-every 1", &said), 1);
  const char *stop = strstr(said, ": loss or gradient is not finite (");
  if (!EXPECT(stop && strstr(stop, "; the weights were not updated; ") && strstr(stop, "), images 0000")))
    printf("    %s\n", said);
  EXPECT(holds_text(path_of("diverged", "log.jsonl"), "{\"step\":1,"));
  EXPECT(!path_is_file(path_of("diverged", "model.safetensors")));
}

// Of three runs that a rate of 1000 sends off after their fifth step, the first names the command that goes on from the
// older checkpoint, the second is that command, and the third does it by itself.
TEST_TIER(durable_divergence_can_be_gone_back_on, 1) {
  static const char high[] = "--resume --amend --iters 12 --lr 1000 --warmup 0 --clip-grad 0 --eval-every never";
  const char *said;
  for (int by_itself = 0; by_itself < 2; by_itself++) {
    const char *out = by_itself ? "rolled-back" : "gone-back";
    if (!EXPECT_INT(train(out, "--stop-after 4", &said), 0)) return; // the checkpoint of step 4 is good
    char *more = xasprintf("%s --on-divergence %s", high, by_itself ? "rollback" : "stop");
    EXPECT_INT(train(out, more, &said), 1);
    free(more);
    const char *command_line = strstr(said, "; to retry with half the learning rate: ");
    if (!EXPECT(command_line && strstr(said, "; the weights were not updated; saved: "))) printf("    %s\n", said);
    EXPECT(holds_text(path_of(out, "log.jsonl"), "\"kind\":\"amend\""));
    if (by_itself) {
      EXPECT(strstr(said, "rolling back, 3 of 3") && strstr(said, "\"lr\":[0.01,125]"));
      continue;
    }
    char *again = xstrdup(command_line + strlen("; to retry with half the learning rate: "));
    again[strcspn(again, "\n")] = '\0';
    EXPECT(strstr(again, "--resume=previous --amend --lr 500"));
    EXPECT_INT(command(&said, "%s --lr 0.005", again), 0);
    if (!EXPECT(strstr(said, " at step 4 of 12"))) printf("    %s\n", said);
    free(again);
  }
}

// Without a checkpoint it goes back to the beginning, and the log tells.
TEST_TIER(durable_divergence_rolls_back_to_the_beginning, 1) {
  const char *said;
  EXPECT_INT(
      train("begun-again", "--lr 1e6 --warmup 0 --clip-grad 0 --checkpoint-every 100 --on-divergence rollback", &said),
      1);
  if (!EXPECT(strstr(said, "amended at step 0: {\"lr\":[250000,125000]}\n"))) printf("    %s\n", said);
  EXPECT(holds_text(path_of("begun-again", "log.jsonl"),
                    "{\"step\":0,\"kind\":\"amend\",\"rollback\":3,\"changes\":{\"lr\":[250000,125000]}}"));
  EXPECT(holds_text(path_of("begun-again", "run.json"), "\"rollbacks\":3,") &&
         holds_text(path_of("begun-again", "run.json"), "\"lr\":{\"value\":125000,"));
}

TEST_TIER(durable_folder_that_cannot_be_written, 1) {
  const char *said, *folder = path_of("read-only", "");
  CHECK(!mkdir(folder, 0555));
  if (access(folder, W_OK) == 0) { // root writes where it likes, but not there
    rmdir(folder);
    CHECK(!symlink("/proc/self", folder));
  }
  EXPECT_INT(train("read-only", "", &said), 2);
  if (!EXPECT(strstr(said, "cannot write ") && strstr(said, "/read-only/lock: ") && strchr(said, '\n')[1] == '\0'))
    printf("    %s\n", said);
}

TEST_TIER(durable_leftovers_are_removed, 1) {
  static const char *const files[] = {"checkpoint.safetensors.tmp", "model.safetensors.tmp",
                                      "checkpoint-00000007.safetensors.tmp", "best-bbox.safetensors.tmp",
                                      "best.json.tmp"};
  const char *said;
  CHECK(dirs_make(path_of("leftovers", ""), NULL));
  for (int i = 0; i < COUNT(files); i++) CHECK(!command(NULL, "echo half >%s", path_of("leftovers", files[i])));
  EXPECT_INT(train("leftovers", "--stop-after 1", &said), 0);
  EXPECT(strstr(said, "no checkpoint in ") != NULL);
  for (int i = 0; i < COUNT(files); i++) EXPECT(!path_is_file(path_of("leftovers", files[i])));
}
