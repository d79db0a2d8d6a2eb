// Catches a run's folder whose records, damaged or made by somebody else, crash a resume or break a page.
//
// Fuzzes what reads log.jsonl, run.json, evaluation.json, scores.json and best.json. Seeds: test/corpus/records: these
// texts in this order, with a NUL between each and the next.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/log_clock.h"
#include "base/log_kept.h"
#include "base/log_read.h"
#include "evaluation/evaluate.h"
#include "evaluation/report.h"
#include "evaluation/task.h"
#include "page/run_facts.h"
#include "training/best.h"
#include "training/targets.h"

static const char *const names[] = {"log.jsonl", "run.json", "evaluation.json", "scores.json", "best.json"};

static char *path_of(const char *folder, int i) { return xasprintf("%s/%s", folder, names[i]); }

static void remove_all(const char *folder) {
  static const char *const others[] = {"log-set-aside.jsonl", "log.jsonl.tmp", "log-set-aside.jsonl.tmp"};
  for (int i = 0; i < COUNT(names) + COUNT(others); i++) {
    char *path = i < COUNT(names) ? path_of(folder, i) : xasprintf("%s/%s", folder, others[i - COUNT(names)]);
    unlink(path);
    free(path);
  }
}

// The texts become files; one that is empty is none.
static void lay_out(const char *folder, const uint8_t *bytes, size_t size) {
  const uint8_t *end = bytes + size;
  for (int i = 0; i < COUNT(names) && bytes < end; i++) {
    const uint8_t *stop = memchr(bytes, 0, (size_t)(end - bytes));
    if (!stop) stop = end;
    char *path = path_of(folder, i);
    FILE *f = stop > bytes ? fopen(path, "wb") : NULL;
    if (f) CHECK(fwrite(bytes, 1, (size_t)(stop - bytes), f) == (size_t)(stop - bytes) && !fclose(f));
    free(path);
    bytes = stop + (stop < end);
  }
}

// What a page gets is JSON, and ends no element of it, whatever was in the folder.
static void draw(const char *folder) {
  char *text = NULL, *page = xasprintf("%s/report.html", folder);
  size_t size = 0;
  Document d = {.f = open_memstream(&text, &size)};
  CHECK(d.f);
  fputs("[", d.f);
  run_facts_write(&d, &(PageRun){.folder = folder}, page, true);
  fputs(",", d.f);
  score_facts_write(&d, folder, page);
  fputs("]", d.f);
  CHECK(!fclose(d.f) && !memchr(text, '<', size));
  Json j;
  json_open(&j, "facts", text, size);
  json_skip(&j);
  if (!json_done(&j)) fprintf(stderr, "%s\n", j.err.msg);
  CHECK(json_done(&j));
  json_close(&j);
  free(page);
  free(text);
}

static void nothing(void *context, int64_t step, const char *changes) {
  (void)context;
  CHECK(step >= INT64_MIN && changes);
}

static void resume(const char *folder) {
  Err err;
  const char *key[BEST_CURVES];
  Curve curve[BEST_CURVES] = {0};
  Best best;
  int64_t evaluated;
  char *log = path_of(folder, 0), *evaluation = path_of(folder, 2);
  const int n = best_keys(&task_detection, key);
  if (curves_read(log, key, n, curve, &err) && best_open(&best, &task_detection, folder, curve, 3, &err))
    CHECK(best_missing(&best) >= -1);
  curves_free(curve, n);
  amendments_read(log, nothing, NULL);
  RunSessions sessions = {0};
  if (run_sessions_read(&sessions, log, &err)) run_sessions_before(&sessions, 7);
  run_sessions_free(&sessions);
  report_step(evaluation);
  const Targets targets = {.n = 1, .of = {{"--target-bbox", "bbox_AP", 0.3}}};
  TargetsOfLog read = {0};
  targets_read(&targets, folder, &read, &err);
  run_is_older(folder);
  log_keep(log, 5, &evaluated, &err);
  free(log);
  free(evaluation);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  CHECK(nowhere);
  char folder[64];
  snprintf(folder, sizeof folder, "/dev/shm/maskrcnn-records-%ld", (long)getpid());
  mkdir(folder, 0700);
  lay_out(folder, bytes, size);
  draw(folder);
  FILE *said = stderr; // notes; sanitizers write to the descriptor
  stderr = nowhere;
  resume(folder);
  stderr = said;
  remove_all(folder);
  rmdir(folder);
  return 0;
}
