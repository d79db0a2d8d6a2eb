// The tables of the convolution ladder, from records made up here.
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

#define CONV "{\"bench\":\"conv\",\"gpu\":\"G, 1 SM\","
#define ELEVEN "0123456789a"
#define BF16_P2 "\"layer\":\"p2.3x3\",\"count\":2,\"dtype\":\"bf16\","

// cuDNN comes first in the file and last in the tables; the second record of a kind replaces the first; a layer that
// cuDNN cannot do counts in ours alone.
static const char records[] = //
    CONV "\"commit\":\"abc\",\"rung\":\"cudnn\",\"op\":\"fwd\"," BF16_P2 "\"fused\":\"none\",\"us\":500,"
         "\"tflops\":800,\"ratio\":1}\n"                                                                       //
    CONV "\"commit\":\"abc\",\"rung\":\"wmma\",\"op\":\"fwd\"," BF16_P2 "\"us\":7,\"tflops\":7,\"ratio\":7}\n" //
    CONV "\"commit\":\"abc\",\"rung\":\"wmma\",\"op\":\"fwd\"," BF16_P2
         "\"us\":2000,\"tflops\":200,\"ratio\":0.25}\n" CONV
         "\"commit\":\"abc\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"odd\",\"count\":1,\"dtype\":\"bf16\","
         "\"us\":1000,\"tflops\":1,\"ratio\":null}\n"
         "{\"bench\":\"gemm\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"dtype\":\"bf16\",\"us\":1}\n";

// Another file: another batch, with all ops, and what cuDNN took beside each; a fusion, which cuDNN has in one layer of
// two, and one that it has in all; a dtype that comes last.
static const char others[] = //
    CONV "\"commit\":\"abc\",\"rung\":\"mma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"count\":1,\"dtype\":\"tf32\","
         "\"batch\":4,\"us\":1000,\"tflops\":3,\"ratio\":0.5,\"cudnn_us\":500}\n" //
    CONV "\"commit\":\"def\",\"rung\":\"mma\",\"op\":\"fwd\"," BF16_P2 "\"batch\":16,\"us\":4000,\"tflops\":400,"
         "\"ratio\":0.5,\"cudnn_us\":2000}\n"                                                                    //
    CONV "\"commit\":\"def\",\"rung\":\"cudnn\",\"op\":\"fwd\"," BF16_P2 "\"batch\":16,\"us\":9,\"tflops\":9}\n" //
    CONV "\"commit\":\"def\",\"rung\":\"mma\",\"op\":\"dgrad\"," BF16_P2 "\"batch\":16,\"us\":1000,\"tflops\":500,"
         "\"ratio\":1,\"cudnn_us\":1000}\n" //
    CONV "\"commit\":\"def\",\"rung\":\"mma\",\"op\":\"wgrad\"," BF16_P2 "\"batch\":16,\"us\":1000,\"tflops\":600,"
         "\"ratio\":3,\"cudnn_us\":3000}\n" //
    CONV "\"commit\":\"def\",\"rung\":\"cudnn\",\"op\":\"fwd\"," BF16_P2 "\"batch\":16,\"fused\":\"relu\",\"us\":2000,"
         "\"tflops\":800,\"ratio\":1,\"cudnn_fused\":true}\n" //
    CONV "\"commit\":\"def\",\"rung\":\"cudnn\",\"op\":\"fwd\",\"layer\":\"odd\",\"count\":1,\"dtype\":\"bf16\","
         "\"batch\":16,\"fused\":\"relu\",\"us\":1000,\"tflops\":1,\"ratio\":1,\"cudnn_fused\":false}\n" //
    CONV "\"commit\":\"def\",\"rung\":\"cudnn\",\"op\":\"fwd\"," BF16_P2 "\"batch\":16,\"fused\":\"add-relu\",\"us\":9,"
         "\"tflops\":9,\"ratio\":1,\"cudnn_fused\":true}\n" //
    CONV "\"commit\":\"abc\",\"rung\":\"mma\",\"op\":\"fwd\"," BF16_P2 "\"batch\":16,\"fused\":\"relu\",\"us\":4000,"
         "\"tflops\":400,\"ratio\":0.5,\"cudnn_us\":2000,\"cudnn_fused\":true}\n";

// `rows` in this order.
static void expect_in_order(const char *text, const char *const rows[], int count) {
  for (int i = 0; i < count; i++) {
    const char *row = strstr(text, rows[i]);
    if (!EXPECT(row != NULL)) return (void)printf("  no (or not in its place): %s\n%s\n", rows[i], text);
    text = row + strlen(rows[i]);
  }
}

TEST(ladder_report_replaces_its_section) {
  const char *jsonl = put("conv.jsonl", records), *said;
  const char *readme = put("ladder.md", "before\n<!-- conv tables: generated from -->\n");
  size_t size;
  for (int i = 0; i < 2; i++) { // the second run replaces what the first wrote
    if (!EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), 0)) printf("%s\n", said);
    char *text = file_read(readme, &size, NULL);
    if (!EXPECT(text != NULL)) return;
    EXPECT(strstr(text, "before\n<!-- conv tables: generated from ") == text);
    // 2 x 2 ms + 1 ms of ours; against 2 x 0.5 ms of cuDNN's stand 4 ms
    const char *row = strstr(text, "| bf16, batch 4 | fwd | wmma | 2 | 5.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n");
    EXPECT(row && !strstr(row + 1, "| bf16, batch 4 | fwd | wmma |") && "one table");
    EXPECT(strstr(text, "| layer | wmma | cudnn |\n") && strstr(text, "| p2.3x3 | 200 / – / – | 800 / – / – |\n"));
    EXPECT(strstr(text, "bf16, batch 4: G, 1 SM, commit abc.\n"));
    free(text);
  }
}

TEST(ladder_report_tells_batches_dtypes_and_fusions_apart) {
  static const char *const rows[] = {
      "| bf16, batch 4 | fwd | wmma | 2 | 5.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n",
      "| bf16, batch 16 | fwd | mma | 1 | 8.00 | 4.00 | 0.50 | p2.3x3, 0.50 |\n",
      "| bf16, batch 16 | dgrad | mma | 1 | 2.00 | 2.00 | 1.00 | p2.3x3, 1.00 |\n",
      "| bf16, batch 16 | wgrad | mma | 1 | 2.00 | 6.00 | 3.00 | p2.3x3, 3.00 |\n",
      "| bf16, batch 16 | all | mma | 3 | 12.00 | 12.00 | 1.00 | p2.3x3, 0.50 |\n",
      "| bf16, batch 16 | fwd, bias, ReLU | mma | 1 | 8.00 | 4.00 | 0.50 | p2.3x3, 0.50 |\n",
      "| tf32, batch 4 | fwd | mma | 1 | 1.00 | 0.50 | 0.50 | p2.3x3, 0.50 |\n",
      "bf16, batch 16, bias, ReLU: in 1 of 2 layers cuDNN's time is that of one fused graph; elsewhere it has none",
      "bf16, batch 16, bias, residual, ReLU: in 1 of 1 layers cuDNN's time is that of one fused graph.\n",
      "TFLOP/s in bf16, batch 4, ",
      "| layer | wmma | cudnn |\n",
      "TFLOP/s in bf16, batch 16, ",
      "| p2.3x3 | 400 / 500 / 600 | 9 / – / – |\n",
      "TFLOP/s in tf32, batch 4, ",
      "| layer | mma |\n",
      "bf16, batch 4: G, 1 SM, commit abc.\n",
      "bf16, batch 16: G, 1 SM, commit def.\n",
      "bf16, batch 16, bias, ReLU: G, 1 SM, commit def, abc.\n",
      "bf16, batch 16, bias, residual, ReLU: G, 1 SM, commit def.\n",
      "tf32, batch 4: G, 1 SM, commit abc.\n",
  };
  const char *first = put("first.jsonl", records), *second = put("second.jsonl", others), *chart = put("chart.svg", "");
  const char *readme = put("tables.md", "<!-- conv tables: generated from -->\n"), *said;
  if (!EXPECT_INT(
          command(&said, "%s --readme %s --chart %s %s %s", tool("ladder_report"), readme, chart, second, first), 0))
    printf("%s\n", said);
  size_t size;
  char *text = file_read(readme, &size, NULL), *svg = file_read(chart, &size, NULL);
  if (EXPECT(text != NULL)) expect_in_order(text, rows, COUNT(rows));
  EXPECT(svg && strstr(svg, "bf16, batch 4"));
  free(text);
  free(svg);
}

// cuDNN needs 9 ms for the stem: ours seems twice as fast, with a quarter of its speed in the rest. A rung without the
// stem, and one with the stem alone, have no such row.
TEST(ladder_report_totals_without_the_stem) {
#define RECORD(rung, op, layer, us, ratio, cudnn)                                                                      \
  CONV "\"rung\":\"" rung "\",\"op\":\"" op "\",\"layer\":\"" layer "\",\"count\":1,\"dtype\":\"bf16\",\"us\":" us     \
       ",\"ratio\":" ratio ",\"cudnn_us\":" cudnn "}\n"
  static const char stem[] = RECORD("mma", "fwd", "stem", "1000", "9", "9000")
      RECORD("mma", "fwd", "p2.3x3", "4000", "0.25", "1000") RECORD("mma", "dgrad", "p2.3x3", "2000", "0.5", "1000")
          RECORD("mma", "wgrad", "p2.3x3", "2000", "0.5", "1000")
              RECORD("wmma", "fwd", "p2.3x3", "4000", "0.25", "1000");
  static const char *const rows[] = {
      "| bf16, batch 4 | fwd | mma | 2 | 5.00 | 10.00 | 2.00 | p2.3x3, 0.25 |\n"
      "| bf16, batch 4 | fwd without the stem | mma | 1 | 4.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n"
      "| bf16, batch 4 | dgrad | mma | 1 | 2.00 | 1.00 | 0.50 | p2.3x3, 0.50 |\n"
      "| bf16, batch 4 | wgrad | mma | 1 | 2.00 | 1.00 | 0.50 | p2.3x3, 0.50 |\n"
      "| bf16, batch 4 | all | mma | 4 | 9.00 | 12.00 | 1.33 | p2.3x3, 0.25 |\n"
      "| bf16, batch 4 | all without the stem | mma | 3 | 8.00 | 3.00 | 0.38 | p2.3x3, 0.25 |\n"
      "| bf16, batch 4 | fwd | wmma | 1 | 4.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n\n",
  };
  const char *readme = put("stem.md", "<!-- conv tables: generated from -->\n"), *said;
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, put("stem.jsonl", stem)), 0);
  size_t size;
  char *text = file_read(readme, &size, NULL);
  if (EXPECT(text != NULL)) expect_in_order(text, rows, COUNT(rows));
  free(text);
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme,
                     put("alone.jsonl", RECORD("mma", "fwd", "stem", "1000", "9", "9000"))),
             0);
  text = file_read(readme, &size, NULL);
  EXPECT(text && strstr(text, "| fwd | mma | 1 | 1.00 | 9.00 | 9.00 |") && !strstr(text, "without"));
  free(text);
#undef RECORD
}

TEST(ladder_report_says_what_it_cannot_use) {
  const char *said;
  const char *jsonl = put("broken.jsonl", "{\"bench\": 3}\n"), *readme = put("plain.md", "no marks\n");
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "broken.jsonl:1:"));
  jsonl = put("good.jsonl", records);
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "no line begins with"));
  jsonl = put("other.jsonl", "{\"bench\":\"train\"}\n");
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "no record of bench conv"));
  jsonl = put("another.jsonl",
              "{\"bench\":\"conv\",\"gpu\":\"H, 2 SMs\",\"rung\":\"mma\",\"op\":\"fwd\"," BF16_P2 "\"us\":1}\n");
  EXPECT_INT(command(&said, "%s --readme %s %s %s", tool("ladder_report"), readme, put("good.jsonl", records), jsonl),
             EXIT_USAGE);
  EXPECT(strstr(said, "another.jsonl: bf16, batch 4: a record from H, 2 SMs, others from G, 1 SM;"));
  jsonl = put("long.jsonl", CONV "\"rung\":\"" ELEVEN ELEVEN ELEVEN ELEVEN ELEVEN ELEVEN "\"}\n");
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "long.jsonl:1:") && strstr(said, "more than 63 characters"));
}

// One commit's name begins another's, and the line is longer than any buffer for a name.
TEST(ladder_report_names_every_commit) {
  static const char *const commits[] = {ELEVEN "-1-dirty", ELEVEN "-1", ELEVEN,      ELEVEN "-2",
                                        ELEVEN "-3",       ELEVEN "-4", ELEVEN "-5", ELEVEN "-6",
                                        ELEVEN "-7",       ELEVEN "-8", ELEVEN "-9", "last"};
  char text[4096] = "", line[512] = "bf16, batch 4: G, 1 SM, commit ";
  for (int i = 0; i < 2 * COUNT(commits); i++) { // each twice
    const char *commit = commits[i % COUNT(commits)];
    size_t used = strlen(text), end = strlen(line);
    snprintf(text + used, sizeof text - used,
             CONV "\"commit\":\"%s\",\"rung\":\"mma\",\"op\":\"fwd\"," BF16_P2 "\"us\":1}\n", commit);
    if (i < COUNT(commits)) snprintf(line + end, sizeof line - end, "%s%s", i ? ", " : "", commit);
  }
  strcat(line, ".\n");
  const char *readme = put("commits.md", "<!-- conv tables: generated from -->\n"), *said;
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, put("commits.jsonl", text)), 0);
  size_t size;
  char *report = file_read(readme, &size, NULL);
  EXPECT(report && strstr(report, line));
  free(report);
}
