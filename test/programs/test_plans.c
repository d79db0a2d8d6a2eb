// Catches plans that no longer run.
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// A number of the first record in the text; NaN: there is none.
static double number_of(const char *text, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *at = text ? strstr(text, key) : NULL;
  return at ? strtod(at + strlen(key), NULL) : NAN;
}

static bool has_python(void) {
  if (!command(NULL, "python3 -c ''")) return true;
  test_skip("python3 is not installed");
  return false;
}

static void write_text(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  CHECK(f && fputs(text, f) >= 0 && !fclose(f));
}

TEST_TIER(plans_are_plans, 1) {
  static const char *const plans[] = {"training-throughput",
                                      "inference-throughput",
                                      "accuracy",
                                      "stack",
                                      "nets",
                                      "minibatch",
                                      "vgg-28",
                                      "sustained",
                                      "scaling",
                                      "clocks",
                                      "ladder",
                                      "inference",
                                      "nets-cudnn",
                                      "vgg-28-pytorch"};
  const char *said;
  int files = 0;
  if (!has_python()) return;
  for (int i = 0; i < COUNT(plans); i++)
    if (!EXPECT_INT(command(&said, "python3 -S lab/study.py plans/%s.plan --list --out %s", plans[i], in_tmp("listed")),
                    0))
      printf("    %s\n", said);
  CHECK(!command(&said, "ls plans/*.plan | wc -l"));
  files = atoi(said);
  EXPECT_INT(files, COUNT(plans));
}

// ---- what is made before -----------------------------------------------------------------------------------------

TEST_TIER(plans_make_a_large_set_once, 1) {
  const char *said;
  struct stat first, second;
  if (!has_python()) return;
  char *make =
      xasprintf("python3 plans/large_set.py --data %s --out %s --train 100 --val 2", shapes_set(), in_tmp("large"));
  EXPECT_INT(command(&said, "%s", make), 0);
  EXPECT(strstr(said, "train lists 100 images"));
  const char *list = in_tmp("large/annotations/instances_train.json");
  EXPECT(!stat(list, &first));
  EXPECT_INT(command(&said, "%s", make), 0);
  EXPECT(!*said && !stat(list, &second) && first.st_ino == second.st_ino);
  // A split that is long enough is the data set's own; images of the other are there under new ids.
  EXPECT_INT(command(&said, "test -h %s", in_tmp("large/annotations/instances_val.json")), 0);
  EXPECT_INT(command(&said, "%s --data %s", tool("doctor"), in_tmp("large")), 0);
  EXPECT(strstr(said, "images      100;"));
  // A list that has become too long for what is asked now gives way to a link; a folder of images never does.
  char *set = xstrdup(shapes_set());
  if (!EXPECT_INT(
          command(&said, "python3 plans/large_set.py --data %s --out %s --train 2 --val 2", set, in_tmp("large")), 0))
    printf("    %s\n", said);
  EXPECT_INT(command(&said, "test -h %s", in_tmp("large/annotations/instances_train.json")), 0);
  EXPECT(command(&said, "python3 plans/large_set.py --data %s --out %s", set, set) != 0);
  EXPECT(strstr(said, "/train: a folder is there already; give another --out"));
  free(set);
  EXPECT(command(&said, "python3 plans/large_set.py --data /nowhere --out %s", in_tmp("none")) != 0);
  EXPECT(strstr(said, "/nowhere: no folder annotations"));
  free(make);
}

TEST_TIER(plans_learn_weights_once, 1) {
  const char *said;
  char *line =
      xasprintf("TRAIN=%s sh plans/learned.sh %s %s none --model tiny --size 64 --batch 2 --iters 2 --device cpu "
                "--threads 1",
                tool("train"), shapes_set(), in_tmp("weights/learned"));
  if (!EXPECT_INT(command(&said, "%s", line), 0)) printf("    %s\n", said);
  EXPECT(path_is_file(in_tmp("weights/learned")));
  EXPECT_INT(command(&said, "%s", line), 0);
  EXPECT(!*said);
  EXPECT_INT(command(&said, "%s 7", line), 2);
  EXPECT(strstr(said, "was made of ") && strstr(said, ".from, or give another folder"));
  EXPECT_INT(command(&said, "sh plans/learned.sh %s %s /nowhere.pth", shapes_set(), in_tmp("weights/given")), 2);
  EXPECT(strstr(said, "/nowhere.pth: no such file"));
  EXPECT_INT(
      command(&said, "sh plans/learned.sh %s %s %s", shapes_set(), in_tmp("weights/taken"), in_tmp("weights/learned")),
      0);
  EXPECT(same_file(in_tmp("weights/taken"), in_tmp("weights/learned")));
  free(line);
}

TEST_TIER(plans_find_toolkits, 1) {
  const char *said;
  CHECK(dirs_make(in_tmp("cuda-12.4/bin"), NULL));
  write_text(in_tmp("cuda-12.4/bin/nvcc"), "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n");
  CHECK(!chmod(in_tmp("cuda-12.4/bin/nvcc"), 0755));
  EXPECT_INT(command(&said, "sh plans/toolkit.sh twelve %s", in_tmp("built")), 2);
  EXPECT(strstr(said, "twelve is no version of CUDA"));
  EXPECT_INT(command(&said, "TOOLKITS='12.4=/nowhere 12.8=%s' sh plans/toolkit.sh 12.8 %s", in_tmp("cuda-12.4"),
                     in_tmp("built")),
             1);
  EXPECT(strstr(said, "is of CUDA 12.4, not 12.8"));
  EXPECT_INT(command(&said, "PATH=/usr/bin:/bin sh plans/toolkit.sh 11.9 %s", in_tmp("built")), 1);
  EXPECT(strstr(said, "no CUDA 11.9 here") && strstr(said, "TOOLKITS=\"11.9="));
  // What was built elsewhere is taken, and missed where it is not there.
  EXPECT_INT(command(&said, "BUILD= sh plans/toolkit.sh 11.9 %s", in_tmp("built")), 2);
  EXPECT(strstr(said, "built/build/train"));
  CHECK(dirs_make(in_tmp("built/build"), NULL));
  EXPECT_INT(command(NULL, "ln -s /bin/true %s && ln -s /bin/true %s", in_tmp("built/build/train"),
                     in_tmp("built/build/infer")),
             0);
  EXPECT_INT(command(&said, "BUILD= sh plans/toolkit.sh 11.9 %s", in_tmp("built")), 0);
}

// Five runs of a command on a machine of that driver, around `img_s`, as the plan of the stack leaves them.
static void write_stack(FILE *f, const char *command_name, const char *toolkit, const char *driver, double img_s) {
  for (int repeat = 1; repeat <= 5; repeat++)
    fprintf(f,
            "{\"kind\":\"run\",\"command\":\"%s\",\"settings\":{\"toolkit\":\"%s\"},\"repeat\":%d,\"state\":\"ok\","
            "\"seconds\":1,\"ran\":\"\",\"records\":[{\"img_s\":%g,\"machine\":{\"gpu\":\"G\",\"driver\":\"%s\"}}]}\n",
            command_name, toolkit, repeat, img_s + repeat, driver);
}

TEST_TIER(plans_stack_names_the_best_of_toolkits_and_drivers, 1) {
  static const char *const drivers[] = {"570.86", "580.95"};
  const char *said;
  if (!has_python()) return;
  for (int i = 0; i < COUNT(drivers); i++) {
    char *path = xasprintf("%s", in_tmp(drivers[i]));
    FILE *f = fopen(path, "w");
    CHECK(f);
    write_stack(f, "training", "12.8", drivers[i], 300 + i);
    write_stack(f, "training", "13.0", drivers[i], 310 + 20 * i);
    write_stack(f, "inference", "12.8", drivers[i], 800);
    write_stack(f, "inference", "13.0", drivers[i], 700);
    CHECK(!fclose(f));
    free(path);
  }
  char *line = xasprintf("python3 lab/study.py plans/stack.plan --out %s --merge", in_tmp("stack"));
  char *one = xasprintf("%s", in_tmp(drivers[0])), *two = xasprintf("%s", in_tmp(drivers[1]));
  if (!EXPECT_INT(command(&said, "%s %s %s", line, one, two), 0)) printf("    %s\n", said);
  char *text = file_read(in_tmp("stack/tables.md"), &(size_t){0}, NULL);
  EXPECT(text && strstr(text, "| throughput, img/s, driver unknown | throughput, img/s, driver 570.86 |"));
  EXPECT(text && strstr(text, "| training | 12.4 | not run |  |  |"));
  EXPECT(text && strstr(text, "| training | 13.0 |  | 313.00 ± 0.71 | 333.00 ± 0.71 |"));
  EXPECT(text && strstr(text, "Best throughput (training): toolkit=13.0 driver=580.95, 333.00 ± 0.71 img/s."));
  EXPECT(text && strstr(text, "Best throughput (inference): toolkit=12.8 driver=570.86, 803.00 ± 0.71 img/s; not "
                              "significantly worse: toolkit=12.8 driver=580.95 (803.00 ± 0.71)."));
  free(text);
  text = file_read(in_tmp("stack/stack.svg"), &(size_t){0}, NULL);
  EXPECT(text && strstr(text, "570.86") && strstr(text, "580.95"));
  free(text);
  free(line);
  free(one);
  free(two);
}

// ---- a run's speed --------------------------------------------------------------------------------------------------

// Steps of 0.5 seconds, and of 0.25 from the eleventh on; an evaluation of 4 seconds behind step 6, before the end of
// step 7, and one of 2 at the end.
TEST_TIER(plans_tell_a_steady_speed, 1) {
  const char *said;
  char *path = xasprintf("%s", in_tmp("steady.jsonl"));
  FILE *f = fopen(path, "w");
  CHECK(f);
  double at = 1;
  for (int step = 1; step <= 14; step++) {
    at += step > 10 ? 0.25 : 0.5;
    if (step == 7) at += 4;
    fprintf(f, "{\"step\":%d,\"kind\":\"train\",\"loss\":1,\"positives\":%d,\"wait\":0.05,\"seconds\":%.17g}\n", step,
            step, at);
    if (step == 6)
      fprintf(f, "{\"step\":6,\"kind\":\"eval\",\"bbox_AP\":0.25,\"images\":60,\"clock\":{\"at\":8,\"took\":4}}\n");
  }
  fprintf(f, "{\"step\":14,\"kind\":\"eval\",\"bbox_AP\":0.5,\"images\":60,\"clock\":{\"at\":%.17g,\"took\":2}}\n",
          at + 2);
  CHECK(!fclose(f));
  if (!has_python()) return;
  const char *line = "python3 plans/steady.py %s --batch 4 --warmup 2 --window 3 --epoch 100 --val 20";
  char *run = xasprintf(line, path);
  EXPECT_INT(command(&said, "%s | tr -d ' '", run), 0);
  // Intervals 3, 4, 8, 9, 10 of 0.5 s; 11 and 12 of 0.25 s.
  EXPECT_NEAR(number_of(said, "img_s"), 4 * 7 / 3.0, 1e-9);
  EXPECT_NEAR(number_of(said, "img_s_early"), 8, 1e-9);
  EXPECT_NEAR(number_of(said, "img_s_late"), 12, 1e-9);
  EXPECT_NEAR(number_of(said, "data_wait_percent"), 100 * 7 * 0.05 / 3, 1e-9);
  EXPECT_NEAR(number_of(said, "positives_late"), 11, 1e-9);
  EXPECT_NEAR(number_of(said, "evaluation_img_s"), 20, 1e-9);
  EXPECT_NEAR(number_of(said, "img_s_evaluated"), 4 * 12 / (8 * 0.5 + 4 * 0.25 + 4 + 2), 1e-9);
  EXPECT_NEAR(number_of(said, "img_s_epoch"), 100 / (100 / (4 * 7 / 3.0) + 1), 1e-9);
  EXPECT_NEAR(number_of(said, "bbox_AP"), 0.5, 0);
  EXPECT(command(&said, "python3 plans/steady.py %s --batch 4", path) != 0);
  EXPECT(strstr(said, "too few to tell a speed"));
  free(run);
  free(path);
}

// The plan of sustained speed, of a small model on shapes: data and weights are made by the plan itself.
TEST_TIER(plans_sustained_on_shapes, 1) {
  const char *said;
  if (!has_python()) return;
  char *shapes = xasprintf("%s", shapes_set()), *plan = xasprintf("%s", in_tmp("sustained.plan")),
       *out = xasprintf("%s", in_tmp("sustained"));
  char *weights =
      xasprintf("TRAIN=%s sh plans/learned.sh %s %s none --model tiny --size 64 --norm bn --batch 2 --iters 2 "
                "--device cpu --threads 1",
                tool("train"), shapes, in_tmp("known/learned"));
  EXPECT_INT(command(&said, "%s", weights), 0);
  CHECK(!command(
      &said,
      "sed -e 's|^run: {bin}/train|run: OMP_NUM_THREADS=1 %s --device cpu --threads 1 --val-limit 4 --detections 10|' "
      "-e 's/--amp//' -e 's/values: 4, 12/values: 2/' -e 's/log.jsonl --batch {batch}/& --warmup 2 --window 3/' "
      "plans/sustained.plan >%s",
      tool("train"), plan));
  char *set = xasprintf("data=%s weights=%s work=%s steps=16 every=8 train=60 val=4", shapes, in_tmp("known/learned"),
                        in_tmp("work"));
  if (!EXPECT_INT(command(&said, "python3 lab/study.py %s --out %s --only command=ours --set '%s'", plan, out, set), 0))
    printf("    %s\n", said);
  char *table = xasprintf("%s/tables.md", out), *text = file_read(table, &(size_t){0}, NULL);
  EXPECT(text && strstr(text, "Sustained throughput") && strstr(text, "±") && strstr(text, "181"));
  free(text);
  free(table);
  free(set);
  free(weights);
  free(shapes);
  free(plan);
  free(out);
}
