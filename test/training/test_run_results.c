// Catches times, speeds and metrics in run.json that are not those of the log.
#include "base/alloc.h"
#include "test/harness/test.h"
#include "training/run_results.h"

enum { STEPS = 80, PER_EPOCH = 20, RESUMED = 40 };
static bool has_scores = true;

// Every step takes a second, but for the one behind the first evaluation (9), step 30 (25), the first of the second
// session, which goes on behind step 40 (a half), and the last two, whose results are fetched early (a quarter each).
static void write_log(const char *folder, const char *amendment) {
  static const double ap[] = {0.125, 0.5, 0.25};
  char *path = xasprintf("%s/log.jsonl", folder);
  FILE *f = fopen(path, "w");
  CHECK(f);
  double clock = 0;
  for (int step = 1; step <= STEPS; step++) {
    if (step == RESUMED + 1) clock = -0.5;
    clock += step == PER_EPOCH + 1 ? 9 : step == 30 ? 25 : step > STEPS - 2 ? 0.25 : 1;
    fprintf(f, "{\"step\":%d,\"kind\":\"train\",\"loss\":%g,\"seconds\":%g", step, step / 64., clock);
    fprintf(f, step > RESUMED ? ",\"session\":%d}\n" : "}\n", RESUMED);
    if (step % PER_EPOCH == 0 && step < STEPS)
      fprintf(f,
              has_scores ? "{\"step\":%d,\"kind\":\"eval\",\"left_out\":0,\"AP\":%g}\n"
                         : "{\"step\":%d,\"kind\":\"eval\",\"left_out\":0,\"AP\":null}\n",
              step, ap[step / PER_EPOCH - 1]);
    if (step == RESUMED) fputs(amendment, f);
  }
  CHECK(!fclose(f));
  free(path);
}

static void expect_results(const char *phases, const char *amendment, int64_t step, const char *want) {
  static const Task task = {.curve = {{.metric = "AP"}}};
  const Model model = {.task = &task};
  TrainSpec o = {.out = (char *)test_tmp(), .batch = 4, .gpus = 2, .crop = 0.5f, .augment_after = phases ? 2 : 0};
  Err err = {""};
  if (phases) CHECK(phases_parse(&o.phase_list, phases, &err));
  const TrainingRun r = {.o = o,
                         .model = &model,
                         .steps = STEPS,
                         .per_epoch = PER_EPOCH,
                         .schedule = phases ? phases_schedule(&o.phase_list, 0.5, PER_EPOCH) : (Schedule){.base = 0.5}};
  Record j = {0};
  write_log(o.out, amendment);
  record_begin(&j);
  EXPECT(run_results_record(&j, &r, step, &err));
  EXPECT_STR(err.msg, "");
  EXPECT_STR(record_end(&j), want);
  record_free(&j);
}

// Rates are of steps that no evaluation is beside: the median of means, and of 35, which are few, their mean.
TEST(run_results_of_phases) {
  expect_results("2@0.5,2@0.125", "", STEPS,
                 "{\"AP\":0.25,\"best_AP\":0.5,\"best_AP_step\":40,\"seconds\":110,\"img_s\":8,\"phase\":["
                 "{\"epochs\":2,\"lr\":0.5,\"augment\":false,\"first_step\":1,\"steps\":40,\"seconds\":72,"
                 "\"img_s\":4.745762711864407,\"loss\":0.4765625,\"AP\":0.5},"
                 "{\"epochs\":2,\"lr\":0.125,\"augment\":true,\"first_step\":41,\"steps\":40,\"seconds\":38,"
                 "\"img_s\":8,\"loss\":1.1015625,\"AP\":0.25}]}");
}

// Evaluations without a score still affect step times, and there is no best.
TEST(run_results_without_a_score) {
  has_scores = false;
  expect_results(NULL, "", STEPS,
                 "{\"AP\":null,\"best_AP\":null,\"best_AP_step\":null,\"seconds\":110,\"img_s\":8,\"phase\":["
                 "{\"epochs\":4,\"lr\":0.5,\"augment\":true,\"first_step\":1,\"steps\":80,\"seconds\":110,"
                 "\"img_s\":8,\"loss\":1.1015625,\"AP\":null}]}");
  has_scores = true;
}

// As far as the run has come: a phase that has not begun is left out.
TEST(run_results_of_a_part) {
  expect_results("2@0.5,2@0.125", "", 30,
                 "{\"AP\":0.125,\"best_AP\":0.5,\"best_AP_step\":40,\"seconds\":62,\"img_s\":4.235294117647059,"
                 "\"phase\":[{\"epochs\":1.5,\"lr\":0.5,\"augment\":false,\"first_step\":1,\"steps\":30,"
                 "\"seconds\":62,\"img_s\":4.235294117647059,\"loss\":0.3203125,\"AP\":0.125}]}");
}

// Without --phases there is one, which is augmented when any option says so.
TEST(run_results_of_an_amended_run) {
  expect_results(NULL, "{\"step\":40,\"kind\":\"amend\",\"changes\":{\"lr\":[1,0.5]}}\n", 50,
                 "{\"AP\":0.5,\"best_AP\":0.5,\"best_AP_step\":40,\"seconds\":81.5,\"img_s\":8,\"phase\":["
                 "{\"epochs\":2.5,\"lr\":0.5,\"augment\":true,\"amended\":40,\"first_step\":1,\"steps\":50,"
                 "\"seconds\":81.5,\"img_s\":8,\"loss\":0.6328125,\"AP\":0.5}]}");
}
