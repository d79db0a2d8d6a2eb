// Catches default options that diverge or do not learn.
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static int train(const char *out, const char *more, const char **said) {
  return command(said, "%s --data %s --model tiny --size 64 --device cpu --eval-every never --out %s %s", tool("train"),
                 shapes_set(), in_tmp(out), more);
}

// Mean of the losses of steps first … last, counted from 1, in a run's log.
static double mean_loss(const char *out, int first, int last) {
  size_t size;
  char path[128];
  snprintf(path, sizeof path, "%s/log.jsonl", out);
  char *log = file_read(in_tmp(path), &size, NULL);
  double sum = 0;
  int step = 0, n = 0;
  for (const char *at = log; at && (at = strstr(at, "\"loss\":")); at++)
    if (++step >= first && step <= last) {
      sum += atof(at + strlen("\"loss\":"));
      n++;
    }
  free(log);
  EXPECT_INT(n, last - first + 1);
  return sum / n;
}

// Without warmup over a third of the run, a limit of the gradient and logits of a moderate scale, it ends at step 11.
TEST_TIER(defaults_large_batch_stays_finite, 2) {
  const char *said;
  if (!EXPECT_INT(train("defaults-64", "--batch 64 --iters 60 --stop-after 12", &said), 0)) printf("    %s\n", said);
}

TEST_TIER(defaults_learn_after_warmup, 2) {
  const char *said;
  if (!EXPECT_INT(train("defaults-8", "--batch 8 --iters 90", &said), 0)) printf("    %s\n", said);
  EXPECT(mean_loss("defaults-8", 81, 90) < mean_loss("defaults-8", 26, 35));
}
