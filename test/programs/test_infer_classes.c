// Catches infer giving other classes for the same image when it comes from a folder, a list or several ranks.
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "test/harness/command.h"
#include "test/harness/library.h"
#include "test/harness/test.h"

enum { VAL = 13 };

// Photographs by class, so large that they are divided before the network looks at them, in folders with the names of
// the classifier's classes; made once.
static const char *folders(void) {
  static char path[512];
  if (*path) return path;
  snprintf(path, sizeof path, "%s", test_kept("by-class"));
  CHECK(!command(NULL, "%s --folders --size 200 --train 7 --val %d --out %s", tool("shapes"), VAL, path));
  CHECK(!command(NULL, "cd %s/val && i=0 && for f in *; do mv \"$f\" \"kind $i\"; i=$((i + 1)); done", path));
  return path;
}

// "exec env … infer --weights WEIGHTS --out OUT", OUT under test_tmp().
static const char *line(const char *out) {
  static char text[2048];
  snprintf(text, sizeof text, "exec env OMP_NUM_THREADS=1 %s --weights %s --device cpu --out %s/%s", tool("infer"),
           library_classifier(), test_tmp(), out);
  return text;
}

static char *read_out(const char *file) {
  size_t size;
  Err err;
  char *text = file_read(in_tmp(file), &size, &err);
  if (!EXPECT(text)) fprintf(stderr, "%s\n", err.msg);
  return text ? text : xstrdup("");
}

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) n++;
  return n;
}

// What stands behind `"classes":` in the line of the file whose name ends so; "" where there is none.
static char *classes_of(const char *lines, const char *file) {
  char *key = xasprintf("%s\",", file);
  const char *at = strstr(lines, key), *list = at ? strstr(at, "\"classes\":") : NULL;
  free(key);
  if (!list) return xstrdup("");
  return xasprintf("%.*s", (int)strcspn(list, "\n"), list);
}

// Loose images in batches, a list, and a data set: photographs are divided, cut out and resized alike.
TEST(infer_classes_are_the_same_from_folders_lists_and_sets) {
  const char *said;
  EXPECT_INT(command(&said, "%s --batch 3 %s/val/*", line("loose-classes"), folders()), 0);
  EXPECT_INT(count_of(said, ", kind "), 4 * VAL);
  EXPECT(strstr(said, "from decoded images to classes, 3 in flight\n"));
  EXPECT_INT(command(&said, "find %s/val -name '*.png' | sort | %s --top 5 -", folders(),
                     line("listed-classes") + strlen("exec ")),
             0);
  EXPECT_INT(command(&said, "%s --batch 2 --data %s", line("class-set"), folders()), 0);
  char *loose = read_out("loose-classes/classes.jsonl"), *listed = read_out("listed-classes/classes.jsonl"),
       *set = read_out("class-set/classes.jsonl");
  EXPECT_INT(count_of(loose, "\n"), VAL);
  EXPECT_INT(count_of(listed, "\n"), VAL);
  EXPECT_INT(count_of(set, "\n"), VAL);
  int images = 0;
  for (const char *at = set; (at = strstr(at, "{\"file\":\"")); images++) {
    at += strlen("{\"file\":\"");
    char *file = xasprintf("%.*s", (int)strcspn(at, "\""), at), *a = classes_of(set, file),
         *b = classes_of(loose, file), *c = classes_of(listed, file);
    EXPECT_INT(count_of(a, "\"score\":"), 5);
    EXPECT_STR(b, a);
    EXPECT_STR(c, a);
    free(file);
    free(a);
    free(b);
    free(c);
  }
  EXPECT_INT(images, VAL);
  free(loose);
  free(listed);
  free(set);
}

typedef struct Read { // of classes.jsonl
  int images, right;
} Read;

static Read read_lines(char *text) {
  Read r = {0};
  for (char *at = text, *end; *at; at = end + 1) {
    Json j;
    char truth[32] = "", first[32] = "";
    const char *key;
    end = strchr(at, '\n');
    json_open(&j, "classes.jsonl", at, (size_t)(end - at));
    if (json_begin_object(&j))
      while ((key = json_key(&j))) {
        if (!strcmp(key, "truth")) {
          snprintf(truth, sizeof truth, "%s", json_string(&j, NULL));
        } else if (!strcmp(key, "classes") && json_begin_array(&j)) {
          for (int i = 0; json_next(&j); i++)
            if (json_begin_object(&j))
              while ((key = json_key(&j))) {
                if (i == 0 && !strcmp(key, "name"))
                  snprintf(first, sizeof first, "%s", json_string(&j, NULL));
                else
                  json_skip(&j);
              }
        } else {
          json_skip(&j);
        }
      }
    EXPECT(json_done(&j));
    json_close(&j);
    r.images++;
    r.right += *truth && !strcmp(truth, first);
  }
  return r;
}

TEST(infer_scores_classes_of_idx) {
  const char *said;
  char wanted[96];
  EXPECT_INT(command(&said, "%s --idx --train 7 --val 30 --out %s", tool("shapes"), in_tmp("infer-idx")), 0);
  EXPECT_INT(command(&said, "%s --data %s", line("idx-out"), in_tmp("infer-idx")), 2);
  EXPECT(strstr(said, "/classes.txt: ") && strstr(said, " categories are not in "));
  CHECK(!command(NULL, "rm %s/classes.txt", in_tmp("infer-idx")));
  EXPECT_INT(command(&said, "%s --data %s --split tset", line("idx-out"), in_tmp("infer-idx")), 2);
  EXPECT(strstr(said, "split tset: the splits of a classification data set are train, val and test"));
  EXPECT_INT(command(&said, "%s --top 1 --data %s", line("idx-out"), in_tmp("infer-idx")), 0);
  char *text = read_out("idx-out/classes.jsonl"), *out = xstrdup(said);
  const Read r = read_lines(text);
  EXPECT_INT(r.images, 30);
  EXPECT_INT(count_of(text, "\"score\":"), 30);
  snprintf(wanted, sizeof wanted, "top-1 %.2f %%: %d of 30 images of 7 classes\n", r.right / 0.3, r.right);
  if (!EXPECT(strstr(out, wanted))) fprintf(stderr, "wanted %ssaid %s\n", wanted, out);
  snprintf(wanted, sizeof wanted, "top-1 %.2f %%  top-5 ", r.right / 0.3);
  EXPECT(strstr(out, wanted) && strstr(out, " on 30 images\n"));
  char *json = read_out("idx-out/confusion.json"), *table = read_out("idx-out/confusion.txt");
  snprintf(wanted, sizeof wanted, "{\"classes\":7,\"images\":30,\"right\":%d,", r.right);
  EXPECT(strstr(json, wanted) && strstr(out, table));
  char *page = read_out("idx-out/evaluation.html");
  snprintf(wanted, sizeof wanted, "\"scores\":\"top-1 %.2f %%  top-5 ", r.right / 0.3);
  EXPECT(strstr(page, wanted) && strstr(page, "kind 6") && strstr(page, "\"kind\":\"scores\""));
  free(page);
  free(text);
  free(out);
  free(json);
  free(table);
}

// Shared out over ranks: the same lines in the same order.
TEST_TIER(infer_classes_over_ranks, 1) {
  const char *said;
  EXPECT_INT(command(&said, "%s --data %s", line("rank-1"), folders()), 0);
  if (!EXPECT_INT(command(&said, "%s --gpus 3 --data %s", line("rank-3"), folders()), 0)) fprintf(stderr, "%s", said);
  EXPECT(same_file(in_tmp("rank-1/classes.jsonl"), in_tmp("rank-3/classes.jsonl")));
  EXPECT(same_file(in_tmp("rank-1/confusion.json"), in_tmp("rank-3/confusion.json")));
}

TEST(infer_benchmarks_a_classifier) {
  const char *said;
  EXPECT_INT(command(&said, "%s --data %s --batch 4 --benchmark 4", line("bench-classes"), folders()), 0);
  EXPECT(strstr(said, "\"bench\":\"infer\",\"model\":\"resnet\"") && strstr(said, "\"img_s\":"));
  EXPECT(strstr(said, "\"latency_ms_p99\":") && !strstr(said, "\"top1\"") && !strstr(said, "mask_pixels"));
  EXPECT(access(in_tmp("bench-classes"), F_OK) != 0);
}

static void expect_refused(const char *says, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void expect_refused(const char *says, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  expect_mistake_of(line("refused-classes"), says, fmt, args);
  va_end(args);
}

TEST(infer_refuses_a_detector_s_options_for_a_classifier) {
  static const char *const options[] = {"--tile 64",     "--labels l",   "--crops c",     "--polygons",
                                        "--classes cat", "--overlays 3", "--max-size 99", "--score 0.5"};
  for (int i = 0; i < COUNT(options); i++) {
    char says[96];
    snprintf(says, sizeof says, "infer: %.*s is for detectors, but ", (int)strcspn(options[i], " "), options[i]);
    expect_refused(says, "%s %s/val/*", options[i], folders());
  }
  char *set = xstrdup(in_tmp("strangers"));
  CHECK(!command(NULL, "cp -r %s %s && mv '%s/val/kind 2' %s/val/dog", folders(), set, set, set));
  expect_refused("/val: 1 category is not in ", "--data %s", set);
  expect_refused("neither IDX files", "--data %s/val", shapes_set());
  CHECK(!command(NULL, "mv %s/val/dog '%s/val/kind 2'", set, set));
  expect_refused(" is the folder of the input images; choose another one", "--data %s --out %s", set, set);
  expect_refused(" is an input of this run and would be overwritten; choose another output file or folder",
                 "--data %s --json %s", set, library_classifier());
  expect_refused("--val-fraction was removed in 1.3; leave it out", "--data %s --val-fraction 0.2", set);
  expect_refused("not a JPEG or PNG file; convert it", "%s", library_classifier());
  EXPECT(access(in_tmp("refused-classes"), F_OK) != 0);
  free(set);
}

// What was found stands in a file of its own where a disk is full before the end.
TEST_TIER(infer_keeps_the_classes_of_a_full_disk, 1) {
  const char *said;
  char limited[2600];
  snprintf(limited, sizeof limited, "ulimit -f 2; %s --data %s --top 7", line("full-classes"), folders());
  EXPECT_INT(command(&said, "%s", limited), 1);
  if (!EXPECT(strstr(said, "classes.jsonl.partial holds the classes of "))) fprintf(stderr, "%s", said);
  EXPECT(access(in_tmp("full-classes/classes.jsonl"), F_OK) != 0);
  char *text = read_out("full-classes/classes.jsonl.partial");
  const Read r = read_lines(text);
  EXPECT(r.images > 0 && r.images < VAL);
  free(text);
}

// One function decides what a classifier sees, in training's evaluation and here: of photographs that are divided and
// cut out, and of IDX images, which are seen whole.
static void scores_what_training_scored(const char *data, const char *name) {
  const char *said;
  char trained[512], out[96], json[2][160];
  snprintf(trained, sizeof trained, "%s", in_tmp(name));
  snprintf(out, sizeof out, "%s-infer", name);
  snprintf(json[0], sizeof json[0], "%s/confusion.json", name);
  snprintf(json[1], sizeof json[1], "%s/confusion.json", out);
  const int status = command(
      &said,
      "OMP_NUM_THREADS=1 %s --weights %s --reset-heads --size 40 --data %s --batch 8 --epochs 1 --device cpu --out %s",
      tool("train"), library_classifier(), data, trained);
  if (!EXPECT_INT(status, 0)) fprintf(stderr, "%s", said);
  EXPECT_INT(command(&said, "OMP_NUM_THREADS=1 %s --weights %s/model.safetensors --device cpu --data %s --out %s",
                     tool("infer"), trained, data, in_tmp(out)),
             0);
  EXPECT(same_file(in_tmp(json[0]), in_tmp(json[1])));
  char *text = read_out(json[0]);
  EXPECT(strstr(text, "\"top1\":") && !strstr(text, "\"predicted\":30,")); // or every net would pass
  free(text);
}

// Folders without a split: the weights know what training held out, also in a copy that got more images since.
TEST_TIER(infer_scores_what_training_held_out, 1) {
  const char *said;
  char data[512], trained[512];
  snprintf(data, sizeof data, "%s/train", in_tmp("flat"));
  snprintf(trained, sizeof trained, "%s", in_tmp("flat-run"));
  CHECK(!command(NULL, "%s --folders --size 40 --train 30 --val 13 --out %s", tool("shapes"), in_tmp("flat")));
  EXPECT_INT(command(&said,
                     "OMP_NUM_THREADS=1 %s --model resnet18 --size 40 --data %s --batch 8 --epochs 1 --device cpu "
                     "--val-fraction 0.4 --split-seed 7 --out %s",
                     tool("train"), data, trained),
             0);
  CHECK(!command(NULL,
                 "cd %s && mv flat/train flat-moved && cd flat-moved && "
                 "for k in *; do set -- \"$k\"/*; cp \"$1\" \"$k/later.png\"; done",
                 test_tmp()));
  char *line = xasprintf("OMP_NUM_THREADS=1 %s --weights %s/model.safetensors --device cpu --data %s --out %s",
                         tool("infer"), trained, in_tmp("flat-moved"), in_tmp("flat-infer"));
  EXPECT_INT(command(&said, "%s", line), 0);
  if (!EXPECT(!strstr(said, "used for training") && strstr(said, "neither trained on nor held out"))) puts(said);
  EXPECT(same_file(in_tmp("flat-run/confusion.json"), in_tmp("flat-infer/confusion.json")));
  EXPECT_INT(command(&said, "%s --split train", line), 0);
  EXPECT(strstr(said, " of them were used for training: not a held-out score\n"));
  free(line);
}

TEST_TIER(infer_scores_what_training_scored, 1) {
  char data[2][512];
  for (int i = 0; i < 2; i++) {
    snprintf(data[i], sizeof data[i], "%s", in_tmp(i ? "train-idx" : "train-folders"));
    CHECK(!command(NULL, "%s %s --train 24 --val 30 --out %s", tool("shapes"), i ? "--idx" : "--folders --size 200",
                   data[i]));
  }
  scores_what_training_scored(data[0], "trained-folders");
  scores_what_training_scored(data[1], "trained-idx");
}
