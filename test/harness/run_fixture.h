// A run's folder with a small model, for tests of its files: steps, checkpoints, and evaluations with given scores.
#pragma once
#include <math.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "test/harness/small_engine.h"
#include "test/harness/test.h"
#include "training/run_files.h"

typedef struct Run {
  Engine e;
  RunFiles f;
  char *folder;
} Run;

static inline void open_scored_run(Run *r, const char *name, const Task *task) {
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

static inline void open_run(Run *r, const char *name) { open_scored_run(r, name, NULL); }

static inline void close_run(Run *r) {
  Err err;
  fclose(r->f.log.people);
  r->f.log.people = stderr;
  EXPECT(log_close(&r->f.log, &err));
  files_free(&r->f);
  engine_close(&r->e);
  free(r->folder);
}

// The same folder in another session.
static inline void reopen(Run *r, int first, bool rolled_back, const Task *task) {
  Err err;
  FILE *people = r->f.log.people;
  EXPECT(log_close(&r->f.log, &err));
  files_free(&r->f);
  r->f = (RunFiles){0};
  files_name(&r->f, r->folder);
  EXPECT(files_open(&r->f, "{}", first, rolled_back, task, &err));
  r->f.log.people = people;
}

static inline void make_step(Run *r, int step) {
  StepResult s = small_step(&r->e, step);
  files_record_step(&r->f, &r->e, step + 1, 0.01, &s);
}

static inline long step_of(const char *path) {
  Checkpoint c;
  RunState state = {.step = -1};
  if (!ckpt_open(&c, path, NULL)) return -1;
  EXPECT(state_resume(&c, &state, NULL));
  long step = state.step;
  ckpt_close(&c);
  return step;
}

typedef struct Scores { // results
  double box, mask;
  ScoredSet of;
} Scores;

static inline bool score(const Dataset *d, void *results, Metrics *out, Err *err) {
  (void)d;
  (void)err;
  const Scores *found = results;
  *out = (Metrics){.set = found->of.set, .images = found->of.images, .left_out = found->of.left_out};
  metrics_add(out, "box", found->box);
  metrics_add(out, "mask", found->mask);
  return true;
}
static const Task scored = {.best = {{"box", "best-box"}, {"mask", "best-mask"}}, .score = score, .release = free};

static inline void evaluate_scores(Run *r, int step, Scores scores) {
  static const Dataset none;
  Err err;
  Scores *found = xmalloc(sizeof *found);
  *found = scores;
  make_step(r, step - 1);
  EXPECT(files_save(&r->f, &r->e, step, true, &err));
  EXPECT(files_score(&r->f, &scored, &none, found, 1, step, now_seconds(), NULL, &err));
}

static inline void evaluate(Run *r, int step, double box, double mask) {
  evaluate_scores(r, step, (Scores){box, mask, {0}});
}
static inline void evaluate_on(Run *r, int step, double box, ScoredSet of) {
  evaluate_scores(r, step, (Scores){box, NAN, of});
}

static inline long best_step(const Run *r, const char *name) {
  char *path = xasprintf("%s/best-%s.safetensors", r->folder, name);
  long step = step_of(path);
  free(path);
  return step;
}
