// Catches runs that a kill or a power cut damages: the folder of a run is made again as a crash leaves it at every
// point, and the run resumed from there.
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/crash_states.h"
#include "test/harness/test.h"
#include "training/numbered.h"

// A run in two parts: the first ends after this step, the second amends it.
enum { PARTS = 2, FIRST_PART = 3 };

static const char *const compared[] = {"model.safetensors",
                                       "checkpoint.safetensors",
                                       "best-bbox.safetensors",
                                       "best-segm.safetensors",
                                       "best.json",
                                       "checkpoint-previous.safetensors",
                                       "checkpoint-00000004.safetensors",
                                       "checkpoint-00000006.safetensors"};

// A set of two images, and weights that have learned them enough for evaluations on them to differ.
static void make_inputs(void) {
  const char *said;
  CHECK(!command(&said, "%s --out %s --train 2 --val 1 --size 64 --seed 3", tool("shapes"), in_tmp("crash-set")));
  CHECK(!command(&said,
                 "env OMP_NUM_THREADS=1 %s --data %s --out %s --model tiny --augment mirror --size 64 --batch 2 "
                 "--iters 30 --lr 0.02 "
                 "--seed 1 --eval-every never --threads 1 --device cpu",
                 tool("train"), in_tmp("crash-set"), in_tmp("crash-from")));
}

// malloc'ed. The first part goes on from `step`.
static char *line_of(int part, const char *out, int64_t step) {
  char *more = part ? xstrdup("--amend --lr 0.02") : xasprintf("--stop-after %d", FIRST_PART - (int)step);
  char *line =
      xasprintf("%s --data %s --val-split train --weights %s/model.safetensors --out %s --size 64 --batch 1 "
                "--augment mirror --iters 6 --lr 0.01 --warmup 0 --checkpoint-every 2 --keep 2 --seed 3 --eval-every 2 "
                "--detections 5 --threads 1 --device cpu --resume %s",
                tool("train"), in_tmp("crash-set"), in_tmp("crash-from"), out, more);
  free(more);
  return line;
}

// The step of a folder's checkpoint; 0: there is none.
static int64_t step_in(const char *folder) {
  char *path = xasprintf("%s/checkpoint.safetensors", folder);
  const int64_t step = checkpoint_step(path);
  free(path);
  return MAX(step, 0);
}

static char *read_text(const char *folder, const char *file) {
  char *path = xasprintf("%s/%s", folder, file), *text = file_read(path, &(size_t){0}, NULL);
  free(path);
  return text ? text : xstrdup("");
}

// The log without what a clock says.
static char *timeless_log(const char *folder) {
  char *text = read_text(folder, "log.jsonl"), *to = text;
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = '\0';
    char *clock = strstr(line, ",\"img_s\"");
    if (!clock) clock = strstr(line, ",\"clock\"");
    const size_t n = clock ? (size_t)(clock - line) : strlen(line);
    memmove(to, line, n);
    to[n] = '\n';
    to += n + 1;
  }
  *to = '\0';
  return text;
}

typedef struct Recording {
  char *folder; // of the run that was left alone, as it is at its end
  char *log;
  FileCalls calls;
  size_t end[PARTS]; // calls made by the end of each part
  CrashStates states;
  size_t first[PARTS + 1]; // of the states of each part
} Recording;

// Else the record of one evaluation could stand for another's.
static void expect_scores_differ(const char *log) {
  static const char key[] = "\"bbox_AP\":";
  double score[3] = {0};
  int n = 0;
  for (const char *at = log; n < COUNT(score) && (at = strstr(at, key)); at += strlen(key))
    score[n++] = atof(at + strlen(key));
  EXPECT(score[0] != score[1] && score[1] != score[2] && score[2] > 0);
}

static bool record(Recording *r) {
  make_inputs();
  *r = (Recording){.folder = realpath(test_tmp(), NULL)};
  char *folder = xasprintf("%s/crash-whole", r->folder), *said = xasprintf("%s.said", folder);
  free(r->folder);
  r->folder = folder;
  setenv("OMP_NUM_THREADS", "1", 1);
  for (int i = 0; i < PARTS; i++) {
    char *line = line_of(i, folder, 0), *arguments[] = {"/bin/sh", "-c", xasprintf("exec %s", line), NULL};
    const int status = file_calls_record(&r->calls, folder, said, arguments);
    free(arguments[2]);
    free(line);
    if (status == -1000) return false;
    if (!EXPECT_INT(status, 0)) command(NULL, "cat %s >&2", said);
    r->end[i] = r->calls.n;
  }
  free(said);
  EXPECT_STR(r->calls.unknown ? r->calls.unknown : "", "");
  r->log = timeless_log(folder);
  expect_scores_differ(r->log);
  for (int i = 0; i < PARTS; i++) {
    r->first[i] = r->states.n;
    crash_states_add(&r->states, &r->calls, i ? r->end[i - 1] : 0, r->end[i]);
  }
  r->first[PARTS] = r->states.n;
  return true;
}

static void forget(Recording *r) {
  file_calls_free(&r->calls);
  free(r->states.state);
  free(r->folder);
  free(r->log);
}

// Prints the first line that differs.
static bool is_same_text(const char *text, const char *want) {
  const char *line = want;
  while (*text && *text == *want) {
    if (*want == '\n') line = want + 1;
    text++;
    want++;
  }
  if (EXPECT(*text == *want)) return true;
  const char *line_begins = text - (want - line);
  printf("    is   %.*s\n    want %.*s\n", (int)strcspn(line_begins, "\n"), line_begins, (int)strcspn(line, "\n"),
         line);
  return false;
}

// Prints what differs from the run left alone.
static bool is_whole(const Recording *r, const char *folder) {
  bool ok = true;
  for (int i = 0; i < COUNT(compared); i++) {
    char *a = xasprintf("%s/%s", folder, compared[i]), *b = xasprintf("%s/%s", r->folder, compared[i]);
    const bool is_same = EXPECT(same_file(a, b));
    if (!is_same) printf("    %s differs\n", compared[i]);
    ok &= is_same;
    free(a);
    free(b);
  }
  char *log = timeless_log(folder), *record = read_text(folder, "run.json");
  ok &= is_same_text(log, r->log);
  ok &= EXPECT(strstr(record, "\"state\":\"complete\""));
  free(log);
  free(record);
  return ok & EXPECT_INT(command(NULL, "ls -A %s %s/pictures | grep -E '[.]tmp|lock[.]try'", folder, folder), 1);
}

// Goes on from a crash. False where the run does not become the one left alone.
static bool resume(const Recording *r, size_t point, const char *folder, const char *cache) {
  const CrashState *s = &r->states.state[point];
  const char *said = "";
  bool ok = true;
  CHECK(command(NULL, "rm -rf %s", folder) == 0);
  crash_state_make(s, &r->calls, folder, cache);
  for (int part = point >= r->first[1] || step_in(folder) == FIRST_PART; ok && part < PARTS; part++) {
    char *line = line_of(part, folder, step_in(folder));
    ok = EXPECT_INT(command(&said, "%s", line), 0);
    if (!ok) printf("%s\n", said);
    free(line);
  }
  ok = ok && is_whole(r, folder);
  if (!ok) crash_state_print(s, &r->calls);
  return ok;
}

// The folder made again by all calls is the one on disk: none is missing from the list.
static void expect_recorded(const Recording *r) {
  char *folder = xstrdup(in_tmp("crash-again")), *cache = xstrdup(in_tmp("crash-cache"));
  const char *said;
  crash_state_make(&(CrashState){.calls = r->calls.n}, &r->calls, folder, cache);
  if (!EXPECT_INT(command(&said, "diff -r %s %s", folder, r->folder), 0)) printf("%s\n", said);
  free(folder);
  free(cache);
}

// `points` of them, evenly; 0: all. In as many processes as there are cores.
static void crash(size_t points) {
  Recording r;
  if (!record(&r)) {
    test_skip("no rights to trace a program");
    return;
  }
  expect_recorded(&r);
  const size_t all = r.states.n;
  if (!points || points > all) points = all;
  int calls = 0;
  for (size_t i = 0; i < r.calls.n; i++) calls += r.calls.call[i].calls;
  printf("  %d calls of the program, %zu after joining writes; %zu states, %zu different folders, %zu resumed\n", calls,
         r.calls.n, r.states.all, all, points);
  const int workers = (int)MIN(sysconf(_SC_NPROCESSORS_ONLN), 32);
  fflush(stdout);
  for (int w = 0; w < workers; w++) {
    if (fork() > 0) continue;
    char *folder = xasprintf("%s/crash-%d", test_tmp(), w), *cache = xasprintf("%s/cache-%d", test_tmp(), w);
    int failed = 0;
    for (size_t i = (size_t)w; i < points && failed < 5; i += (size_t)workers)
      failed += !resume(&r, i * all / points, folder, cache);
    fflush(stdout);
    _exit(failed > 0);
  }
  for (int status; wait(&status) > 0;) EXPECT_INT(status, 0);
  forget(&r);
}

TEST_TIER(crashes_at_some_points, 1) { crash(60); }
TEST_TIER(crashes_at_every_point, 2) { crash(0); }
