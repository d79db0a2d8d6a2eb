// Catches programs that compare the categories of two data sets only by ids or only by names.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static void expect_mistake(const char *says, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void expect_mistake(const char *says, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  expect_mistake_of("", says, fmt, args);
  va_end(args);
}

// val.json of another tool: the names of train under other ids, or wholly other names.
static char *other_ids(const char *name, const char *splits, const char *expression) {
  char *set = xstrdup(in_tmp(name));
  CHECK(!command(NULL, "cp -r %s %s && cd %s/annotations && sed -E -i '%s' instances_%s.json", shapes_set(), set, set,
                 expression, splits));
  return set;
}

static char *metrics_of(const char *set, const char *weights, const char *out) {
  EXPECT_INT(command(NULL, "%s --device cpu --eval --weights %s/model.safetensors --data %s --out %s", tool("infer"),
                     weights, set, in_tmp(out)),
             0);
  char *path = xasprintf("%s/scores.json", in_tmp(out)), *text = file_read(path, &(size_t){0}, NULL);
  CHECK(text && strstr(text, "\"metrics\":"));
  char *metrics = xasprintf("%.400s", strstr(text, "\"metrics\":"));
  free(text);
  free(path);
  return metrics;
}

// The number of what was scored. malloc'ed.
static char *set_of(const char *out) {
  char *path = xasprintf("%s/scores.json", in_tmp(out)), *text = file_read(path, &(size_t){0}, NULL);
  const char *set = text ? strstr(text, "\"scored_set\":") : NULL;
  char *number = xasprintf("%.20s", EXPECT(set) ? set + strlen("\"scored_set\":") : "");
  number[strspn(number, "0123456789")] = '\0';
  free(text);
  free(path);
  return number;
}

// The ids turn by one, and names stay with their objects.
#define TURNED                                                                                                         \
  "s/\"(id|category_id)\":([1-6]),\"(name|iscrowd)/\"\\1\":x\\2,\"\\3/g; s/:x6/:1/g; s/:x5/:6/g; s/:x4/:5/g; "         \
  "s/:x3/:4/g; "                                                                                                       \
  "s/:x2/:3/g; s/:x1/:2/g"

TEST_TIER(program_maps_categories_by_name, 1) {
  const char *said;
  char train[512], *turned = other_ids("names-turned", "val", TURNED),
                   *renamed = other_ids("names-otherwise", "val", "s/\"name\":\"/&thing/g");
  if (!EXPECT_INT(train_shapes("", "named-run", "--iters 4"), 0)) return;
  char *run = xstrdup(in_tmp("named-run"));
  char *as_is = metrics_of(shapes_set(), run, "scores-as-is"), *mapped = metrics_of(turned, run, "scores-mapped");
  EXPECT_STR(mapped, as_is);
  free(mapped);
  // The same objects under other ids are the same set; with their names exchanged they are another one.
  char *swapped = other_ids("names-swapped", "val", "s/\"disc\"/\"x\"/; s/\"ring\"/\"disc\"/; s/\"x\"/\"ring\"/");
  free(metrics_of(swapped, run, "scores-swapped"));
  char *set = set_of("scores-as-is"), *same = set_of("scores-mapped"), *other = set_of("scores-swapped");
  EXPECT_STR(same, set);
  EXPECT(strcmp(other, set));
  free(set);
  free(same);
  free(other);
  free(swapped);
  snprintf(train, sizeof train, "%s --device cpu --model tiny --size 64 --batch 2 --iters 1 --detections 20",
           tool("train"));
  EXPECT_INT(command(&said, "%s --data %s --out %s", train, turned, in_tmp("on-turned")), 0);
  EXPECT(strstr(said, "categories are mapped by name: 1 ring to 6, 2 disc to 1, 3 square to 2"));
  EXPECT_INT(command(&said, "%s --model tiny --data %s", tool("doctor"), turned), 0);
  EXPECT(strstr(said, "categories are mapped by name: 1 ring to 6, 2 disc to 1, 3 square to 2"));
  expect_mistake("thingdisc (there it is 1 disc), ", "%s --data %s --out %s", train, renamed, in_tmp("on-renamed"));
  EXPECT_INT(command(&said, "%s --model tiny --data %s", tool("doctor"), renamed), 1);
  EXPECT(strstr(said, "thingdisc (there it is 1 disc), "));
  expect_mistake("thingdisc (there it is 1 disc), ", "%s --eval --weights %s/model.safetensors --data %s --out %s",
                 tool("infer"), run, renamed, in_tmp("scored-renamed"));
  EXPECT(!path_is_dir(in_tmp("on-renamed")));
  // Weights whose outputs are for other ids: a step of no length leaves scores as they are.
  char *from = xstrdup(in_tmp("from-turned"));
  char *both = other_ids("names-turned-both", "*", TURNED);
  EXPECT_INT(command(&said, "%s --lr 1e-20 --weights %s/model.safetensors --data %s --out %s", train, run, both,
                     in_tmp("from-turned")),
             0);
  EXPECT(strstr(said, "categories are mapped by name: 1 ring to 6, 2 disc to 1, 3 square to 2"));
  mapped = metrics_of(shapes_set(), from, "scores-from-turned");
  EXPECT_STR(mapped, as_is);
  free(mapped);
  free(as_is);
  free(both);
  free(from);
  char *none = other_ids("names-none", "*", "s/\"categories\"/\"classes\"/");
  expect_mistake("instances_train.json: no list \"categories\"; add one", "%s --data %s --out %s", train, none,
                 in_tmp("on-none"));
  expect_mistake("instances_val.json: no list \"categories\"; add one",
                 "%s --eval --weights %s/model.safetensors --data %s --out %s", tool("infer"), run, none,
                 in_tmp("scored-none"));
  expect_mistake("instances_val.json: no list \"categories\"; add one",
                 "%s --gt %s/annotations/instances_val.json --dt %s/scores-mapped/detections.json", tool("cocoeval"),
                 none, test_tmp());
  EXPECT_INT(command(NULL, "%s --device cpu --weights %s/model.safetensors --data %s --out %s", tool("infer"), run,
                     none, in_tmp("found-in-none")),
             0);
  free(none);
  free(run);
  free(turned);
  free(renamed);
}

// Training, its evaluation and infer --eval see the classes of --classes alone.
TEST_TIER(program_trains_on_some_classes, 1) {
  const char *said;
  if (!EXPECT_INT(train_shapes("", "some-classes", "--iters 2 --eval-every end --classes ring,1"), 0)) return;
  char *run = xstrdup(in_tmp("some-classes"));
  EXPECT_INT(command(&said, "%s --device cpu --eval --weights %s/model.safetensors --data %s --out %s", tool("infer"),
                     run, shapes_set(), in_tmp("some-scores")),
             0);
  EXPECT(strstr(said, "instances_val.json: 2 of 6 categories are used; "));
  EXPECT(strstr(said, "  disc  ") && strstr(said, "  ring  ") && !strstr(said, "  cross  "));
  EXPECT_INT(command(&said, "grep -c '\"category_id\":[2-5]' %s/detections.json", in_tmp("some-scores")), 1);
  EXPECT_INT(train_shapes("", "some-classes", "--iters 2 --resume --classes ring"), 2);
  free(run);
}
