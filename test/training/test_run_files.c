// Catches checkpoints deleted too early, written before their log, or kept for the wrong evaluation.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/run_folder.h"
#include "test/harness/child.h"
#include "test/harness/command.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"
#include "training/numbered.h"
#include "training/run_files.h"

typedef struct Run {
  Engine e;
  RunFiles f;
  char *folder;
} Run;

static void open_scored_run(Run *r, const char *name, const Task *task) {
  Err err;
  ModelConfig config = small_config(NORM_GN, CLASSES);
  *r = (Run){.folder = xasprintf("%s/%s", test_tmp(), name)};
  small_engine(&r->e, &config);
  params_randomise(&r->e.params, 1);
  files_name(&r->f, r->folder);
  CHECK(files_lock(&r->f, false, false, &err) && files_open(&r->f, "{}", -1, false, task, &err));
  EXPECT_STR(r->f.kept, "there is no checkpoint yet");
  r->f.log.people = fopen("/dev/null", "w");
}

static void open_run(Run *r, const char *name) { open_scored_run(r, name, NULL); }

static void close_run(Run *r) {
  Err err;
  fclose(r->f.log.people);
  r->f.log.people = stderr;
  EXPECT(log_close(&r->f.log, &err));
  files_free(&r->f);
  engine_close(&r->e);
  free(r->folder);
}

// The same folder in another session.
static void reopen(Run *r, int first, bool rolled_back, const Task *task) {
  Err err;
  FILE *people = r->f.log.people;
  EXPECT(log_close(&r->f.log, &err));
  files_free(&r->f);
  r->f = (RunFiles){0};
  files_name(&r->f, r->folder);
  EXPECT(files_open(&r->f, "{}", first, rolled_back, task, &err));
  r->f.log.people = people;
}

static void make_step(Run *r, int step) {
  StepResult s = small_step(&r->e, step);
  files_record_step(&r->f, &r->e, step + 1, 0.01, &s);
}

static long step_of(const char *path) {
  Checkpoint c;
  RunState state = {.step = -1};
  if (!ckpt_open(&c, path, NULL)) return -1;
  EXPECT(state_resume(&c, &state, NULL));
  long step = state.step;
  ckpt_close(&c);
  return step;
}

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

// In place of the C library's, so that the log can be kept from growing and a file from being replaced.
static bool no_room;
static _Atomic(const char *) refused; // the file; NULL = none
static atomic_int refusals;
int rename(const char *from, const char *to) {
  const char *path = refused;
  if (!path || strcmp(path, to)) return renameat(AT_FDCWD, from, AT_FDCWD, to);
  refusals++;
  errno = ENOSPC;
  return -1;
}
ssize_t pwrite(int file, const void *bytes, size_t n, off_t at) {
  if (!no_room) return syscall(SYS_pwrite64, file, bytes, n, at);
  errno = ENOSPC;
  return -1;
}

// A checkpoint waits for records that cannot be written at the moment, and steps do not wait for it.
TEST(files_wait_for_room_for_the_log) {
  Run r;
  Err err;
  open_run(&r, "log-without-room");
  no_room = true;
  make_step(&r, 0);
  EXPECT(files_save(&r.f, &r.e, 1, false, &err));
  EXPECT(files_poll(&r.f, &err) && r.f.saver.under_way && !r.f.saver.writing);
  no_room = false;
  EXPECT(files_settle(&r.f, &err));
  EXPECT_INT(step_of(r.f.checkpoint), 1);
  char *log = xasprintf("%s/log.jsonl", r.folder), *text = file_read(log, &(size_t){0}, NULL);
  EXPECT(text && !strncmp(text, "{\"step\":1,", 10) && strchr(text, '\n'));
  free(text);
  free(log);
  close_run(&r);
}

// A checkpoint that is there, and whose further name has to wait, is not the one before it.
TEST(files_wait_for_room_for_a_further_name) {
  Run r;
  Err err;
  open_run(&r, "name-without-room");
  char *said = xasprintf("%s/said-nameless", test_tmp()), *second = numbered_name(r.folder, 2);
  r.f.keep = 2;
  make_step(&r, 0);
  EXPECT(files_save(&r.f, &r.e, 1, false, &err) && files_settle(&r.f, &err));
  int kept = quiet_begin(said);
  refused = second;
  refusals = 0;
  make_step(&r, 1);
  EXPECT(files_save(&r.f, &r.e, 2, false, &err));
  while (!refusals && !saver_ready(&r.f.saver)) usleep(1000);
  EXPECT(!path_is_file(second));
  refused = NULL;
  EXPECT(files_settle(&r.f, &err));
  quiet_end(kept);
  EXPECT_INT(step_of(second), 2);
  EXPECT_INT(step_of(r.f.checkpoint), 2);
  EXPECT_INT(step_of(r.f.previous), 1);
  free(said);
  free(second);
  close_run(&r);
}

// ---- scores that take their time --------------------------------------------------------------------------------

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

// ---- the best ---------------------------------------------------------------------------------------------------

typedef struct Scores { // results
  double box, mask;
  ScoredSet of;
} Scores;

static bool score(const Dataset *d, void *results, Metrics *out, Err *err) {
  (void)d;
  (void)err;
  const Scores *found = results;
  *out = (Metrics){.set = found->of.set, .images = found->of.images, .left_out = found->of.left_out};
  metrics_add(out, "box", found->box);
  metrics_add(out, "mask", found->mask);
  return true;
}
static const Task scored = {.best = {{"box", "best-box"}, {"mask", "best-mask"}}, .score = score, .release = free};

static void evaluate_scores(Run *r, int step, Scores scores) {
  static const Dataset none;
  Err err;
  Scores *found = xmalloc(sizeof *found);
  *found = scores;
  make_step(r, step - 1);
  EXPECT(files_save(&r->f, &r->e, step, true, &err));
  EXPECT(files_score(&r->f, &scored, &none, found, 1, step, now_seconds(), NULL, &err));
}

static void evaluate(Run *r, int step, double box, double mask) { evaluate_scores(r, step, (Scores){box, mask, {0}}); }
static void evaluate_on(Run *r, int step, double box, ScoredSet of) {
  evaluate_scores(r, step, (Scores){box, NAN, of});
}

static long best_step(const Run *r, const char *name) {
  char *path = xasprintf("%s/best-%s.safetensors", r->folder, name);
  long step = step_of(path);
  free(path);
  return step;
}

TEST(files_keep_the_best) {
  Run r;
  Err err;
  open_scored_run(&r, "best-of-files", &scored);
  evaluate(&r, 1, 0.2, 0.4);
  evaluate(&r, 2, 0.3, 0.3);
  evaluate(&r, 3, 0.3, 0.1); // no gain
  evaluate(&r, 4, NAN, NAN); // undefined: not counted
  EXPECT(files_settle(&r.f, &err));
  EXPECT_INT(best_step(&r, "box"), 2);
  EXPECT_INT(best_step(&r, "mask"), 1);
  EXPECT_INT(r.f.best.without_gain, 1);
  EXPECT(!path_is_file(r.f.evaluated));
  reopen(&r, 4, false, &scored);
  EXPECT_INT(r.f.best.without_gain, 1);
  // A run that goes on from step 1 has its own course, and leaves what was better before.
  reopen(&r, 1, true, &scored);
  RunFiles *f = &r.f;
  EXPECT_INT(f->best.without_gain, 0);
  evaluate(&r, 2, 0.25, 0.5);
  EXPECT(files_settle(f, &err));
  EXPECT_INT(f->best.without_gain, 0); // 0.25 is one to this course
  EXPECT_INT(best_step(&r, "mask"), 2);
  char *name = xasprintf("%s/best.json", r.folder), *text = file_read(name, &(size_t){0}, NULL);
  EXPECT_STR(text, "{\"best-box\":{\"box\":0.3,\"step\":2},\"best-mask\":{\"mask\":0.5,\"step\":2}}\n");
  free(text);
  free(name);
  // One whose file was removed is made again, where a checkpoint has it; else it begins anew.
  name = xasprintf("%s/best-box.safetensors", r.folder);
  for (int has = 1; has >= 0; has--) {
    CHECK(!unlink(name));
    if (!has) CHECK(!unlink(f->checkpoint) && !unlink(f->previous));
    reopen(&r, 2, false, &scored);
    EXPECT_INT(best_step(&r, "box"), has ? 2 : -1);
  }
  evaluate(&r, 3, 0.1, 0.1);
  EXPECT(files_settle(f, &err));
  EXPECT_INT(best_step(&r, "box"), 3);
  EXPECT_INT(best_step(&r, "mask"), 2);
  free(name);
  close_run(&r);
}

static char *best_record(const Run *r) {
  char *name = xasprintf("%s/best.json", r->folder), *text = file_read(name, &(size_t){0}, NULL);
  free(name);
  return text ? text : xstrdup("");
}

static void write_best_record(const Run *r, const char *text) {
  char *name = xasprintf("%s/best.json", r->folder);
  FILE *f = fopen(name, "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
  free(name);
}

// What a kill between the log, the weights and best.json leaves is put right; so is a damaged best.json.
TEST(files_repair_the_best) {
  static const char want[] = "{\"best-box\":{\"box\":0.3,\"step\":2},\"best-mask\":{\"mask\":0.4,\"step\":1}}\n";
  Run r;
  Err err;
  open_scored_run(&r, "best-repaired", &scored);
  char *file = xasprintf("%s/best-box.safetensors", r.folder);
  evaluate(&r, 1, 0.2, 0.4);
  EXPECT(files_settle(&r.f, &err));
  char *first = best_record(&r);
  evaluate(&r, 2, 0.3, 0.3);
  EXPECT(files_settle(&r.f, &err));
  const char *const left[] = {first, "", "{\"best-box\":{\"bo", NULL};
  for (int i = 0; i < COUNT(left); i++) {     // the weights are newer
    for (int older = 0; older < 2; older++) { // or are as old as best.json
      if (left[i]) write_best_record(&r, left[i]);
      if (older) CHECK(!unlink(file) && !link(r.f.previous, file));
      EXPECT_INT(best_step(&r, "box"), older ? 1 : 2);
      int kept = quiet_begin("/dev/null");
      reopen(&r, 2, false, &scored);
      quiet_end(kept);
      char *now = best_record(&r);
      EXPECT_STR(now, want);
      EXPECT(best_step(&r, "box") == 2 && best_step(&r, "mask") == 1);
      EXPECT(r.f.best.of[0].kept == 0.3 && r.f.best.of[1].kept == 0.4);
      free(now);
    }
  }
  free(first);
  free(file);
  close_run(&r);
}

// Damage of its first bytes, by which it is told from another program's file, too.
TEST(files_of_a_resumed_run_may_be_damaged) {
  char *folder = xasprintf("%s/best-damaged", test_tmp()), *best = xasprintf("%s/best.json", folder);
  RunFiles f = {0};
  Err err;
  CHECK(dirs_make(folder, &err));
  FILE *file = fopen(best, "w");
  CHECK(file && fputs("?\"best-box\":{\"box\":0.3,\"step\":2}}\n", file) >= 0 && !fclose(file));
  files_name(&f, folder);
  EXPECT(!files_lock(&f, false, false, &err) && strstr(err.msg, "/best.json exists and was not written by this "));
  EXPECT(files_lock(&f, true, false, &err));
  files_free(&f);
  free(best);
  free(folder);
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

// While a file cannot be read the best is of the others; once it can, of all. Other sets leave the best as it is.
TEST(files_keep_the_best_of_the_most_images) {
  Run r;
  Err err;
  open_scored_run(&r, "best-of-whole", &scored);
  evaluate_on(&r, 1, 0.5, (ScoredSet){7, 5, 1});
  evaluate_on(&r, 2, 0.4, (ScoredSet){8, 6, 0}); // less, but of all
  evaluate_on(&r, 3, 0.9, (ScoredSet){7, 5, 1});
  evaluate_on(&r, 4, 0.9, (ScoredSet){9, 2, 0});
  EXPECT(files_settle(&r.f, &err));
  EXPECT(best_step(&r, "box") == 2 && r.f.best.set.set == 8 && r.f.best.without_gain == 0);
  evaluate_on(&r, 5, 0.3, (ScoredSet){8, 6, 0});
  EXPECT(files_settle(&r.f, &err));
  EXPECT(best_step(&r, "box") == 2 && r.f.best.without_gain == 1);
  reopen(&r, 5, false, &scored);
  EXPECT(r.f.best.set.set == 8 && r.f.best.of[0].value == 0.4 && r.f.best.without_gain == 1);
  evaluate_on(&r, 6, 0.45, (ScoredSet){8, 6, 0});
  EXPECT(files_settle(&r.f, &err));
  EXPECT_INT(best_step(&r, "box"), 6);
  close_run(&r);
}

// What is undefined is no best, not even the first, and no reason to stop; -1 is what older logs have for it.
TEST(files_keep_nothing_without_a_score) {
  static const double undefined[] = {NAN, -1};
  for (int i = 0; i < COUNT(undefined); i++) {
    Run r;
    Err err;
    open_scored_run(&r, i ? "best-of-minus" : "best-of-nan", &scored);
    char *best = xasprintf("%s/best.json", r.folder);
    for (int step = 1; step <= 3; step++) evaluate(&r, step, undefined[i], undefined[i]);
    EXPECT(files_settle(&r.f, &err));
    EXPECT(!path_is_file(best) && best_step(&r, "box") == -1 && r.f.best.without_gain == 0);
    reopen(&r, 3, false, &scored);
    EXPECT_INT(r.f.best.without_gain, 0);
    evaluate(&r, 4, undefined[i], 0); // one metric suffices
    evaluate(&r, 5, undefined[i], 0);
    EXPECT(files_settle(&r.f, &err));
    EXPECT(best_step(&r, "box") == -1 && best_step(&r, "mask") == 4 && r.f.best.without_gain == 1);
    free(best);
    close_run(&r);
  }
}

// Evaluations up to the end of warmup make the best, but do not count as without a gain; of a resumed run neither.
TEST(files_count_no_evaluation_of_warmup) {
  Run r;
  Err err;
  open_scored_run(&r, "best-after-warmup", &scored);
  r.f.best.warmup = 3;
  evaluate(&r, 1, 0.2, 0.4);
  for (int step = 2; step <= 4; step++) {
    evaluate(&r, step, 0.1, 0.1);
    EXPECT(files_settle(&r.f, &err));
    EXPECT_INT(r.f.best.without_gain, step > 3);
  }
  EXPECT_INT(best_step(&r, "box"), 1);
  for (int warmup = 2; warmup <= 3; warmup++) {
    EXPECT(log_close(&r.f.log, &err));
    fclose(r.f.log.people);
    files_free(&r.f);
    r.f = (RunFiles){.warmup = warmup};
    files_name(&r.f, r.folder);
    EXPECT(files_open(&r.f, "{}", 4, false, &scored, &err));
    r.f.log.people = fopen("/dev/null", "w");
    EXPECT_INT(r.f.best.without_gain, 4 - warmup);
  }
  close_run(&r);
}

// Scores that are known before the state is written, for which there is no room yet.
TEST(files_keep_the_best_once_it_is_written) {
  Run r;
  Err err;
  open_scored_run(&r, "best-unwritten", &scored);
  char *best = xasprintf("%s/best-box.safetensors", r.folder), *said = xasprintf("%s/said-unwritten", test_tmp());
  int kept = quiet_begin(said);
  refused = r.f.checkpoint;
  evaluate(&r, 1, 0.2, 0.4);
  while (!scoring_ready(&r.f.scoring)) EXPECT(files_poll(&r.f, &err));
  EXPECT(files_poll(&r.f, &err) && r.f.saver.under_way && r.f.scoring.under_way && access(best, F_OK) != 0);
  refused = NULL;
  EXPECT(files_settle(&r.f, &err));
  quiet_end(kept);
  EXPECT_INT(best_step(&r, "box"), 1);
  free(best);
  free(said);
  close_run(&r);
}
