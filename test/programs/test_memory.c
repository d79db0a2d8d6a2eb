// Catches memory taken beyond the plan or per step, and shortages that lose a checkpoint or have no message.
#include <sys/resource.h>
#include <sys/wait.h>
#include "base/alloc.h"
#include "base/memory.h"
#include "data/images/png.h"
#include "test/harness/allocations.h"
#include "test/harness/command.h"
#include "test/harness/infer.h"
#include "test/harness/test.h"
#include "weights/checkpoint.h"

static const char *path_in(const char *folder, const char *file) {
  static char paths[8][512];
  static int next;
  char *p = paths[next++ % COUNT(paths)];
  snprintf(p, sizeof paths[0], "%s/%s/%s", test_tmp(), folder, file);
  return p;
}

// ---- the plan -------------------------------------------------------------------------------------------------------

// The number before "MB", in the line of the plan that ends in `row` or goes on with ' (' or ','.
static double planned(const char *said, const char *row) {
  const char *at = strstr(said, row), *line = at;
  while (line && line > said && line[-1] != '\n') line--;
  return line ? atof(line) : -1;
}

TEST_TIER(memory_plan_has_the_host, 1) {
  static const char *const rows[] = {"parameters, gradients, momentum",
                                     "activations",
                                     "workspace",
                                     "inputs, one batch",
                                     "loader's batches in training",
                                     "loader's batches in inference",
                                     "checkpoint, written in the background",
                                     "offsets of mask runs",
                                     "detections of in-flight batches",
                                     "lists of detections"};
  const char *said;
  double sum = 0;
  EXPECT_INT(command(&said,
                     "%s --data %s --model tiny --size 64 --batch 8 --device cpu --plan | sed -n '/^memory:/,$p'",
                     tool("train"), shapes_set()),
             0);
  for (int i = 0; i < COUNT(rows); i++) {
    if (!EXPECT(planned(said, rows[i]) > 0)) printf("    %s\n", rows[i]);
    sum += planned(said, rows[i]);
  }
  EXPECT_NEAR(planned(said, "MB of the host"), sum, 1); // each is rounded
}

// Ranks that are not there yet count too.
TEST_TIER(memory_plan_is_of_all_ranks, 1) {
  static const char plan[] = "%s --data %s --model tiny --size 64 --threads 1 --device cpu --plan --gpus %d | "
                             "sed -n '/^allocated/,$p'";
  const char *said;
  EXPECT_INT(command(&said, plan, tool("train"), shapes_set(), 1), 0);
  EXPECT(!strstr(said, "ranks"));
  const double one = planned(said, "MB of the host");
  EXPECT_INT(command(&said, plan, tool("train"), shapes_set(), 4), 0);
  if (!EXPECT(strstr(said, " MB of the host for 4 ranks"))) printf("    %s\n", said);
  EXPECT_NEAR(planned(said, "MB of the host"), 4 * one, 1);
}

// Where address space is short of what is planned, nothing is taken: the plan is printed all the same, a run says what
// to change, and neither leaves anything behind.
TEST_TIER(memory_too_little_is_said_before_it_is_taken, 1) {
  const char *said;
  char line[1024];
  snprintf(line, sizeof line,
           "ulimit -v 1500000; exec env OMP_NUM_THREADS=1 %s --data %s --model tiny --size 512 --batch 64 --threads 1",
           tool("train"), shapes_set());
  EXPECT_INT(command(&said, "(%s --plan) 2>&1 | tail -n 4", line), 0);
  if (!EXPECT(strstr(said, " MB of the host, ") && strstr(said, "train: too little memory: ") &&
              strstr(said, "for the activations: reduce --batch, --size or --max-size; besides ")))
    printf("    %s\n", said);
  EXPECT_INT(command(&said, "%s --plan >%s", line, path_in("", "plan")), 2);
  EXPECT_INT(command(&said, "%s --out %s", line, path_in("short", "")), 2);
  EXPECT(strstr(said, "train: too little memory: ") == said && strchr(said, '\n')[1] == '\0');
  EXPECT(!path_is_file(path_in("short", "log.jsonl")));
}

// The shapes, with as many categories before their own.
static const char *many_categories(int n) {
  static const char *const splits[] = {"train", "val"};
  char name[32];
  snprintf(name, sizeof name, "categories-%d", n);
  const char *set = in_tmp(name);
  CHECK(!command(NULL, "cp -r %s %s", shapes_set(), set));
  for (int i = 0; i < COUNT(splits); i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/annotations/instances_%s.json", set, splits[i]);
    char *text = file_read(path, &(size_t){0}, NULL), *rest = text ? strstr(text, "{\"id\":1,") : NULL;
    FILE *f = fopen(path, "w");
    CHECK(rest && f);
    fprintf(f, "%.*s", (int)(rest - text), text);
    for (int k = 1; k <= n; k++) fprintf(f, "{\"id\":%d,\"name\":\"species %d\"},", 100 + k, k);
    fputs(rest, f);
    CHECK(fclose(f) == 0);
    free(text);
  }
  return set;
}

// Runs a line of the shell; returns the most memory that it took, in MB.
static double peak_of(const char *line) {
  struct rusage use;
  int status = -1;
  const pid_t pid = command_start(line);
  CHECK(wait4(pid, &status, 0, &use) == pid);
  EXPECT_INT(status, 0);
  return 1.024e-3 * (double)use.ru_maxrss;
}

// A step, an evaluation and the page take no more than is planned, and 48 MB for the program, its files and the page.
static void expect_in_plan(int categories) {
  static const char *const later[] = {"decoder threads in training", "decoder threads in inference",
                                      "results of evaluation"};
  const char *said, *set = many_categories(categories);
  char line[1600], run[1800];
  if (!allocations_counted()) {
    test_skip("AddressSanitizer takes memory of its own");
    return;
  }
  snprintf(line, sizeof line,
           "exec env OMP_NUM_THREADS=2 %s --data %s --model tiny --size 64 --batch 1 --iters 1 --val-limit 2 "
           "--threads 1",
           tool("train"), set);
  snprintf(run, sizeof run, "%s --out %s/run >%s/said 2>&1", line, set, set);
  EXPECT_INT(command(&said, "%s --plan | sed -n '/^memory:/,$p'", line), 0);
  double plan = planned(said, "MB of the host");
  for (int i = 0; i < COUNT(later); i++) plan += planned(said, later[i]);
  const double peak = peak_of(run);
  if (!EXPECT(peak < plan + 48)) printf("    %.0f MB, planned %.0f MB\n", peak, plan);
  EXPECT_INT(command(&said, "grep '^memory: [0-9]* MB of the host (--plan lists it)$' %s/said", set), 0);
  EXPECT_INT(command(&said, "grep -c '\"val\\|\"segm_AP' %s/run/log.jsonl", set), 0); // it was evaluated
  EXPECT_INT(command(&said, "test -s %s/run/report.html && rm -r %s/run", set, set), 0);
}

TEST_TIER(memory_of_many_categories, 1) { expect_in_plan(600); }

TEST_TIER(memory_of_ten_thousand_categories, 2) {
  if (memory_left("") < (size_t)4e9)
    test_skip("needs 4 GB of memory");
  else
    expect_in_plan(10000);
}

// A set of one image, a square of one colour; its path in `image`.
static const char *one_square(int side, char image[512]) {
  char name[32];
  Err err;
  snprintf(name, sizeof name, "square-%d", side);
  const char *set = in_tmp(name);
  CHECK(!command(NULL, "mkdir -p %s/annotations %s/train", set, set));
  snprintf(image, 512, "%s/train/square.png", set);
  Image im = image_alloc(side, side);
  CHECK(png_write(image, &im, PNG_FAST, &err));
  image_free(&im);
  char path[512];
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", set);
  FILE *f = fopen(path, "w");
  CHECK(f);
  fprintf(f,
          "{\"images\":[{\"id\":1,\"file_name\":\"square.png\",\"width\":%d,\"height\":%d}],\"categories\":[{\"id\":1,"
          "\"name\":\"corner\"}],\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[0,0,32,32],"
          "\"area\":512,\"iscrowd\":0,\"segmentation\":[[0,0,32,0,0,32]]}]}",
          side, side);
  CHECK(fclose(f) == 0);
  return set;
}

// What a large picture takes beyond a small one, in bytes per pixel, of which three are the picture: in infer it is
// decoded, copied for the network, and read there; in train three batches are made ahead.
TEST_TIER(memory_of_large_pictures, 1) {
  enum { SMALL = 64, LARGE = 2400 };
  static const double most[] = {11, 14};
  double peak[2][2];
  if (!allocations_counted()) {
    test_skip("AddressSanitizer takes memory of its own");
    return;
  }
  for (int large = 0; large <= 1; large++) {
    char image[512], line[2048];
    const char *set = one_square(large ? LARGE : SMALL, image);
    snprintf(line, sizeof line, "%s %s >%s/said 2>&1", infer_line(large ? "large" : "small"), image, set);
    peak[0][large] = peak_of(line);
    snprintf(line, sizeof line,
             "exec env OMP_NUM_THREADS=2 %s --data %s --model tiny --size 64 --batch 1 --iters 4 --threads 1 "
             "--eval-every never --out %s/run >%s/said 2>&1",
             tool("train"), set, set, set);
    peak[1][large] = peak_of(line);
  }
  for (int program = 0; program <= 1; program++) {
    const double each = 1e6 * (peak[program][1] - peak[program][0]) / LARGE / LARGE;
    if (!EXPECT(each < most[program])) printf("    %s: %.1f bytes per pixel\n", program ? "train" : "infer", each);
  }
}

// The most memory in which cocoeval scores so many objects as wide as a picture of 60,000 columns.
static double peak_of_wide_objects(int objects) {
  const char *truth = path_in("", "wide.json");
  FILE *f = fopen(truth, "w");
  CHECK(f);
  fputs("{\"images\":[{\"id\":1,\"file_name\":\"x\",\"width\":60000,\"height\":1000}],\"categories\":[{\"id\":1,"
        "\"name\":\"stripe\"}],\"annotations\":[",
        f);
  for (int i = 0; i < objects; i++)
    fprintf(f,
            "%s{\"id\":%d,\"image_id\":1,\"category_id\":1,\"iscrowd\":0,\"area\":120000,\"bbox\":[0,%d,60000,2],"
            "\"segmentation\":[[0,%d,60000,%d,60000,%d,0,%d]]}",
            i ? "," : "", i + 1, 5 * i, 5 * i, 5 * i, 5 * i + 2, 5 * i + 2);
  fputs("]}", f);
  CHECK(fclose(f) == 0);
  char line[2048];
  snprintf(line, sizeof line,
           "echo '[{\"image_id\":1,\"category_id\":1,\"score\":0.5,\"bbox\":[0,0,60000,2]}]' >%s.found && exec env "
           "OMP_NUM_THREADS=2 %s --gt %s --dt %s.found --iou segm >%s.said 2>&1",
           truth, tool("cocoeval"), truth, truth, truth);
  return peak_of(line);
}

// Their masks take 480 KB each: a few at a time are in memory.
TEST_TIER(memory_of_cocoeval_on_wide_objects, 1) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer takes memory of its own");
    return;
  }
  const double few = peak_of_wide_objects(2), many = peak_of_wide_objects(200);
  if (!EXPECT(many - few < 40)) printf("    %.0f MB, and %.0f MB for two\n", many, few);
}

// ---- allocations ----------------------------------------------------------------------------------------------------

// A command with one thread, as the test's library leaves it to allocate. As a user starts it: the tests' own variables
// would keep it from beginning again with them set.
static int preloaded(const char **said, const char *env, const char *line) {
  return command(said, "timeout 60 env -u KMP_BLOCKTIME OMP_NUM_THREADS=1 LD_PRELOAD=%s %s %s", tool("allocations.so"),
                 env, line);
}

// How often a command allocates.
static long count_of(const char *line) {
  const char *said, *file = path_in("", "count");
  char *env = xasprintf("COUNT_TO=%s", file);
  size_t size;
  if (!EXPECT_INT(preloaded(&said, env, line), 0)) printf("    %s\n", said);
  char *text = file_read(file, &size, NULL);
  long count = text ? atol(text) : -1;
  free(text);
  free(env);
  return count;
}

TEST_TIER(memory_training_allocates_nothing_per_step, 1) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer allocates by itself");
    return;
  }
  long count[2];
  for (int i = 0; i < 2; i++) {
    char line[1024];
    snprintf(line, sizeof line, "%s --data %s --model tiny --size 64 --batch 2 --threads 1 --benchmark %d",
             tool("train"), shapes_set(), i ? 24 : 8);
    count[i] = count_of(line);
  }
  EXPECT(count[0] > 0);
  EXPECT_INT(count[1], count[0]);
}

// ---- none left ------------------------------------------------------------------------------------------------------

enum { SAVED = 2 }; // step of the checkpoint that is there before

typedef struct Victim { // a program, in a folder of its own beside a run that stopped at SAVED
  char line[2048];
  const char *result; // what it leaves
} Victim;

static Victim victim(const char *program) {
  Victim v = {.result = strcmp(program, "train") ? "found/detections.json" : "model.safetensors"};
  const char *said, *set = test_kept("memory-set");
  char base[1024];
  snprintf(base, sizeof base,
           "%s --data %s --model tiny --size 64 --batch 1 --iters 4 --checkpoint-every 2 --eval-every 3 --seed 5 "
           "--detections 10 --threads 1 --resume",
           tool("train"), set);
  if (!folder_fetch("memory-base")) {
    CHECK(!command(&said, "%s --out %s --train 6 --val 2 --size 64 --seed 3", tool("shapes"), set));
    CHECK(
        !command(&said, "env OMP_NUM_THREADS=1 %s --stop-after %d --out %s", base, SAVED, path_in("memory-base", "")));
    folder_keep("memory-base");
  }
  if (!strcmp(program, "train"))
    snprintf(v.line, sizeof v.line, "%s --out %s", base, path_in("victim", ""));
  else
    snprintf(v.line, sizeof v.line, "%s --weights %s --data %s --eval --overlays 1 --threads 1 --out %s", tool("infer"),
             path_in("memory-base", "checkpoint.safetensors"), set, path_in("victim", "found"));
  return v;
}

static void make_folder(void) {
  CHECK(!command(NULL, "rm -rf %s && cp -r %s %s", path_in("victim", ""), path_in("memory-base", ""),
                 path_in("victim", "")));
}

// Both a run that ends well and one that does not leave files that are whole.
static void expect_whole(const Victim *v, int status) {
  const char *path = path_in("victim", "checkpoint.safetensors");
  Checkpoint c;
  Err err = {""};
  if (EXPECT(ckpt_open(&c, path, &err))) {
    EXPECT(atol(ckpt_find_meta(&c, "step")) >= SAVED);
    ckpt_close(&c);
  }
  EXPECT(!command(NULL, "cmp -n $(stat -c %%s %s) %s %s", path_in("memory-base", "log.jsonl"),
                  path_in("memory-base", "log.jsonl"), path_in("victim", "log.jsonl")));
  if (path_is_file(path_in("victim", v->result)))
    EXPECT(same_file(path_in("victim", v->result), path_in("memory-want", "result")));
  else
    EXPECT(status != 0);
}

// The last line that a program said.
static const char *last_line(const char *said) {
  const char *line = said;
  for (const char *p = said; *p; p++)
    if (*p == '\n' && p[1]) line = p + 1;
  return line;
}

// `how` FAIL_AT or FAIL_FROM. Fails by a message that speaks of memory, or does without, to the same result.
static void expect_survival(const Victim *v, const char *how, long n) {
  const char *said;
  char env[64];
  make_folder();
  snprintf(env, sizeof env, "%s=%ld", how, n);
  int status = preloaded(&said, env, v->line);
  const char *last = last_line(said);
  if (!EXPECT(status == 0 || ((status == 1 || status == 2) && strstr(last, "emory") && !strstr(said, "a bug in"))))
    printf("    %s: %d: %s\n", env, status, last);
  expect_whole(v, status);
}

// Of the program's allocations the first `dense`, then every `stride`-th, failing one by one; and at `outages` places
// all from there on.
static void check_shortage(const char *program, long dense, long stride, int outages) {
  const char *said;
  if (!allocations_counted()) {
    test_skip("AddressSanitizer allocates by itself");
    return;
  }
  Victim v = victim(program);
  make_folder();
  const long count = count_of(v.line);
  CHECK(dirs_make(path_in("memory-want", ""), NULL));
  CHECK(!command(&said, "cp %s %s", path_in("victim", v.result), path_in("memory-want", "result")));
  EXPECT(count > 1000);
  long tried = 0;
  for (long n = 1; n <= count; n += n < dense ? 1 : stride, tried++) expect_survival(&v, "FAIL_AT", n);
  for (int i = 0; i < outages; i++) expect_survival(&v, "FAIL_FROM", 1 + i * count / outages);
  printf("  %ld of %ld allocations failed one by one, all from %d places on\n", tried, count, outages);
}

TEST_TIER(memory_shortage_in_training, 1) { check_shortage("train", 1, 211, 6); }
TEST_TIER(memory_shortage_in_inference, 1) { check_shortage("infer", 1, 149, 6); }
TEST_TIER(memory_shortage_at_any_allocation_of_training, 2) { check_shortage("train", 0, 1, 100); }
TEST_TIER(memory_shortage_at_any_allocation_of_inference, 2) { check_shortage("infer", 0, 1, 100); }
