// Catches benchmarks of classifiers with missing records or unanswered mistakes.
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "test/harness/command.h"
#include "test/harness/gpu.h"

// The number `name` of the object `key` of a record; NaN where it is not there.
static double number_of(const char *record, const char *key, const char *name) {
  char text[64];
  snprintf(text, sizeof text, "\"%s\":{", key);
  const char *object = strstr(record, text), *end = object ? strchr(object, '}') : NULL;
  snprintf(text, sizeof text, "\"%s\":", name);
  const char *at = object ? strstr(object, text) : NULL;
  return at && at < end ? atof(at + strlen(text)) : NAN;
}

static double member(const char *record, const char *name) {
  char text[64];
  snprintf(text, sizeof text, ",\"%s\":", name);
  const char *at = strstr(record, text);
  return at ? atof(at + strlen(text)) : NAN;
}

// Whether the line is one JSON object.
static bool is_object(const char *line) {
  Json j;
  json_open(&j, "record", line, strcspn(line, "\n"));
  const bool object = json_peek(&j) == JSON_OBJECT;
  json_skip(&j);
  const bool ok = json_done(&j) && object;
  json_close(&j);
  return ok;
}

static void expect_times(const char *record, const char *key, int runs) {
  const double mean = number_of(record, key, "mean"), least = number_of(record, key, "min");
  EXPECT(least > 0 && least <= number_of(record, key, "median") && least <= mean);
  EXPECT(number_of(record, key, "stderr") >= 0);
  EXPECT_INT((int)number_of(record, key, "runs"), runs);
}

static void expect_record(const char *record, const char *net, int batch, int runs, bool forward_only) {
  char text[64];
  const char *last = forward_only ? "fwd" : "step";
  snprintf(text, sizeof text, "{\"bench\":\"net\",\"net\":\"%s\",\"gpu\":\"", net);
  if (!EXPECT(strstr(record, text) == record && is_object(record))) printf("    %s\n", record);
  EXPECT(strstr(record, "\"out_of_memory\":false") && strstr(record, ",\"machine\":{") &&
         strstr(record, ",\"date\":\""));
  expect_times(record, "fwd", runs);
  for (int i = 0; i < 2 && !forward_only; i++) expect_times(record, i ? "step" : "fwdbwd", runs);
  EXPECT(forward_only == !strstr(record, "\"fwdbwd\"") && forward_only == !strstr(record, "\"step\""));
  EXPECT_INT((int)member(record, "batch"), batch);
  EXPECT_NEAR(member(record, "img_s") * number_of(record, last, "mean"), 1e3 * batch, 1e-9 * 1e3 * batch);
  EXPECT(member(record, "peak_bytes") > 0);
}

static int timed(const char **said, const char *options) {
  return command(said, "(OMP_NUM_THREADS=1 %s --model resnet18 --size 32 --device cpu --benchmark 2 --out %s %s)",
                 tool("train"), in_tmp("timed"), options);
}

static const char *next_line(const char *text) {
  const char *end = strchr(text, '\n');
  return end ? end + 1 : text + strlen(text);
}

TEST_TIER(program_net_benchmark, 1) {
  const char *said;
  if (!EXPECT_INT(timed(&said, "--batch 2 2>/dev/null"), 0)) return;
  expect_record(said, "resnet18", 2, 2, false);
  EXPECT_STR(next_line(said), "");
  EXPECT(member(said, "canvas_h") == 32 && member(said, "canvas_w") == 32 && member(said, "classes") == 1000);
  EXPECT(strstr(said, "\"dtype\":\"fp32\",\"conv\":\"auto\""));
  EXPECT(!path_is_dir(in_tmp("timed")));
  EXPECT_INT(timed(&said, "--batch 1 --forward-only 2>&1 >/dev/null | grep -v ^warning"), 0);
  EXPECT(strstr(said, "resnet18, fp32, batch 1: forward ") == said && strstr(said, " img/s, "));
}

TEST_TIER(program_net_benchmark_of_forward_alone, 1) {
  const char *said;
  if (!EXPECT_INT(timed(&said, "--batch 2 --forward-only --profile 2>/dev/null"), 0)) return;
  expect_record(said, "resnet18", 2, 2, true);
  EXPECT(strstr(said, "training, canvas 32 x 32 (h x w), batch 2\n") && strstr(said, "\nlayer1.0.conv1 "));
  EXPECT(strstr(said, " ms per update (mean of "));
}

// The plan is of training alone: no checkpoint, no loader.
TEST_TIER(program_net_benchmark_plan, 1) {
  const char *said;
  EXPECT_INT(timed(&said, "--batches 1,2 --plan"), 0);
  const char *second = strstr(said, "\ntraining, canvas 32 x 32 (h x w), batch 2: ");
  EXPECT(strstr(said, "training, canvas 32 x 32 (h x w), batch 1: ") == said && second &&
         strstr(second, "activations"));
  EXPECT(!strstr(said, "checkpoint, ") && !strstr(said, "loader's batches") && !strstr(said, "\"bench\""));
}

// A batch that memory has no room for is a row, and what follows it is measured.
TEST_TIER(program_net_benchmark_of_many_batches, 1) {
  const char *said;
  if (!EXPECT_INT(command(&said,
                          "(ulimit -v 1500000; OMP_NUM_THREADS=1 exec %s --model resnet18 --size 64 --device cpu "
                          "--benchmark 2 --forward-only --batches 1,2,…,4,1024,3 2>/dev/null)",
                          tool("train")),
                  0))
    return;
  static const int batches[] = {1, 2, 4, 1024, 3};
  char *lines = xstrdup(said), *line = strtok(lines, "\n");
  for (int i = 0; i < COUNT(batches) && EXPECT(line); i++, line = strtok(NULL, "\n")) {
    if (batches[i] < 1024) {
      expect_record(line, "resnet18", batches[i], 2, true);
      continue;
    }
    EXPECT(is_object(line) && (int)member(line, "batch") == 1024 && isnan(number_of(line, "fwd", "mean")));
    EXPECT(strstr(line, "\"out_of_memory\":true,\"why\":\"too little memory: ") && member(line, "peak_bytes") > 1e9);
  }
  EXPECT(!line);
  free(lines);
}

TEST_TIER(program_net_benchmark_mistakes, 1) {
  static const struct {
    const char *options, *says;
  } mistakes[] = {
      {"--model resnet18 --benchmark --batches 1,x", "train: --batches '1,x': expected numbers"},
      {"--model resnet18 --benchmark --gpus 2", "train: --gpus 2: random images are timed on one GPU"},
      {"--model resnet18 --forward-only", "train: --forward-only needs --benchmark of a classifier without --data"},
      {"--model resnet18 --batches 1,2", "train: --batches needs --benchmark of a classifier without --data"},
      {"--model tiny --benchmark --batches 1,2", "train: --batches needs --benchmark of a classifier"},
      {"--model resnet18 --benchmark --data /nowhere --forward-only", "train: --forward-only needs --benchmark"},
      {"--model resnet18 --benchmark --device cpu --amp", "train: --amp needs a GPU"},
      {"--model resnet18 --benchmark --device cuda:99", "train: --device cuda:99"},
      {"--model resnet19 --benchmark", "resnet19"},
  };
  const char *said;
  for (int i = 0; i < COUNT(mistakes); i++) {
    const int status =
        command(&said, "env -u MASKRCNN_DATA %s --out %s %s", tool("train"), in_tmp("timed"), mistakes[i].options);
    const char *warned = strstr(said, "warning: commit ");
    const char *line = warned == said ? next_line(said) : said;
    if (!EXPECT(status == 2 && strstr(line, mistakes[i].says) && !*next_line(line)))
      printf("    %s: %d: %s", mistakes[i].options, status, said);
  }
}

// Recorded and replayed, in every precision; what is out of memory on the GPU is a row, too.
TEST_TIER(cuda_program_net_benchmark, 1) {
  static const char *const ways[] = {"", "--amp", "--amp=fp16", "--tf32", "--amp --conv naive"};
  const char *said;
  if (!gpu_device()) return;
  for (int i = 0; i < COUNT(ways); i++) {
    if (!EXPECT_INT(command(&said, "(%s --model resnet18 --size 64 --benchmark 20 --batch 4 %s 2>/dev/null)",
                            tool("train"), ways[i]),
                    0))
      continue;
    expect_record(said, "resnet18", 4, 20, false);
    EXPECT(number_of(said, "fwd", "median") < number_of(said, "fwdbwd", "median"));
  }
  EXPECT_INT(command(&said, "(%s --model resnet152 --size 512 --benchmark 2 --batches 1024,1 --amp 2>/dev/null)",
                     tool("train")),
             0);
  EXPECT(strstr(said, "\"out_of_memory\":true,\"why\":\"too little memory: "));
  expect_record(next_line(said), "resnet152", 1, 2, false);
}
