// A run's folder as its page: of logs alone, with sessions and evaluations, and of folders that are none.
#include <unistd.h>
#include "base/alloc.h"
#include "base/lock.h"
#include "base/run_folder.h"
#include "page/page_draw.h"
#include "page/page_read.h"
#include "test/harness/command.h"
#include "test/harness/html.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static const char *in_folder(const char *folder, const char *file) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  return path;
}

// A folder with these files; NULL: there is none. Static until the next call.
static const char *folder_of(const char *name, const char *log, const char *session, const char *evaluation) {
  static char folder[2048];
  Err err;
  snprintf(folder, sizeof folder, "%s/%s", test_tmp(), name);
  EXPECT(dirs_make(in_folder(folder, "report"), &err));
  if (log) write_text(in_folder(folder, "log.jsonl"), log);
  if (session) write_text(in_folder(folder, RUN_RECORD), session);
  if (evaluation) write_text(in_folder(folder, RUN_EVALUATION), evaluation);
  return folder;
}

static const char *fact(const RunPage *p, const char *name) {
  for (int i = 0; i < p->facts.n; i++)
    if (!strcmp(p->facts.item[i].name, name)) return p->facts.item[i].value;
  return "";
}

static const char log_text[] =
    "{\"step\":1,\"kind\":\"train\",\"loss\":4,\"img_s\":10,\"wait\":0.1,\"seconds\":5}\n"
    "{\"step\":2,\"kind\":\"train\",\"loss\":2,\"img_s\":12,\"wait\":0.1,\"skipped\":1,\"seconds\":9}\n"
    "{\"step\":2,\"kind\":\"eval\",\"bbox_AP\":0.5,\"images\":3}\n"
    "{\"step\":2,\"kind\":\"amend\",\"changes\":{\"lr\":[0.1,0.01]}}\n"
    "{\"step\":3,\"kind\":\"train\",\"loss\":1,\"img_s\":14,\"wait\":0.1,\"skipped\":2,\"seconds\":4}\n"
    "{\"step\":3,\"kind\":\"eval\",\"bbox_AP\":0.25,\"images\":3}\n"
    "{\"step\":4,\"kind\":\"tra";

static const char session_text[] =
    "{\"state\":\"running\",\"model\":\"tiny\",\"data\":\"/d\",\"images\":7,\"val_images\":3,\"batch\":2,\"world\":4,"
    "\"steps\":10,\"per_epoch\":2,\"date\":\"2026\",\"machine\":{\"cpu\":\"x\",\"gpu\":null,\"cores\":2},"
    "\"settings\":{\"lr\":\"0.1\",\"exif\":{\"value\":false,\"from\":\"default\"},\"flip\":{\"value\":0.5,"
    "\"from\":\"data\"}},\"warnings\":[{\"text\":\"training: 3 boxes\"}],\"panels\":[{\"title\":\"AP\","
    "\"unit\":\"AP\",\"metrics\":true,\"curves\":[{\"key\":\"bbox_AP\",\"label\":\"box AP\"}]},{\"title\":\"Losses\","
    "\"unit\":\"loss\",\"log\":true,\"curves\":[{\"key\":\"loss\",\"label\":\"total\"}]}],\"timed_steps\":4,"
    "\"parts\":[{\"name\":\"fpn\",\"forward\":0.5,\"backward\":null}],\"memory\":[{\"name\":\"activations\","
    "\"place\":\"device\",\"bytes\":1e6}],\"of another version\":[{}]}";

// Its program cannot have written how it ended.
TEST(page_read_of_a_run_that_was_killed) {
  RunPage p = {0};
  Err err;
  const char *folder = folder_of("killed", log_text, session_text, NULL);
  if (!EXPECT(page_read(&p, folder, NULL, &err))) printf("    %s\n", err.msg);
  EXPECT_STR(p.state, "ended without a message: it was killed, or its machine failed");
  run_page_free(&p);
}

// A run of two sessions, amended between them.
TEST(page_read_of_a_run) {
  RunPage p = {0};
  Err err;
  char *with_slash = xasprintf("%s/", folder_of("read", log_text, session_text, NULL));
  CHECK(folder_lock(with_slash, &err)); // as the run's program has it
  if (!EXPECT(page_read(&p, with_slash, NULL, &err))) printf("    %s\n", err.msg);
  EXPECT_STR(p.name, "read");
  EXPECT_STR(p.state, "running");
  EXPECT_STR(fact(&p, "step"), "3 of 10");
  EXPECT_STR(fact(&p, "epoch"), "1.5");
  EXPECT_STR(fact(&p, "images a step"), "8, of 4 ranks");
  EXPECT_STR(fact(&p, "box AP"), "0.250 (0.500 at step 2)");
  EXPECT_STR(fact(&p, "time"), "0:00:13"); // 9 s of the first session, 4 of the second
  EXPECT_INT(p.warnings, 3);
  EXPECT_STR(p.warning[0], "training: 3 boxes");
  EXPECT(strstr(p.warning[1], "2 steps were skipped"));
  EXPECT_STR(p.warning[2], "amended at step 2: {\"lr\":[0.1,0.01]}");
  static const char *const settings[][2] = {{"lr", "0.1"}, {"exif", "false"}, {"flip", "0.5"}};
  for (int i = 0; i < COUNT(settings) && EXPECT_INT(p.settings.n, COUNT(settings)); i++) {
    EXPECT_STR(p.settings.item[i].name, settings[i][0]);
    EXPECT_STR(p.settings.item[i].value, settings[i][1]);
  }
  EXPECT(p.machine.n == 3 && p.parts == 1 && p.part[0].forward == 0.5 && isnan(p.part[0].backward) && p.memories == 1);
  EXPECT(p.panels.n == 3 && p.panels.item[1].log_y && p.panels.item[1].curve[0].n == 3);
  const PageCurve *by_time = &p.panels.item[2].curve[0];
  EXPECT(by_time->n == 3 && by_time->x[1] == 9 && by_time->x[2] == 13 && by_time->y[2] == 1);
  EXPECT_INT(p.evaluation.step, -1);
  run_page_free(&p);
  free(with_slash);
}

// An evaluation whose record is not in the log yet is a point of the curves, and one that is is no second one.
TEST(page_read_has_the_latest_evaluation) {
  static const char *const evaluations[] = {"{\"step\":3,\"metrics\":{\"bbox_AP\":\"0.25\"}}",
                                            "{\"step\":5,\"metrics\":{\"bbox_AP\":\"0.75\"}}"};
  for (int i = 0; i < 2; i++) {
    RunPage p = {0};
    Err err;
    EXPECT(page_read(&p, folder_of("latest", log_text, session_text, evaluations[i]), "named", &err));
    const PageCurve *c = &p.panels.item[0].curve[0];
    EXPECT(c->n == 2 + i && c->x[c->n - 1] == (i ? 5 : 3) && c->y[c->n - 1] == (i ? 0.75 : 0.25));
    EXPECT_STR(p.name, "named");
    run_page_free(&p);
  }
}

// A folder of a run that knew of no page.
TEST(page_read_of_a_log_alone) {
  Err err;
  const char *folder = folder_of("log-alone", log_text, NULL, NULL);
  EXPECT(page_draw(folder, &err));
  char *text = file_read(in_folder(folder, PAGE_FILE), &(size_t){0}, &err);
  EXPECT(text && html_well_formed(text) && strstr(text, "box AP") && strstr(text, "None is kept so far."));
  free(text);
}

// Older versions had the session and the evaluation below report/, and of classifiers a run.json of another kind.
TEST(page_read_of_an_older_folder) {
  RunPage p = {0};
  Err err;
  char *folder = xstrdup(folder_of("older", log_text, "{\"model\":\"vgg-28\",\"data\":\"/x\"}", NULL));
  write_text(in_folder(folder, OLD_SESSION), session_text);
  write_text(in_folder(folder, OLD_EVALUATION), "{\"step\":3,\"images\":5,\"pictures\":"
                                                "[[\"g\",\"f\",\"c\",\"data:image/jpeg;base64,AA==\",null]]}");
  if (!EXPECT(page_read(&p, folder, NULL, &err))) printf("    %s\n", err.msg);
  EXPECT_STR(fact(&p, "model"), "tiny");
  EXPECT(p.evaluation.step == 3 && p.evaluation.images == 5 && p.evaluation.pictures == 1 && p.metrics == 0);
  run_page_free(&p);
  free(folder);
}

TEST(page_read_names_what_is_wrong) {
  const struct {
    const char *name, *log, *session, *evaluation, *says;
  } cases[] = {{"no-log", NULL, session_text, NULL, "no-log/log.jsonl: no such file: expected the folder of a run"},
               {"bad-log", "{\"step\":1,\n{\"step\":2}\n", NULL, NULL, "bad-log/log.jsonl:1:"},
               {"bad-session", log_text, "{\"state\":", NULL, "bad-session/run.json:1:"},
               {"bad-evaluation", log_text, NULL, "{}}", "bad-evaluation/evaluation.json:1:"}};
  for (int i = 0; i < COUNT(cases); i++) {
    RunPage p = {0};
    Err err = {""};
    const char *folder = folder_of(cases[i].name, cases[i].log, cases[i].session, cases[i].evaluation);
    EXPECT(!page_read(&p, folder, NULL, &err));
    if (!EXPECT(strstr(err.msg, cases[i].says) && !strchr(err.msg, '\n'))) printf("    %s\n", err.msg);
    run_page_free(&p);
  }
}
