// The chart of the convolution ladder, from records made up here and from those that are kept.
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char *put(const char *name, const char *text) {
  static char paths[8][512];
  static int next;
  char *path = paths[next++ % COUNT(paths)];
  snprintf(path, sizeof paths[0], "%s/%s", test_tmp(), name);
  FILE *f = fopen(path, "w");
  CHECK(f);
  fputs(text, f);
  fclose(f);
  return path;
}

#define CONV "{\"bench\":\"conv\",\"gpu\":\"G, 1 SM\",\"op\":\"fwd\",\"layer\":\"p2.3x3\","
#define ELEVEN "0123456789a"

// cuDNN comes first in the file and last in the chart. What is of another batch, dtype or bench is not drawn.
static const char records[] = //
    CONV "\"dtype\":\"bf16\",\"rung\":\"cudnn\",\"fused\":\"none\",\"tflops\":800}\n" CONV
         "\"dtype\":\"bf16\",\"rung\":\"wmma\",\"tflops\":7}\n" CONV
         "\"dtype\":\"bf16\",\"rung\":\"wmma\",\"tflops\":200}\n" CONV
         "\"dtype\":\"bf16\",\"batch\":16,\"rung\":\"mma\",\"tflops\":300}\n" CONV
         "\"dtype\":\"tf32\",\"rung\":\"im2col\",\"tflops\":null}\n" CONV
         "\"dtype\":\"bf16\",\"fused\":\"relu\",\"rung\":\"naive\",\"tflops\":1}\n"
         "{\"bench\":\"gemm\",\"rung\":\"other\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"dtype\":\"bf16\"}\n";

static char *draw(const char *options, const char *jsonl) {
  const char *chart = put("chart.svg", ""), *said;
  size_t size;
  if (!EXPECT_INT(command(&said, "%s --chart %s %s %s", tool("ladder_report"), chart, options, jsonl), 0))
    printf("%s\n", said);
  return file_read(chart, &size, NULL);
}

TEST(ladder_report_draws_one_dtype_and_batch) {
  const char *jsonl = put("conv.jsonl", records);
  char *svg = draw("", jsonl);
  const char *ours = svg ? strstr(svg, ">wmma<") : NULL;
  EXPECT(ours && strstr(ours, ">cudnn<") && strstr(svg, "in bf16, batch 4, on G<"));
  EXPECT(svg && !strstr(svg, ">mma<") && !strstr(svg, ">naive<") && !strstr(svg, ">other<") && !strstr(svg, "im2col"));
  free(svg);
  svg = draw("--batch 16", jsonl);
  EXPECT(svg && strstr(svg, "batch 16") && strstr(svg, ">mma<") && !strstr(svg, ">wmma<"));
  free(svg);
}

TEST(ladder_report_draws_what_is_kept) {
  char *svg = draw("", "results/conv-wmma-h200.jsonl results/conv-h200.jsonl");
  size_t size;
  char *kept = file_read("results/conv-h200.svg", &size, NULL);
  EXPECT(svg && kept && !strcmp(svg, kept) && "build/ladder_report draws it anew; results/notes-conv.md says how");
  free(svg);
  free(kept);
}

TEST(ladder_report_says_what_it_cannot_use) {
  const char *said, *chart = put("none.svg", "");
  const char *jsonl = put("broken.jsonl", "{\"bench\": 3}\n");
  EXPECT_INT(command(&said, "%s --chart %s %s", tool("ladder_report"), chart, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "broken.jsonl:1:"));
  EXPECT_INT(command(&said, "%s %s", tool("ladder_report"), put("good.jsonl", records)), EXIT_USAGE);
  EXPECT(strstr(said, "--chart FILE"));
  jsonl = put("other.jsonl", "{\"bench\":\"train\"}\n");
  EXPECT_INT(command(&said, "%s --chart %s %s", tool("ladder_report"), chart, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "no record of bench conv in bf16 at batch 4"));
  jsonl = put("another.jsonl", "{\"bench\":\"conv\",\"gpu\":\"H, 2 SMs\",\"rung\":\"mma\",\"op\":\"fwd\","
                               "\"layer\":\"p2.3x3\",\"dtype\":\"bf16\",\"tflops\":1}\n");
  EXPECT_INT(command(&said, "%s --chart %s %s %s", tool("ladder_report"), chart, put("good.jsonl", records), jsonl),
             EXIT_USAGE);
  EXPECT(strstr(said, "another.jsonl: a record from H, 2 SMs, others from G, 1 SM;"));
  jsonl = put("long.jsonl", CONV "\"rung\":\"" ELEVEN ELEVEN ELEVEN ELEVEN ELEVEN ELEVEN "\"}\n");
  EXPECT_INT(command(&said, "%s --chart %s %s", tool("ladder_report"), chart, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "long.jsonl:1:") && strstr(said, "more than 63 characters"));
}
