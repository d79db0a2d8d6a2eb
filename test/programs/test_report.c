// Catches report pages that are missing, incomplete or of the wrong run.
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "page/page_draw.h"
#include "test/harness/command.h"
#include "test/harness/gpu.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

static char *read_tmp(const char *folder, const char *file) {
  char *name = xasprintf("%s/%s", folder, file), *text = file_read(in_tmp(name), &(size_t){0}, NULL);
  free(name);
  EXPECT(text);
  return text ? text : xstrdup("");
}

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *p = text; (p = strstr(p, part)); p += strlen(part)) n++;
  return n;
}

static char *page_of(const char *folder) {
  char *text = read_tmp(folder, PAGE_FILE);
  EXPECT(strstr(text, "Content-Security-Policy") && strstr(text, "</html>\n"));
  EXPECT_INT(count_of(text, "http:") + count_of(text, "https:"), 1); // the name of SVG
  return text;
}

static void expect_in(const char *text, const char *const *parts, int n) {
  for (int i = 0; i < n; i++)
    if (!EXPECT(strstr(text, parts[i]))) printf("    %s\n", parts[i]);
}

static long evaluations(const char *folder) {
  char *log = read_tmp(folder, "log.jsonl");
  const long n = count_of(log, "\"kind\":\"eval\"");
  free(log);
  return n;
}

// A run that is interrupted behind an evaluation has its page; resumed, it goes on with it, to that of a run that was
// never interrupted but for times.
TEST_TIER(report_follows_a_run, 1) {
  static const char *const first[] = {"\"state\":\"stopped\"",
                                      "\"evaluation\":{\"step\":3,",
                                      "\"disc\"",
                                      "\"x\":[1,2,3,4]",
                                      "\"pictures/step-00000003-01-truth.jpg\"",
                                      "\"locked\":true"};
  static const char *const last[] = {"\"state\":\"complete\"", "\"evaluation\":{\"step\":6,",
                                     "\"report-score\":", "\"x\":[1,2,3,4,5,6]", "\"memory\":[{"};
  const char *options = "--iters 6 --eval-every 3 --report-score 0.05";
  char *interrupted = xasprintf("%s --stop-after 4", options), *resumed = xasprintf("%s --resume", options);
  EXPECT_INT(train_shapes("", "report-page", interrupted), 0);
  char *before = page_of("report-page");
  expect_in(before, first, COUNT(first));
  EXPECT_INT(train_shapes("", "report-page", resumed), 0);
  char *after = page_of("report-page");
  expect_in(after, last, COUNT(last));
  EXPECT_INT(evaluations("report-page"), 2);
  free(before);
  free(after);
  free(interrupted);
  free(resumed);
}

// A session too short to be timed leaves what the one before has measured; and no page takes a checkpoint's place.
TEST_TIER(report_keeps_the_times_of_a_session, 1) {
  const char *said, *more = "--iters 30 --eval-every never --resume";
  EXPECT_INT(train_shapes("", "report-times", "--iters 30 --eval-every never"), 0);
  char *timed = page_of("report-times");
  EXPECT(strstr(timed, "\"parts\":[{\"name\":"));
  EXPECT_INT(train_shapes("", "report-times", more), 0);
  char *again = page_of("report-times");
  EXPECT(strstr(again, "\"parts\":[{\"name\":"));
  char *run = xstrdup(in_tmp("report-times"));
  EXPECT_INT(command(&said, "%s %s --out %s/checkpoint.safetensors", tool("report"), run, run), 2);
  EXPECT(strstr(said, "checkpoint.safetensors: the page is HTML; give a name that ends in .html"));
  free(run);
  free(timed);
  free(again);
}

// A run whose page cannot be drawn says so, and has all else.
TEST_TIER(report_that_cannot_be_drawn, 1) {
  const char *said;
  char *page = xasprintf("%s/" PAGE_FILE "/in-the-way", in_tmp("report-undrawn"));
  CHECK(dirs_make(page, NULL));
  EXPECT_INT(command(&said, "%s --model tiny --data %s --out %s --iters 2 --device cpu --threads 1", tool("train"),
                     shapes_set(), in_tmp("report-undrawn")),
             0);
  EXPECT(strstr(said, "warning: could not write the run's report: ") && strstr(said, PAGE_FILE));
  EXPECT(path_is_file(in_tmp("report-undrawn/run.json")) && path_is_file(in_tmp("report-undrawn/evaluation.json")));
  free(page);
}

// Several runs, of which one is gone again.
TEST_TIER(report_of_several_runs, 1) {
  const char *said;
  EXPECT_INT(train_shapes("", "report-one", "--iters 2 --eval-every never"), 0);
  EXPECT_INT(train_shapes("", "report-two", "--iters 2 --lr 0.02"), 0);
  char *one = xstrdup(in_tmp("report-one")), *two = xstrdup(in_tmp("report-two")), *out = xstrdup(in_tmp("both.html"));
  EXPECT_INT(command(&said, "%s %s slow=%s --out %s", tool("report"), one, two, out), 0);
  char *text = file_read(out, &(size_t){0}, NULL);
  EXPECT(text && count_of(text, "\"evaluation\":null") == 2 && strstr(text, "<title>2 runs</title>") &&
         strstr(text, "{\"name\":\"slow\""));
  free(text);
  EXPECT_INT(unlink(in_tmp("report-one/" PAGE_FILE)), 0);
  EXPECT_INT(command(&said, "%s %s", tool("report"), one), 0);
  free(page_of("report-one"));
  const struct {
    char *arguments;
    const char *says;
  } mistakes[] = {
      {xasprintf("%s %s-gone --out %s", one, two, out), "report-two-gone: no such folder"},
      {xasprintf("%s %s", one, two), "--out FILE.html is missing"},
      {xasprintf("%s --out %s/log.jsonl", one, one), "log.jsonl"},
      {xstrdup(""), "give 1 to 8 runs"},
  };
  for (int i = 0; i < COUNT(mistakes); i++) {
    const int status = command(&said, "%s %s", tool("report"), mistakes[i].arguments);
    if (!EXPECT(status == 2 && strstr(said, mistakes[i].says) && count_of(said, "\n") <= 1)) printf("    %s\n", said);
    free(mistakes[i].arguments);
  }
  free(one);
  free(two);
  free(out);
}

// A log by itself has a page; so has a folder without facts, and a note tells.
TEST_TIER(report_of_what_there_is, 1) {
  const char *said;
  char *empty = xstrdup(in_tmp("report-empty")), *log = xstrdup(in_tmp("some-log.jsonl")),
       *out = xstrdup(in_tmp("some.html"));
  CHECK(dirs_make(empty, NULL));
  FILE *f = fopen(log, "w");
  fputs("{\"step\":1,\"kind\":\"train\",\"loss\":2}\n", f);
  fclose(f);
  EXPECT_INT(command(&said, "%s a=%s %s --out %s", tool("report"), log, empty, out), 0);
  EXPECT(strstr(said, "report-empty: no log.jsonl, run.json or evaluation.json; is it the folder of a run?"));
  char *text = file_read(out, &(size_t){0}, NULL);
  EXPECT(text && strstr(text, "{\"name\":\"a\"") && strstr(text, "\"records\":1,"));
  free(text);
  free(empty);
  free(log);
  free(out);
}

// Steps in the middle of a session are timed node by node instead of replayed, and come to the same bits: sessions of
// eight steps are too short to be timed.
TEST_TIER(cuda_report_times_parts_of_the_step, 1) {
  static const char *const parts[] = {"\"backbone\"", "\"rpn\"", "\"optimizer step\"", "\"timed_steps\":3,"};
  if (!gpu_device()) return;
  EXPECT_INT(train_shapes("", "gpu-timed", "--device cuda --iters 16 --amp=bf16"), 0);
  EXPECT_INT(train_shapes("", "gpu-replayed", "--device cuda --iters 16 --amp=bf16 --stop-after 8"), 0);
  EXPECT_INT(train_shapes("", "gpu-replayed", "--device cuda --iters 16 --amp=bf16 --resume"), 0);
  char *timed = page_of("gpu-timed"), *replayed = page_of("gpu-replayed");
  expect_in(timed, parts, COUNT(parts));
  EXPECT(!strstr(replayed, "\"backbone\""));
  EXPECT(same_file(in_tmp("gpu-timed/model.safetensors"), in_tmp("gpu-replayed/model.safetensors")));
  free(timed);
  free(replayed);
}

TEST_TIER(report_of_an_older_run_names_the_version, 1) {
  const char *said;
  EXPECT_INT(command(&said, "mkdir -p %s/report && echo '{}' >%s/report/session.json", in_tmp("older-run"),
                     in_tmp("older-run")),
             0);
  EXPECT_INT(command(&said, "%s %s", tool("report"), in_tmp("older-run")), 2);
  EXPECT(strstr(said, "/older-run: a run of version 1.1 or older; version 1.2 draws its page\n"));
}

// TensorBoard's own reader finds every number of the log.
TEST_TIER(report_writes_event_files, 1) {
  const char *named = getenv("PYTHON"), *python = named && *named ? named : "python3", *said;
  EXPECT_INT(train_shapes("", "report-events", "--iters 4 --eval-every 2"), 0);
  char *run = xstrdup(in_tmp("report-events")), *events = xstrdup(in_tmp("events"));
  EXPECT_INT(command(&said, "%s first=%s --tensorboard %s", tool("report"), run, events), 0);
  EXPECT(strstr(said, "tensorboard --logdir"));
  EXPECT_INT(command(&said, "%s %s --tensorboard %s --single-file", tool("report"), run, events), 2);
  EXPECT(strstr(said, "--tensorboard writes no page"));
  EXPECT_INT(command(&said, "%s a=%s a=%s --tensorboard %s", tool("report"), run, run, events), 2);
  EXPECT(strstr(said, "two runs are called a"));
  if (command(NULL, "%s -c 'import tensorboard'", python))
    test_skip("tensorboard is not installed: pip install tensorboard, then PYTHON=... make test");
  else if (!EXPECT_INT(command(&said, "%s test/peers/read_events.py %s/log.jsonl %s/first", python, run, events), 0))
    printf("%s\n", said);
  free(run);
  free(events);
}
