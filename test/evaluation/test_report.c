// Catches evaluation files that differ from their documented format, and the wrong pictures kept.
#include <math.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/run_folder.h"
#include "evaluation/report.h"
#include "test/harness/command.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static Jpeg jpeg_of(char byte) {
  Jpeg j = {.bytes = xmalloc(1), .size = 1};
  j.bytes[0] = (uint8_t)byte;
  return j;
}

static void fill(EvaluationReport *r) {
  *r = (EvaluationReport){
      .rule = xstrdup("a \"rule\""), .column = {xstrdup("objects"), xstrdup("AP")}, .columns = 2, .categories = 1};
  r->category = xcalloc(1, sizeof *r->category);
  r->category[0] = (ReportCategory){.name = xstrdup("<cat>\n"), .value = {3, NAN}};
  ReportCharts *of[] = {&r->charts, &r->category_charts};
  for (int i = 0; i < 2; i++) {
    const ReportCurve *c = report_curve_add(report_chart_add(of[i], i ? "cat" : "Boxes"), "IoU 0.5", 2);
    c->y[0] = 1.0 / 3;
    c->x[1] = 0.1;
    c->y[1] = NAN;
  }
  int64_t *count = xcalloc(1, sizeof *count), *cell = xcalloc(1, sizeof *cell);
  const char **name = xcalloc(2, sizeof *name);
  cell[0] = 1;
  count[0] = 7;
  name[0] = xstrdup("<cat>\n");
  name[1] = xstrdup("background");
  r->confusion = (Confusion){.classes = 2, .cells = 1, .cell = cell, .count = count, .name = name, .background = true};
  r->scores = (ReportScores){.n = 3, .score = {0.05, 0.5, 0.95}, .least = 0.5, .opens_at = NAN, .highest = 0.75};
  r->scores.counts = (ConfusionCounts){.scores = 3,
                                       .cells = 4,
                                       .cell = xcalloc(4, sizeof *r->scores.counts.cell),
                                       .count = xcalloc(12, sizeof *r->scores.counts.count)};
  for (int i = 0; i < 4; i++) r->scores.counts.cell[i] = i;
  r->scores.counts.count[3] = 9;
  r->scores.counts.count[4] = 7;
  r->scores.counts.count[11] = 1;
  r->pictures = 1;
  r->picture = xcalloc(1, sizeof *r->picture);
  r->picture[0] =
      (ReportPicture){.group = "worst", .file = xstrdup("a.png"), .caption = xstrdup("c"), .truth = jpeg_of(0)};
}

static bool write_report(const char *folder, int64_t step, const EvaluationReport *r, Err *err) {
  char stem[32];
  Metrics before = {0}, scores = {.images = 9, .left_out = 2};
  Record head = {0};
  record_begin(&head);
  record_int(&head, "step", step);
  metrics_add(&before, "val_loss", 0.5);
  metrics_add(&scores, "segm_AP", 0.125);
  metrics_add(&scores, "segm_AP_large", NAN);
  snprintf(stem, sizeof stem, "step-%lld", (long long)step);
  const ReportFile file = {folder, RUN_EVALUATION, "step-", stem, &head, &before, &scores};
  const bool ok = report_write(&file, r, err);
  record_free(&head);
  return ok;
}

static const char *below(const char *folder, const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

// What the page reads, member by member.
TEST(report_is_written_as_described) {
  static const char *const has[] = {
      "{\"step\":1099511627776,\"images\":9,\"left_out\":2,\"rule\":\"a \\\"rule\\\"\"",
      "\"columns\":[\"objects\",\"AP\"],\n\"categories\":[[\"<cat>\\u000a\",3,null]]",
      ("\"panels\":[{\"title\":\"Boxes\",\"x\":\"recall\",\"unit\":\"precision\",\"curves\":[[\"IoU 0.5\",[0,0.1],"
       "[0.3333333333333333,null]]]}]"),
      "\"category_panels\":[{\"title\":\"cat\",",
      "\"pictures\":[[\"worst\",\"a.png\",\"c\",\"pictures/step-1099511627776-01-truth.jpg\",null]]"};
  EvaluationReport was = {0};
  Err err;
  char *folder = xstrdup(in_tmp("report"));
  CHECK(dirs_make(folder, &err));
  fill(&was);
  EXPECT(write_report(folder, 1LL << 40, &was, &err));
  EXPECT(report_step(below(folder, RUN_EVALUATION)) == 1LL << 40);
  char *text = file_read(below(folder, RUN_EVALUATION), &(size_t){0}, NULL);
  CHECK(text);
  for (int i = 0; i < COUNT(has); i++)
    if (!EXPECT(strstr(text, has[i]))) printf("    %s\n    %s\n", has[i], text);
  EXPECT(path_is_file(below(folder, "pictures/step-1099511627776-01-truth.jpg")));
  free(text);
  report_free(&was);
  free(folder);
}

// Of a detector with counts at each score, of a classifier without; what is 0 takes no room.
TEST(report_has_the_confusion_at_each_score) {
  static const char *const has[] = {
      "\"metrics\":{\"val_loss\":0.5,\"segm_AP\":0.125,\"segm_AP_large\":null}",
      "\"confusion\":{\"background\":true,\"names\":[\"<cat>\\u000a\",\"background\"],\"scores\":[0.05,0.5,0.95],"
      "\"report_score\":0.5,\"opens_at\":null,\"highest_score\":0.75,\"objects\":[7],"
      "\"cells\":[[0,1,[9,7]],[1,1,[0,0,1]]]}"};
  EvaluationReport r = {0};
  Err err;
  char *folder = xstrdup(in_tmp("report-scores")), *text = NULL;
  CHECK(dirs_make(folder, &err));
  fill(&r);
  for (int one = 0; one < 2; one++) {
    if (one) r.scores.n = 0; // of a classifier
    EXPECT(write_report(folder, 1, &r, &err));
    text = file_read(below(folder, RUN_EVALUATION), &(size_t){0}, NULL);
    for (int i = 0; i < COUNT(has) - one; i++) EXPECT(text && strstr(text, has[i]));
    EXPECT(!one == !strstr(text, "\"names\":[\"<cat>\\u000a\",\"background\"],\"cells\":[[0,1,7]]}"));
    free(text);
  }
  report_free(&r);
  free(folder);
}

// Pictures of the evaluation before go, what is not ours stays.
TEST(report_keeps_the_last_pictures) {
  static const char *const kept[] = {"pictures/step-20-01-truth.jpg", "pictures/step-own.jpg",
                                     "pictures/scores-01-truth.jpg"};
  EvaluationReport r = {0};
  Err err;
  char *folder = xstrdup(in_tmp("report-pictures"));
  CHECK(dirs_make(below(folder, "pictures"), &err));
  for (int i = 1; i < COUNT(kept); i++) write_text(below(folder, kept[i]), "kept");
  fill(&r);
  EXPECT(write_report(folder, 10, &r, &err) && path_is_file(below(folder, "pictures/step-10-01-truth.jpg")));
  EXPECT(write_report(folder, 20, &r, &err) && !path_is_file(below(folder, "pictures/step-10-01-truth.jpg")));
  for (int i = 0; i < COUNT(kept); i++) EXPECT(path_is_file(below(folder, kept[i])));
  EXPECT(write_report(folder, 30, &r, &err));
  report_remove(folder, RUN_EVALUATION, "step-");
  EXPECT_INT(report_step(below(folder, RUN_EVALUATION)), -1);
  EXPECT(!path_is_file(below(folder, "pictures/step-30-01-truth.jpg")) && path_is_file(below(folder, kept[1])));
  report_free(&r);
  free(folder);
}
