// The tables of the convolution ladder, from records made up here.
#include "test/command.h"
#include "test/test.h"

static const char *put(const char *name, const char *text) {
  static char paths[2][512];
  static int next;
  char *path = paths[next++ % 2];
  snprintf(path, sizeof paths[0], "%s/%s", test_tmp(), name);
  FILE *f = fopen(path, "w");
  CHECK(f);
  fputs(text, f);
  fclose(f);
  return path;
}

// cuDNN comes first in the file and last in the tables; the second record of a kind replaces the first; a layer that
// cuDNN cannot do counts in ours alone.
static const char records[] =
    "{\"bench\":\"conv\",\"gpu\":\"G, 1 SM\",\"commit\":\"abc\",\"rung\":\"cudnn\",\"op\":\"fwd\",\"layer\":\"p2.3x3\","
    "\"count\":2,\"dtype\":\"bf16\",\"fused\":\"none\",\"us\":500,\"tflops\":800,\"ratio\":1}\n"
    "{\"bench\":\"conv\",\"gpu\":\"G, 1 SM\",\"commit\":\"abc\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\","
    "\"count\":2,\"dtype\":\"bf16\",\"us\":7,\"tflops\":7,\"ratio\":7}\n"
    "{\"bench\":\"conv\",\"gpu\":\"G, 1 SM\",\"commit\":\"abc\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\","
    "\"count\":2,\"dtype\":\"bf16\",\"us\":2000,\"tflops\":200,\"ratio\":0.25}\n"
    "{\"bench\":\"conv\",\"gpu\":\"G, 1 SM\",\"commit\":\"abc\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"odd\","
    "\"count\":1,\"dtype\":\"bf16\",\"us\":1000,\"tflops\":1,\"ratio\":null}\n"
    "{\"bench\":\"conv\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"dtype\":\"bf16\",\"fused\":\"relu\","
    "\"us\":1}\n"
    "{\"bench\":\"gemm\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"dtype\":\"bf16\",\"us\":1}\n";

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
    const char *row = strstr(text, "| fwd | wmma | 2 | 5.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n");
    EXPECT(row && !strstr(row + 1, "| fwd | wmma |") && "one table");
    EXPECT(strstr(text, "| layer | wmma | cudnn |\n") && strstr(text, "| p2.3x3 | 200 / – / – | 800 / – / – |\n"));
    EXPECT(strstr(text, "bf16: G, 1 SM, commit abc.\n"));
    free(text);
  }
}

TEST(ladder_report_says_what_it_cannot_use) {
  const char *said;
  const char *jsonl = put("broken.jsonl", "{\"bench\": 3}\n"), *readme = put("plain.md", "no marks\n");
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "broken.jsonl:1:"));
  jsonl = put("good.jsonl", records);
  EXPECT_INT(command(&said, "%s --readme %s %s", tool("ladder_report"), readme, jsonl), EXIT_USAGE);
  EXPECT(strstr(said, "no line begins with"));
}
