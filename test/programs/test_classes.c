// Catches classifier runs that change when they are interrupted, report wrong results or take mistakes silently.
#include <unistd.h>
#include "base/alloc.h"
#include "base/json.h"
#include "engine/state.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// ---- a small net and small sets -------------------------------------------------------------------------------------

static const char *const shape_names[] = {"disc", "square", "triangle", "star", "cross", "ring"};
enum { CLASSES = COUNT(shape_names), SIZE = 12 };

// Weights of a ResNet-18 of four channels with dropout for these classes: --weights makes it the model.
static const char *narrow_net(void) {
  static char path[512];
  Err err;
  Engine e;
  Category category[CLASSES] = {{0}};
  ModelConfig c;
  if (*path) return path;
  snprintf(path, sizeof path, "%s", test_kept("narrow.safetensors"));
  CHECK(config_init(&c, "resnet18", &err));
  config_resize(&c, SIZE);
  c.width = 4;
  c.classes = CLASSES;
  c.dropout = 0.3f;
  c.view = 1;
  const Shapes shapes = {.canvases = 1, .canvas = {{.h = SIZE, .w = SIZE}}, .images = 2, .max_objects = 1};
  for (int i = 0; i < CLASSES; i++) {
    category[i].id = i;
    snprintf(category[i].name, sizeof category[i].name, "%s", shape_names[i]);
  }
  if (!engine_open(&e, &(Compute){.device = "cpu"}, model_of(&c), &c, category, &shapes, &(Shapes){0}, false, &err))
    die(EXIT_RUN, "%s", err.msg);
  params_randomise(&e.params, 1);
  RunState state = {.run = "{}"};
  state_take(&e, &state);
  CHECK(state_write(&e, &state, &(StateFile){.path = path}, &err));
  engine_close(&e);
  return path;
}

static const char *idx_set(void) {
  static char dir[512];
  const char *said;
  if (*dir) return dir;
  snprintf(dir, sizeof dir, "%s", test_kept("idx-set"));
  if (!EXPECT_INT(command(&said, "%s --idx --out %s --train 96 --val 36 --seed 3", tool("shapes"), dir), 0))
    fprintf(stderr, "%s\n", said);
  return dir;
}

static const char phases[] = "1@1e-2,1@1e-3,1@1e-3 --augment standard --augment-after 2";

// The command line of a run of three phases of six steps each, by AdamW; `before` stands in front of it.
static const char *run_line(const char *before, const char *out, const char *more) {
  static char line[1536];
  snprintf(line, sizeof line,
           "%s env OMP_NUM_THREADS=1 %s --data %s --out %s --weights %s --batch 16 --optimizer adamw --phases %s "
           "--seed 5 --threads 1 --device cpu --resume %s",
           before, tool("train"), idx_set(), in_tmp(out), narrow_net(), phases, more);
  return line;
}

static int run(const char *out, const char *more, const char **said) {
  return command(said, "%s", run_line("", out, more));
}

static const char *file_of(const char *out, const char *file) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", out, file);
  return in_tmp(path);
}

static bool same_state(const char *a, const char *b) {
  return same_file(file_of(a, "checkpoint.safetensors"), file_of(b, "checkpoint.safetensors")) &&
         same_file(file_of(a, "model.safetensors"), file_of(b, "model.safetensors"));
}

// The run with which others are compared, made once.
static const char *whole(void) {
  static const char name[] = "classes-whole";
  const char *said;
  if (folder_fetch(name)) return name;
  EXPECT_INT(run(name, "", &said), 0);
  folder_keep(name);
  return name;
}

// ---- the same run -----------------------------------------------------------------------------------------------

// Stopped amidst phases and at their ends: rates, augmentation, dropout and Adam's moments go on as they were.
TEST_TIER(classes_resume_is_the_same_run, 1) {
  const char *said;
  static const int stops[] = {4, 2, 5, 3};
  for (int i = 0; i < COUNT(stops); i++) {
    char more[64];
    snprintf(more, sizeof more, "--stop-after %d", stops[i]);
    EXPECT_INT(run("classes-parts", more, &said), 0);
  }
  EXPECT_INT(run("classes-parts", "", &said), 0);
  EXPECT(strstr(said, "at step 14 of 18"));
  EXPECT(same_state(whole(), "classes-parts"));
}

// With averages of the weights, which are what is stored as the model.
TEST_TIER(classes_resume_averages, 1) {
  const char *said;
  EXPECT_INT(run("classes-ema", "--ema 0.9", &said), 0);
  EXPECT_INT(run("classes-ema-parts", "--ema 0.9 --stop-after 7", &said), 0);
  EXPECT_INT(run("classes-ema-parts", "", &said), 2);
  EXPECT(strstr(said, "ema"));
  EXPECT_INT(run("classes-ema-parts", "--ema 0.9", &said), 0);
  EXPECT(same_state("classes-ema", "classes-ema-parts"));
  EXPECT(!same_file(file_of("classes-ema", "model.safetensors"), file_of(whole(), "model.safetensors")));
}

// Killed ever later, until it is done.
TEST_TIER(classes_survive_kills, 1) {
  const char *said;
  char before[64];
  int status = -1, kills = 0;
  for (double after = 0.05; status != 0 && after < 20; after *= 1.3, kills++) {
    snprintf(before, sizeof before, "exec timeout -s KILL %.2f", after);
    status = command(&said, "%s", run_line(before, "classes-killed", "--checkpoint-every 2"));
  }
  EXPECT(status == 0 && kills > 1);
  EXPECT(same_state(whole(), "classes-killed"));
}

// A recorded step draws anew, moments cross by the copies of a GPU.
TEST_TIER(classes_on_a_stand_in_of_a_gpu, 1) {
  const char *said;
  char line[1536];
  snprintf(line, sizeof line,
           "OMP_NUM_THREADS=1 %s --data %s --out %s --weights %s --batch 16 --optimizer adamw "
           "--phases %s --seed 5 --threads 1 --device cuda:0 --resume",
           tool("faulty/train"), idx_set(), in_tmp("classes-gpu"), narrow_net(), phases);
  if (!EXPECT_INT(command(&said, "%s --stop-after 7", line), 0)) fprintf(stderr, "%s\n", said);
  EXPECT_INT(command(&said, "%s", line), 0);
  EXPECT(same_file(file_of(whole(), "model.safetensors"), file_of("classes-gpu", "model.safetensors")));
}

// Two ranks share a batch: the same images, dropped out alike, evaluated as one rank does.
TEST_TIER(classes_of_two_ranks, 1) {
  const char *said;
  EXPECT_INT(run("classes-ranks", "--batch 8 --gpus 2 --stop-after 8", &said), 0);
  EXPECT_INT(run("classes-ranks", "--batch 8 --gpus 2", &said), 0);
  EXPECT(strstr(said, "at step 8 of 18") && strstr(said, "step 18: top-1 "));
  EXPECT_INT(run("classes-two", "--batch 8 --gpus 2", &said), 0);
  EXPECT(same_state("classes-two", "classes-ranks"));
}

// ---- what it leaves ---------------------------------------------------------------------------------------------

// The last number under a key at any depth; -1 where there is none.
static double number_in(const char *file, const char *key) {
  char *text = file_read(in_tmp(file), &(size_t){0}, NULL), *quoted = xasprintf("\"%s\":", key);
  double value = -1;
  for (const char *at = text; at && (at = strstr(at, quoted)); at++) value = atof(at + strlen(quoted));
  free(quoted);
  free(text);
  return value;
}

TEST_TIER(classes_files_of_a_run, 1) {
  static const char *const there[] = {"run.json", "confusion.txt", "confusion.json", "report.html",
                                      "best-top1.safetensors"};
  char run_json[64];
  whole();
  for (int i = 0; i < COUNT(there); i++) EXPECT(path_is_file(file_of(whole(), there[i])));
  snprintf(run_json, sizeof run_json, "%s/run.json", whole());
  char *text = file_read(in_tmp(run_json), &(size_t){0}, NULL);
  static const char *const says[] = {"\"complete\":true",
                                     "\"step\":18",
                                     "\"classes\":6",
                                     "\"images\":96",
                                     "\"val_images\":36",
                                     "\"optimizer\":{\"value\":\"adamw\",\"from\":\"given\"}",
                                     "\"augment\":true",
                                     "\"first_step\":13,",
                                     "\"lr\":0.01,",
                                     "\"machine\":{",
                                     "\"build_seconds\":",
                                     "\"best_val_top1_step\":",
                                     "\"time\":[{\"name\":\"training steps\",\"seconds\":"};
  for (int i = 0; i < COUNT(says); i++)
    if (!EXPECT(text && strstr(text, says[i]))) printf("    %s\n", says[i]);
  free(text);
  // Of the last phase's last evaluation, which is the run's, and stands in the log and the confusion.
  char log[64], confusion[64];
  snprintf(log, sizeof log, "%s/log.jsonl", whole());
  snprintf(confusion, sizeof confusion, "%s/confusion.json", whole());
  const double top1 = number_in(run_json, "val_top1");
  EXPECT(top1 >= 0 && top1 == number_in(log, "val_top1") && fabs(top1 - number_in(confusion, "top1")) < 1e-9);
}

// Three steps an epoch, each beside an evaluation, before which results are taken together: images a second are those
// of all steps.
TEST_TIER(classes_tell_the_speed_of_short_epochs, 1) {
  const char *said, *run_json = "classes-short/run.json";
  EXPECT_INT(run("classes-short", "--batch 32 --phases 2@1e-3", &said), 0);
  EXPECT_NEAR(number_in(run_json, "img_s") * number_in(run_json, "seconds"), 32 * 6, 1e-6);
  // Results are taken together at checkpoints, too: two of three intervals are next to nothing.
  EXPECT_INT(run("classes-often-saved", "--batch 32 --phases 13@1e-3 --eval-every never --checkpoint-every 3", &said),
             0);
  const double of_all = number_in("classes-often-saved/run.json", "img_s") *
                        number_in("classes-often-saved/run.json", "seconds") / (32 * 39);
  if (!EXPECT(of_all > 0.1 && of_all < 10)) printf("    %g times the mean speed\n", of_all);
}

// ---- folders, and options ---------------------------------------------------------------------------------------

TEST_TIER(classes_of_folders, 1) {
  const char *said;
  char line[1024];
  CHECK(!command(&said, "%s --folders --out %s --train 48 --val 12 --size 40", tool("shapes"), in_tmp("tree")));
  snprintf(line, sizeof line,
           "OMP_NUM_THREADS=1 %s --data %s --weights %s --reset-heads --batch 8 --threads 1 --device cpu",
           tool("train"), in_tmp("tree"), narrow_net());
  if (!EXPECT_INT(command(&said, "%s --out %s --epochs 2 --val-loss --patience 9", line, in_tmp("of-tree")), 0))
    fprintf(stderr, "%s\n", said);
  char *facts = file_read(in_tmp("of-tree/run.json"), &(size_t){0}, NULL);
  EXPECT(facts && strstr(facts, "\"crop\":{\"value\":0.08,") && strstr(facts, "\"flip\":{\"value\":0.5,") &&
         strstr(facts, "\"schedule\":{\"value\":\"cosine\","));
  free(facts);
  EXPECT(strstr(said, " %  loss "));
  EXPECT_INT(command(&said, "%s --out %s --epochs 2 --target-top1 0", line, in_tmp("to-target")), 0);
  EXPECT(strstr(said, "stopped early: step 6 reached the targets, val_top1 ") &&
         strstr(said, "\"target_val_top1\":0,"));
  EXPECT_INT(command(&said, "%s --plan", line), 0);
  EXPECT(strstr(said, "class_loss") && strstr(said, "probabilities of in-flight batches"));
  CHECK(!command(NULL, "rm -r %s/val", in_tmp("tree")));
  EXPECT_INT(command(&said, "%s --out %s --iters 2", line, in_tmp("no-val")), 0);
  EXPECT(strstr(said, "note: the run will not evaluate: ") && strstr(said, "--val-fraction 0.2 would"));
  EXPECT_INT(command(&said, "%s --out %s --iters 2 --val-fraction 0.25", line, in_tmp("held-out")), 0);
  EXPECT(strstr(said, "step 2: top-1 "));
  EXPECT_INT(command(&said, "%s --benchmark-loader 4", line), 0);
}

// A net whose fully connected layers see what its convolutions leave is for images of one size.
TEST_TIER(classes_of_another_size, 1) {
  const char *said;
  EXPECT_INT(command(&said,
                     "%s --model vgg-28 --size 8 --data %s --out %s --batch 6 --iters 1 --val-limit 6 "
                     "--device cpu",
                     tool("train"), idx_set(), in_tmp("of-size")),
             0);
  EXPECT_INT(command(&said, "%s --weights %s --data %s --out %s --size 12 --device cpu", tool("infer"),
                     file_of("of-size", "model.safetensors"), idx_set(), in_tmp("sized")),
             2);
  EXPECT(strstr(said, "the shape of fully connected layers depends on the image size: leave --size out; "));
}

// Names as long as those of iNaturalist, and longer: what was trained finds its classes again by them.
TEST_TIER(classes_of_long_names, 1) {
  const char *said, *tree = in_tmp("long-names");
  CHECK(!command(&said, "%s --folders --out %s --train 12 --val 6 --size 16", tool("shapes"), tree));
  CHECK(!command(&said,
                 "cd %s && for s in train val; do for f in $s/*; do mv $f $s/$(printf 'Animalia_%%0230d' 0)_${f##*/}; "
                 "done; done",
                 tree));
  EXPECT_INT(command(&said, "%s --data %s --out %s --weights %s --reset-heads --batch 6 --iters 1 --device cpu",
                     tool("train"), tree, in_tmp("of-long-names"), narrow_net()),
             0);
  const char *weights = file_of("of-long-names", "model.safetensors");
  if (!EXPECT_INT(command(&said, "%s --weights %s --data %s --out %s --device cpu", tool("infer"), weights, tree,
                          in_tmp("named-long")),
                  0))
    fprintf(stderr, "%s\n", said);
  EXPECT(same_file(file_of("of-long-names", "confusion.json"), file_of("named-long", "confusion.json")));
}

// A rate that no run survives is halved from where it began.
TEST_TIER(classes_roll_back, 1) {
  const char *said;
  EXPECT_INT(command(&said,
                     "OMP_NUM_THREADS=1 %s --data %s --out %s --weights %s --batch 16 --phases 1@1e6,1@1e5 "
                     "--threads 1 --device cpu --eval-every never --on-divergence rollback",
                     tool("train"), idx_set(), in_tmp("classes-diverged"), narrow_net()),
             1);
  EXPECT(strstr(said, "rolling back, 3 of 3") && strstr(said, " --phases 1@62500,1@6250"));
}

static void expect_mistake(const char *says, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void expect_mistake(const char *says, const char *fmt, ...) {
  char train[1024];
  va_list args;
  snprintf(train, sizeof train, "%s --model resnet18 --size 12 --device cpu --out %s", tool("train"),
           in_tmp("mistakes"));
  va_start(args, fmt);
  expect_mistake_of(train, says, fmt, args);
  va_end(args);
}

TEST_TIER(classes_mistakes, 1) {
  const char *d = idx_set(), *cut = in_tmp("cut-set");
  expect_mistake("no such folder", "--data /nowhere");
  expect_mistake("neither IDX files", "--data %s", shapes_set());
  expect_mistake(", which detectors cannot train on: choose a classifier as --model", "--data %s --model tiny", d);
  expect_mistake(": the splits of a classification data set are train, val and test",
                 "--data %s --val-split validation", d);
  expect_mistake("expected EPOCHS@RATE", "--data %s --phases 10", d);
  expect_mistake("cannot be combined", "--data %s --phases 1@1 --epochs 3", d);
  expect_mistake("--sizes is for detectors", "--data %s --sizes 12,16", d);
  expect_mistake("--conventions is for detectors", "--data %s --conventions mlperf", d);
  expect_mistake("--label-smoothing takes", "--data %s --label-smoothing 2", d);
  expect_mistake("--optimizer takes", "--data %s --optimizer rmsprop", d);
  expect_mistake("--beta2 takes", "--data %s --beta2 1", d);
  expect_mistake("--split-seed needs --val-fraction P", "--data %s --split-seed 3", d);
  expect_mistake("--val-split train and --val-fraction cannot be combined",
                 "--data %s --val-fraction 0.2 --val-split train", d);
  expect_mistake("--patience counts", "--data %s --patience 2 --eval-every never", d);
  CHECK(!command(NULL,
                 "cp -r %s %s && head -c 900 %s/train-images-idx3-ubyte.gz >%s/t && mv %s/t "
                 "%s/train-images-idx3-ubyte.gz",
                 d, cut, d, cut, cut, cut));
  expect_mistake("train-images-idx3-ubyte.gz", "--data %s", cut);
  EXPECT(!path_is_file(in_tmp("mistakes/checkpoint.safetensors")));
}

// What a checkpoint was made with, it goes on with; --amend changes phases, not the optimiser.
TEST_TIER(classes_runs_go_on_as_they_began, 1) {
  const char *said;
  EXPECT_INT(run("classes-other", "--stop-after 2", &said), 0);
  EXPECT_INT(run("classes-other", "--optimizer sgd", &said), 2);
  EXPECT(strstr(said, "its run used --optimizer adam or adamw: give the same --optimizer") ||
         strstr(said, "\"weight_decay\""));
  EXPECT_INT(run("classes-other", "--beta2 0.99", &said), 2);
  EXPECT(strstr(said, "it was made with \"beta2\":0.999, but this run has \"beta2\":0.99: "));
  EXPECT_INT(run("classes-other", "--zoom 0.3", &said), 2);
  EXPECT(strstr(said, "\"zoom\":0.08"));
  EXPECT_INT(run("classes-other", "--phases 1@1e-2,1@1e-3", &said), 2);
  EXPECT(strstr(said, "--amend"));
  EXPECT_INT(run("classes-other", "--phases 1@1e-2,1@1e-4 --amend", &said), 0);
  EXPECT(strstr(said, "\"schedule\":[\"1@0.01,1@0.001,1@0.001\",\"1@0.01,1@0.0001\"]"));
  char *text = file_read(in_tmp("classes-other/run.json"), &(size_t){0}, NULL);
  const char *mark = text ? strstr(text, "\"amended\":2,\"first_step\":1,") : NULL; // of the phase that it fell into
  EXPECT(mark && !strstr(mark + 1, "\"amended\""));
  free(text);
}

// Classes have no annotations: what is repeated follows from labels.
TEST_TIER(classes_that_are_rare_are_repeated, 1) {
  const char *said, *set = in_tmp("rare-classes");
  char *data = xstrdup(set);
  EXPECT_INT(command(&said, "%s --out %s --idx --train 40 --val 8", tool("shapes"), data), 0);
  EXPECT_INT(command(&said,
                     "%s --data %s --model vgg-28 --batch 8 --iters 1 --device cpu --eval-every never --out %s "
                     "--repeat-threshold 0.9",
                     tool("train"), data, in_tmp("rare-run")),
             0);
  EXPECT(strstr(said, "note: an epoch has ") && strstr(said, " images instead of 40: those with rare categories"));
  free(data);
}
