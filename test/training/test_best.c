// Catches best weights kept for the wrong evaluation, or lost by a kill.
#include <unistd.h>
#include "test/harness/child.h"
#include "test/harness/run_fixture.h"

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
