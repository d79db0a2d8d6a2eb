// Catches checkpoints deleted too early, or written before their log.
#include <semaphore.h>
#include <unistd.h>
#include "base/run_folder.h"
#include "test/harness/run_fixture.h"
#include "training/numbered.h"

// A save that falls due during another is made all the same, and the last two are there at the end.
TEST(files_keep_two_checkpoints) {
  Run r;
  Err err;
  open_run(&r, "two");
  for (int step = 0; step < 3; step++) {
    make_step(&r, step);
    EXPECT(files_save(&r.f, &r.e, step + 1, false, &err));
  }
  EXPECT(files_settle(&r.f, &err) && files_poll(&r.f, &err));
  EXPECT_INT(step_of(r.f.checkpoint), 3);
  EXPECT_INT(step_of(r.f.previous), 2);
  char *want = xasprintf("%s has step 3, and checkpoint-previous.safetensors has step 2; continue with --resume",
                         r.f.checkpoint);
  EXPECT_STR(r.f.kept, want);
  free(want);
  EXPECT(files_export(&r.f, &r.e, 3, &err));
  EXPECT_INT(step_of(r.f.final), 3);
  close_run(&r);
}

// Where the loss after a checkpoint is out of all proportion, the one before it stays.
TEST(files_keep_what_was_good) {
  Run r;
  Err err;
  open_run(&r, "good");
  static const double losses[] = {3, 2, 1e9, 1e12, 1};
  static const int previous[] = {-1, 1, 1, 1, 4}; // 2 and 3 are followed by a loss that is not fine, 4 is not
  for (int step = 0; step < COUNT(losses); step++) {
    files_record_step(&r.f, &r.e, step + 1, 0.01, &(StepResult){.total = losses[step], .finite = true});
    EXPECT_INT(r.f.newest_is_good, step < 2 || step == 4);
    EXPECT(files_save(&r.f, &r.e, step + 1, false, &err) && files_settle(&r.f, &err));
    EXPECT_INT(step_of(r.f.checkpoint), step + 1);
    EXPECT_INT(step_of(r.f.previous), previous[step]);
    EXPECT_INT(r.f.older, previous[step]);
  }
  for (int step = 6; step <= 7; step++) { // a checkpoint is not blamed for what comes later than the step after it
    files_record_step(&r.f, &r.e, step, 0.01, &(StepResult){.total = step == 6 ? 1 : 1e9, .finite = true});
    EXPECT(r.f.newest_is_good);
  }
  close_run(&r);
}

// What is usual is the beginning of the run, not that of the session.
TEST(files_keep_what_was_good_when_resumed) {
  Run r;
  Err err;
  open_run(&r, "good-before");
  static const double losses[] = {3, 3, 1e9, 1e9};
  for (int step = 0; step < COUNT(losses); step++) {
    if (step == 3) reopen(&r, 3, false, NULL);
    files_record_step(&r.f, &r.e, step + 1, 0.01, &(StepResult){.total = losses[step], .finite = true});
    EXPECT(files_save(&r.f, &r.e, step + 1, false, &err) && files_settle(&r.f, &err));
    EXPECT_INT(step_of(r.f.previous), step < 1 ? -1 : 1);
  }
  close_run(&r);
}

// What an evaluation found that a run has yet to come to, or to come to again, goes.
TEST(files_forget_later_evaluations) {
  Run r;
  open_run(&r, "forget");
  char *path = xasprintf("%s/" RUN_EVALUATION, r.folder);
  for (int step = 3; step <= 4; step++) {
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "{\"step\":%d,\"images\":1}\n", step) > 0 && fclose(f) == 0);
    reopen(&r, 3, false, NULL);
    EXPECT_INT(path_is_file(path), step == 3);
  }
  free(path);
  close_run(&r);
}

static bool numbered_is_there(const Run *r, int step) {
  char *name = numbered_name(r->folder, step);
  const bool there = path_is_file(name);
  free(name);
  return there;
}

// A run that goes on from the checkpoint before the last has that one alone until it saves again: the log ends there.
// What it keeps from then on are its own.
TEST(files_go_back_by_one) {
  Run r;
  Err err;
  open_run(&r, "back");
  r.f.keep = 2;
  for (int step = 0; step < 4; step++) {
    make_step(&r, step);
    EXPECT(step % 2 == 0 || (files_save(&r.f, &r.e, step + 1, false, &err) && files_settle(&r.f, &err)));
  }
  EXPECT(step_of(r.f.checkpoint) == 4 && step_of(r.f.previous) == 2);
  reopen(&r, 2, true, NULL);
  r.f.keep = 2;
  EXPECT(step_of(r.f.checkpoint) == 2 && step_of(r.f.previous) == 2);
  char *kept = xasprintf("%s has step 2; continue with --resume", r.f.checkpoint);
  EXPECT_STR(r.f.kept, kept);
  free(kept);
  for (int step = 2; step < 6; step += 3) {
    make_step(&r, step);
    EXPECT(files_save(&r.f, &r.e, step + 1, false, &err) && files_settle(&r.f, &err));
    EXPECT(step_of(r.f.checkpoint) == step + 1 && step_of(r.f.previous) == (step == 2 ? 2 : 3));
    EXPECT(numbered_is_there(&r, step + 1) && !numbered_is_there(&r, 4));
    EXPECT(numbered_is_there(&r, 2) == (step == 2));
  }
  close_run(&r);
}

TEST(files_keep_as_many_as_asked_for) {
  Run r;
  Err err;
  open_run(&r, "numbered");
  r.f.keep = 2;
  char *copy = xasprintf("%s/checkpoint-00000004.safetensors.copy", r.folder); // a user's own: none of them
  CHECK(!fclose(fopen(copy, "w")));
  for (int step = 0; step < 4; step++) {
    make_step(&r, step);
    EXPECT(files_save(&r.f, &r.e, step + 1, false, &err) && files_settle(&r.f, &err));
  }
  EXPECT(path_is_file(copy));
  free(copy);
  for (int step = 1; step <= 4; step++) {
    char *name = xasprintf("%s/checkpoint-%08d.safetensors", r.folder, step);
    EXPECT_INT(step_of(name), step > 2 ? step : -1);
    free(name);
  }
  close_run(&r);
}

// A failure is seen at the next step, and says what is left.
TEST(files_see_failures_at_the_next_step) {
  Run r;
  Err err;
  open_run(&r, "failing");
  make_step(&r, 0);
  EXPECT(files_save(&r.f, &r.e, 1, false, &err) && files_settle(&r.f, &err));
  char *tmp = xasprintf("%s.tmp", r.f.checkpoint);
  CHECK(dirs_make(tmp, NULL)); // a folder stands where the file is written
  make_step(&r, 1);
  EXPECT(files_save(&r.f, &r.e, 2, false, &err));
  while (!saver_ready(&r.f.saver)) usleep(1000);
  EXPECT(!files_poll(&r.f, &err));
  EXPECT(strstr(err.msg, "step 2: the checkpoint could not be written: ") == err.msg);
  EXPECT(strstr(r.f.kept, " has step 1; "));
  EXPECT_INT(step_of(r.f.checkpoint), 1);
  free(tmp);
  close_run(&r);
}

static sem_t scores_may_end;
static bool score_slowly(const Dataset *d, void *results, Metrics *out, Err *err) {
  (void)d;
  (void)results;
  (void)err;
  *out = (Metrics){0};
  while (sem_wait(&scores_may_end) != 0) {
  }
  return true;
}
static void release(void *results) { (void)results; }

// The checkpoint of a later step is taken at once, but not written before the scores that its log holds.
TEST(files_write_no_checkpoint_before_its_log) {
  static const Task slow = {.score = score_slowly, .release = release};
  static const Dataset none;
  Run r;
  Err err;
  open_run(&r, "scores");
  CHECK(!sem_init(&scores_may_end, 0, 0));
  make_step(&r, 0);
  EXPECT(files_score(&r.f, &slow, &none, NULL, 1, 1, now_seconds(), NULL, &err));
  // Of the same step: made again when it is lost.
  if (!EXPECT(files_save(&r.f, &r.e, 1, false, &err) && r.f.saver.writing)) return;
  make_step(&r, 1);
  EXPECT(files_save(&r.f, &r.e, 2, false, &err));
  make_step(&r, 2);
  for (int i = 0; i < 5; i++) EXPECT(files_poll(&r.f, &err) && r.f.saver.under_way && !r.f.saver.writing);
  EXPECT_INT(step_of(r.f.checkpoint), 1);
  sem_post(&scores_may_end);
  while (r.f.saver.under_way) EXPECT(files_poll(&r.f, &err));
  EXPECT_INT(step_of(r.f.checkpoint), 2);
  EXPECT_INT(step_of(r.f.previous), 1);
  char *log = xasprintf("%s/log.jsonl", r.folder), *text = file_read(log, &(size_t){0}, NULL);
  const char *eval = text ? strstr(text, "{\"step\":1,\"kind\":\"eval\"") : NULL;
  EXPECT(eval && strstr(eval, "{\"step\":2,\"kind\":\"train\"") && strstr(eval, "{\"step\":3,\"kind\":\"train\""));
  free(text);
  free(log);
  sem_destroy(&scores_may_end);
  close_run(&r);
}

// A kill between a checkpoint and the name with its number.
TEST(files_repair_a_number) {
  Run r;
  Err err;
  open_run(&r, "number-repaired");
  r.f.keep = 2;
  make_step(&r, 0);
  EXPECT(files_save(&r.f, &r.e, 1, false, &err) && files_settle(&r.f, &err));
  char *name = numbered_name(r.folder, 1);
  CHECK(!unlink(name));
  reopen(&r, 1, false, NULL);
  EXPECT(!path_is_file(name)); // it keeps none
  CHECK(log_close(&r.f.log, &err));
  r.f.keep = 2;
  EXPECT(files_open(&r.f, "{}", 1, false, NULL, &err));
  EXPECT_INT(step_of(name), 1);
  r.f.log.people = fopen("/dev/null", "w");
  free(name);
  close_run(&r);
}
