// Catches numbers in the documentation that differ from their records.
//
// lab/tables.py on a copy of the documentation: a figure that differs from its record is found, and a record without an
// origin is refused.
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static int tables(const char **said, const char *options) {
  return command(said, "python3 lab/tables.py --root %s %s", in_tmp("doc"), options);
}

static bool copy_documentation(void) {
  const char *said;
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  const char *root = in_tmp("doc");
  return EXPECT_INT(
      command(&said, "rm -rf %s && mkdir -p %s/cuda && cp -r README.md docs results %s && cp -r cuda/conv %s/cuda",
              root, root, root, root),
      0);
}

// Appends to a file of the copy; returns the number of the new line.
static int append(const char *file, const char *line) {
  FILE *f = fopen(in_tmp(file), "a+");
  CHECK(f);
  int number = 1;
  for (int c; (c = getc(f)) != EOF;) number += c == '\n';
  CHECK(fprintf(f, "%s\n", line) > 0 && fclose(f) == 0);
  return number;
}

// Changes the first digit in the rows of the first table.
static void change_a_digit(const char *path) {
  size_t size;
  char *text = file_read(path, &size, NULL), *digit = text ? strstr(text, "\n<!-- table: ") : NULL;
  CHECK(digit);
  digit = strstr(digit, "\n|---");
  CHECK(digit && (digit = strpbrk(digit, "0123456789")));
  *digit = *digit == '9' ? '0' : (char)(*digit + 1);
  FILE *f = fopen(path, "w");
  CHECK(f && fwrite(text, 1, size, f) == size && fclose(f) == 0);
  free(text);
}

TEST_TIER(tables_find_a_digit_that_differs, 1) {
  static const char *const pages[] = {"README.md", "cuda/conv/README.md"};
  const char *said;
  if (!copy_documentation()) return;
  if (!EXPECT_INT(tables(&said, "--check"), 0)) printf("%s\n", said);
  for (int i = 0; i < COUNT(pages); i++) {
    char page[512], where[80];
    snprintf(page, sizeof page, "%s/%s", in_tmp("doc"), pages[i]);
    snprintf(where, sizeof where, "%s:", pages[i]);
    change_a_digit(page);
    EXPECT(!same_file(page, pages[i]));
    EXPECT_INT(tables(&said, "--check"), 1);
    if (!EXPECT(!strncmp(said, where, strlen(where)) && strstr(said, "differs from results/") && strstr(said, "\n+|")))
      printf("%s\n", said);
    EXPECT(!same_file(page, pages[i]) && "--check changes nothing");
    EXPECT_INT(tables(&said, ""), 0);
    EXPECT(same_file(page, pages[i]));
  }
}

#define MACHINE                                                                                                        \
  "\"machine\":{\"cpu\":\"C\",\"cores\":2,\"ram_gib\":1,\"os\":\"O\",\"kernel\":\"K\",\"compiler\":\"gcc\","           \
  "\"gpu\":\"G\",\"gpus\":1,\"gpu_memory_gib\":1,\"sm_mhz\":1,\"sm_mhz_max\":1,\"memory_mhz\":1,"                      \
  "\"memory_mhz_max\":1,\"power_limit_w\":1,\"driver\":\"D\",\"cuda_runtime\":\"13\",\"cuda_toolkit\":\"13\"}"
#define TRAIN                                                                                                          \
  "{\"bench\":\"train\",\"gpu\":\"G\",\"batch\":4,\"amp\":\"bf16\",\"conv\":\"auto\",\"canvas_h\":800,"                \
  "\"canvas_w\":1216,\"positives\":108,\"img_s\":98765,"
#define DATE "\"date\":\"9999-01-31T12:00:00Z\"," // newer than every record that is there

TEST_TIER(tables_refuse_records_without_an_origin, 1) {
  static const struct {
    const char *record, *complaint; // NULL: it is taken, and the page is another
  } cases[] = {
      {TRAIN DATE "\"commit\":\"abc1234-dirty\",\"clean\":false," MACHINE "}", "was made from a tree with changes"},
      {TRAIN DATE "\"commit\":\"unknown\",\"clean\":false," MACHINE "}", "names no commit"},
      {TRAIN DATE "\"commit\":\"abc1234\",\"clean\":true}", "does not say on which machine"},
      {TRAIN DATE "\"commit\":\"abc1234\",\"clean\":true,\"machine\":{\"cpu\":\"C\"}}",
       "compiler, cores, cuda_runtime"},
      {TRAIN "\"commit\":\"abc1234\",\"clean\":true," MACHINE "}", "has no date"},
      {TRAIN "\"commit\":", "no JSON object"},
      {TRAIN DATE "\"commit\":\"e877a36\",\"clean\":true}",
       "does not say on which machine"}, // the list excuses so many
      {TRAIN DATE "\"commit\":\"abc1234\",\"clean\":true," MACHINE "}", NULL},
  };
  const char *said;
  for (int i = 0; i < COUNT(cases); i++) {
    if (!copy_documentation()) return;
    char where[64];
    snprintf(where, sizeof where,
             "results/bench-h200.jsonl:%d: ", append("doc/results/bench-h200.jsonl", cases[i].record));
    EXPECT_INT(tables(&said, "--check"), cases[i].complaint ? 2 : 1);
    if (!EXPECT(strstr(said, cases[i].complaint ? cases[i].complaint : "+| training, batch 4 | 98765 img/s |")))
      printf("%s\n", said);
    EXPECT(!cases[i].complaint || strstr(said, where));
  }
}

TEST_TIER(tables_name_what_they_do_not_know, 1) {
  static const struct {
    const char *file, *text, *complaint;
  } cases[] = {
      {"doc/README.md", "<!-- value: nobody -->1<!-- end -->", "no value is called nobody"},
      {"doc/README.md", "<!-- table: nothing -->\n<!-- end -->", "no table is called nothing"},
      {"doc/README.md", "<!-- value: p2.ours -->1", "markers begin"},
      {"doc/results/more.txt", "seen somewhere", "more.txt is not listed"},
      {"doc/results/bench-h200.jsonl",
       TRAIN DATE "\"commit\":\"abc1234\",\"clean\":true,\"positives\":\"many\"," MACHINE "}",
       "a record lacks or misstates"},
  };
  const char *said;
  for (int i = 0; i < COUNT(cases); i++) {
    if (!copy_documentation()) return;
    append(cases[i].file, cases[i].text);
    EXPECT_INT(tables(&said, "--check"), 2);
    if (!EXPECT(strstr(said, cases[i].complaint))) printf("%s\n", said);
  }
}

// ---- the ladder, from records made up here --------------------------------------------------------------------------

#define RECORD(more) "{\"bench\":\"conv\",\"gpu\":\"G\",\"clean\":true,\"dtype\":\"bf16\"," DATE MACHINE "," more "}\n"
#define OF(rung, op, layer, count, us, ratio, cudnn)                                                                   \
  "\"commit\":\"abc\",\"rung\":\"" rung "\",\"op\":\"" op "\",\"layer\":\"" layer "\",\"count\":" count ",\"us\":" us  \
  ",\"tflops\":1,\"ratio\":" ratio ",\"cudnn_us\":" cudnn

// cuDNN needs 9 ms for the stem: ours seems twice as fast, with a quarter of its speed in the rest. wmma's first record
// is superseded, though it stands behind the second; "odd" is a layer that cuDNN cannot do. cuDNN's own time stands in
// where a record does not have it beside ours. A gemm is no layer.
static const char ladder[] =                                         //
    RECORD(OF("mma", "fwd", "stem", "1", "1000", "9", "9000"))       //
    RECORD(OF("mma", "fwd", "p2.3x3", "1", "4000", "0.25", "1000"))  //
    RECORD(OF("mma", "dgrad", "p2.3x3", "1", "2000", "0.5", "1000")) //
    RECORD(OF("mma", "wgrad", "p2.3x3", "1", "2000", "0.5", "1000")) //
    RECORD(OF("wmma", "fwd", "p2.3x3", "2", "2000", "0.25", "null")) //
    RECORD(OF("cudnn", "fwd", "p2.3x3", "2", "500", "1", "500"))     //
    RECORD(OF("wmma", "fwd", "odd", "1", "1000", "null", "null"))    //
    RECORD("\"batch\":16,\"fused\":\"relu\"," OF(
        "wgmma", "fwd", "p2.3x3", "2", "4000", "0.5",
        "2000")) "{\"bench\":\"gemm\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"us\":1}\n"
                 "{\"bench\":\"conv\",\"rung\":\"wmma\",\"op\":\"fwd\",\"layer\":\"p2.3x3\",\"dtype\":\"bf16\",\"gpu\":"
                 "\"G\","
                 "\"commit\":\"old-dirty\",\"count\":2,\"us\":7,\"tflops\":7,\"ratio\":7}\n";

static void put(const char *path, const char *text) {
  FILE *f = fopen(in_tmp(path), "w");
  CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

TEST_TIER(tables_sum_the_ladder, 1) {
  static const char *const rows[] = {
      "| bf16, batch 4 | fwd | wmma | 2 | 5.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n",
      "| bf16, batch 4 | fwd | mma | 2 | 5.00 | 10.00 | 2.00 | p2.3x3, 0.25 |\n",
      "| bf16, batch 4 | fwd without the stem | mma | 1 | 4.00 | 1.00 | 0.25 | p2.3x3, 0.25 |\n",
      "| bf16, batch 4 | dgrad | mma | 1 | 2.00 | 1.00 | 0.50 | p2.3x3, 0.50 |\n",
      "| bf16, batch 4 | wgrad | mma | 1 | 2.00 | 1.00 | 0.50 | p2.3x3, 0.50 |\n",
      "| bf16, batch 4 | all | mma | 4 | 9.00 | 12.00 | 1.33 | p2.3x3, 0.25 |\n",
      "| bf16, batch 4 | all without the stem | mma | 3 | 8.00 | 3.00 | 0.38 | p2.3x3, 0.25 |\n",
      "| bf16, batch 16 | fwd, bias, ReLU | wgmma | 1 | 8.00 | 4.00 | 0.50 | p2.3x3, 0.50 |\n",
      "| bf16, batch 4 | G; G, 1 MHz, 1 W, driver D, CUDA 13 | old-dirty, abc |\n",
  };
  const char *said;
  if (!copy_documentation()) return;
  EXPECT_INT(command(&said, "cd %s && rm -rf results docs cuda && mkdir results", in_tmp("doc")), 0);
  put("doc/README.md",
      "<!-- table: conv-totals -->\n<!-- end -->\n<!-- table: conv-provenance -->\nwhat was there\n<!-- end -->\n");
  put("doc/results/README.md", "`conv-h200.jsonl`, `conv-wmma-h200.jsonl`, `legacy.json`\n");
  put("doc/results/conv-h200.jsonl", ladder);
  put("doc/results/conv-wmma-h200.jsonl", "");
  put("doc/results/legacy.json",
      "[{\"file\": \"conv-h200.jsonl\", \"records\": {\"\": 1, \"old-dirty\": 1}, \"reason\": \"made up\"}]\n");
  if (!EXPECT_INT(tables(&said, ""), 0)) printf("%s\n", said);
  size_t size;
  char *page = file_read(in_tmp("doc/README.md"), &size, NULL);
  const char *at = page;
  for (int i = 0; page && i < COUNT(rows); i++) {
    at = strstr(at, rows[i]);
    if (!EXPECT(at)) printf("  no (or not in its place): %s\n%s\n", rows[i], page);
    if (!at) break;
  }
  EXPECT(page && !strstr(page, "what was there"));
  free(page);
  put("doc/results/legacy.json",
      "[{\"file\": \"conv-h200.jsonl\", \"records\": {\"\": 2, \"old-dirty\": 1}, \"reason\": \"made up\"}]\n");
  EXPECT_INT(tables(&said, "--check"), 2);
  EXPECT(strstr(said, "excuses 2 records, 1 need it"));
}
