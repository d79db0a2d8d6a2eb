// Catches options of infer that contradict each other and are silently accepted.
#include <string.h>
#include "inference/options.h"
#include "test/harness/child.h"
#include "test/harness/test.h"

enum { MOST = 12 };
#define DATA "--weights", "w", "--data", "d"
#define NAMED "--weights", "w", "a.png"

typedef struct Given {
  const char *says; // NULL: they go together
  char *args[MOST];
} Given;

static InferOptions parsed(const Given *g) {
  char *argv[MOST + 2] = {(char *)"infer"};
  int n = 1;
  for (int i = 0; i < MOST && g->args[i]; i++) argv[n++] = g->args[i];
  return infer_options(n, argv);
}

static void parse(void *given) { (void)parsed(given); }

TEST(infer_options_that_do_not_go_together) {
  static Given cases[] = {
      {"--weights FILE is missing", {"a.png"}},
      {"give either images or --data DIR", {"--weights", "w"}},
      {"give either images or --data DIR", {DATA, "a.png"}},
      {"--eval needs --data", {NAMED, "--eval"}},
      {"--benchmark needs --data", {NAMED, "--benchmark"}},
      {"--profile needs --benchmark", {DATA, "--profile"}},
      {"--energy needs --benchmark", {DATA, "--energy", "1"}},
      {"--gpus needs --data DIR", {NAMED, "--gpus", "2"}},
      {"--labels works on named images only", {DATA, "--labels", "l"}},
      {"--crops works on named images only", {DATA, "--crops", "c"}},
      {"--val-fraction was removed in 1.3; leave it out", {DATA, "--val-fraction", "0.5"}},
      {"--tile works on named images only", {DATA, "--tile", "512"}},
      {"--tile 31 is too small: a tile's side must be at least 32 pixels", {NAMED, "--tile", "31"}},
      {"--label-values needs --labels", {NAMED, "--label-values", "classes"}},
      {"--crop-alpha needs --crops", {NAMED, "--crop-alpha"}},
      {"--benchmark cannot be combined with --eval", {DATA, "--benchmark", "--eval"}},
      {NULL, {NAMED, "--tile", "32", "--labels", "l", "--label-values", "classes", "--crops", "c"}},
      {NULL, {DATA, "--benchmark", "--profile", "--energy", "1"}},
      {NULL, {DATA, "--eval", "--split", "train", "--gpus", "2"}},
  };
  for (int i = 0; i < COUNT(cases); i++) {
    const char *said;
    const int status = run_in_child(parse, &cases[i], &said);
    EXPECT_INT(status, cases[i].says ? EXIT_USAGE : 0);
    if (!EXPECT(cases[i].says ? strstr(said, cases[i].says) != NULL : !*said))
      printf("    case %d: \"%s\" instead of \"%s\"\n", i, said, cases[i].says ? cases[i].says : "");
  }
}

// Images of a data set come in batches of one; how many of those that are named, the device decides.
TEST(infer_options_of_images) {
  const InferOptions set = parsed(&(Given){NULL, {DATA}}), named = parsed(&(Given){NULL, {NAMED, "b.png"}});
  EXPECT(set.batch == 1 && set.num_images == 0);
  EXPECT(named.batch == 0 && named.num_images == 2 && !strcmp(named.images[1], "b.png"));
}
