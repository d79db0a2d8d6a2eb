// Errors of expressions, by hand.
#include "lab/study/figures.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char plan_text[] = "title: T\n[given]\nprice: 3\n[setting n]\nvalues: 1, 2\n[command c]\nrun: {n}\n"
                                "[measure a]\nread: a\n[measure b]\nread: b\n"
                                "[measure sum]\nvalue: a + b\n"
                                "[measure part]\nvalue: a / (a + b)\n"
                                "[measure cost]\nvalue: -price * a * n + 0 * b\n"
                                "[measure gain]\nvalue: a / a[n=1]\n"
                                "[measure nothing]\nvalue: (a + b) / 3 - a / 3 - b / 3\n"
                                "[measure far]\nvalue: 1 + a / (b - b)\n"
                                "[measure spread]\nvalue: (max(a) - min(a)) / runs(a)\n";

static void add_line(FILE *f, int n, int repeat, double a, double b) {
  fprintf(f,
          "{\"kind\":\"run\",\"command\":\"c\",\"settings\":{\"n\":\"%d\"},\"repeat\":%d,\"state\":\"ok\","
          "\"seconds\":1,\"ran\":\"%d\",\"records\":[{\"a\":%g,\"b\":%g}]}\n",
          n, repeat, n, a, b);
}

typedef struct Fixture {
  StudyPlan plan;
  StudyRows rows;
  StudyData data;
} Fixture;

// a of n=1: 1, 2, 3; b is 10 - a, so that their sum is 10 in each run. Of n=2 there is one run.
static bool open_fixture(Fixture *x) {
  Err err;
  const char *plan = in_tmp("unit.plan"), *results = in_tmp("unit.jsonl");
  FILE *f = fopen(plan, "w");
  CHECK(f);
  fputs(plan_text, f);
  fclose(f);
  f = fopen(results, "w");
  CHECK(f);
  for (int i = 1; i <= 3; i++) add_line(f, 1, i, i, 10 - i);
  add_line(f, 2, 1, 8, 1);
  fclose(f);
  *x = (Fixture){0};
  bool ok = study_plan_read(&x->plan, plan, NULL, &err) && study_rows_read(&x->rows, &x->plan, results, &err);
  if (!EXPECT(ok)) printf("%s\n", err.msg);
  if (ok) x->data = study_data(&x->plan, &x->rows, NULL);
  return ok;
}

static void expect_figure(Fixture *x, int cell, const char *measure, double value, double error) {
  StudyFigure f = study_figure(&x->data, cell, study_measure_find(&x->plan, measure));
  const double got = study_error(&x->data, &f);
  // Sums of a few numbers of about 10: rounding is below 1e-14 of them.
  if (!EXPECT_NEAR(f.value, value, 1e-13)) printf("%s\n", measure);
  if (!(isnan(error) ? EXPECT(isnan(got)) : EXPECT_NEAR(got, error, 1e-13))) printf("error of %s\n", measure);
  study_figure_free(&f);
}

TEST(figures_have_errors_to_first_order) {
  Fixture x;
  if (!open_fixture(&x)) return;
  const double error = 1 / sqrt(3); // of 1, 2, 3: the standard deviation is 1
  expect_figure(&x, 0, "a", 2, error);
  expect_figure(&x, 0, "b", 8, error);
  expect_figure(&x, 0, "sum", 10, 0);            // what one gains the other loses
  expect_figure(&x, 0, "part", 0.2, error / 10); // the denominator is the same in each run
  expect_figure(&x, 0, "cost", -6, 3 * error);
  expect_figure(&x, 0, "gain", 1, 0);
  StudyFigure nothing = study_figure(&x.data, 0, study_measure_find(&x.plan, "nothing"));
  EXPECT(nothing.value == 0 && study_error(&x.data, &nothing) == 0); // what rounding leaves is not told
  study_figure_free(&nothing);
  StudyFigure far = study_figure(&x.data, 0, study_measure_find(&x.plan, "far"));
  EXPECT(isnan(far.value)); // a division by zero is no figure
  study_figure_free(&far);
  expect_figure(&x, 0, "spread", 2.0 / 3, NAN); // of no mean
  expect_figure(&x, 1, "a", 8, NAN);            // one run
  expect_figure(&x, 1, "gain", 4, NAN);
  expect_figure(&x, 1, "cost", -48, NAN);
  StudyFigure a = study_figure(&x.data, 0, 0), b = study_figure(&x.data, 0, 1);
  StudyFigure difference = study_difference(&x.data, &a, &b);
  EXPECT_NEAR(difference.value, -6, 1e-13);
  EXPECT_NEAR(study_error(&x.data, &difference), 2 * error, 1e-13); // they move against each other
  study_figure_free(&a);
  study_figure_free(&b);
  study_figure_free(&difference);
  study_data_free(&x.data);
  study_rows_free(&x.rows);
  study_plan_free(&x.plan);
}
