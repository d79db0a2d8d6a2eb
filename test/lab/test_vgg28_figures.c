// Catches the table of docs/classification.md showing other numbers than its records.
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char origin[] =
    "\"date\":\"2026-01-01T00:00:00Z\",\"commit\":\"0123456\",\"clean\":true,\"command\":\"made "
    "up\",\"machine\":{\"cpu\":"
    "\"\",\"cores\":1,\"ram_gib\":1,\"os\":\"\",\"kernel\":\"\",\"compiler\":\"\",\"gpu\":null,\"gpus\":null,"
    "\"gpu_memory_gib\":null,\"sm_mhz\":null,\"sm_mhz_max\":null,\"memory_mhz\":null,\"memory_mhz_max\":null,"
    "\"power_limit_w\":null,\"driver\":null,\"cuda_runtime\":null,\"cuda_toolkit\":null}";

typedef struct Run {
  const char *set;
  int augmented, seed, together; // 1: alone
  double top1, seconds;          // of ours; PyTorch's has half of the hits and takes twice as long
} Run;

static void write_run(FILE *f, const Run *r, bool ours) {
  fprintf(f, "{\"bench\":\"vgg28%s\",\"set\":\"%s\",\"dtype\":\"bf16\",\"augmented\":%d,\"seed\":%d,",
          ours ? "" : "-peer", r->set, r->augmented, r->seed);
  if (r->together > 1) fprintf(f, "\"together\":%d,", r->together);
  fprintf(f, "\"images\":10,\"val_images\":10,\"steps\":30,\"batch\":2,\"parameters\":1,");
  fprintf(f, "\"val_top1\":%g,\"seconds\":%g,%s}\n", ours ? r->top1 : r->top1 / 2, ours ? r->seconds : 2 * r->seconds,
          origin);
}

static bool make_root(const Run *run, int runs) {
  const char *said, *root = in_tmp("vgg28-root");
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  CHECK(!command(&said,
                 "mkdir -p %s/docs %s/results && cp docs/classification.md %s/docs && echo '[]' "
                 ">%s/results/legacy.json",
                 root, root, root, root));
  FILE *list = fopen(in_tmp("vgg28-root/results/README.md"), "w"),
       *f = fopen(in_tmp("vgg28-root/results/vgg28-h200.jsonl"), "w");
  CHECK(list && f);
  fprintf(list, "`legacy.json` `vgg28-h200.jsonl`\n");
  for (int i = 0; i < runs; i++)
    for (int ours = 0; ours < 2; ours++) write_run(f, &run[i], ours);
  return EXPECT(!fclose(list) && !fclose(f));
}

// Seeds that shared the GPU count for accuracies, not for speeds.
TEST_TIER(vgg28_figures_table, 1) {
  static const Run run[] = {{"mnist", 0, 1, 1, 0.9, 1},
                            {"mnist", 0, 2, 1, 0.9, 3},
                            {"mnist", 0, 3, 2, 0.6, 100},
                            {"mnist", 25, 1, 2, 0.5, 1}};
  const char *said;
  size_t size;
  if (!make_root(run, COUNT(run))) return;
  if (!EXPECT_INT(command(&said, "python3 lab/tables.py --root %s", in_tmp("vgg28-root")), 0)) printf("%s\n", said);
  char *page = file_read(in_tmp("vgg28-root/docs/classification.md"), &size, NULL);
  if (!page) return;
  EXPECT(strstr(page,
                "\n| MNIST | bf16 | 0 | 3 | 80.00 ± 17.32 | 40.00 ± 8.66 | +40.00 ± 11.18 | 2.0 / 4.0 | 40 / 20 |\n"));
  EXPECT(strstr(page, "\n| MNIST | bf16 | 25 | 1 | 50.00 | 25.00 | +25.00 | – | – |\n"));
  free(page);
}

// Over the settings of a set: of two seeds each, whose differences have the variances 31.25 and 125, and of one, which
// has none.
TEST_TIER(vgg28_figures_over_settings, 1) {
  static const Run run[] = {{"fashion", 0, 1, 1, 0.9, 1},  {"fashion", 0, 2, 1, 0.8, 1},  {"fashion", 25, 1, 1, 0.6, 1},
                            {"fashion", 25, 2, 1, 0.4, 1}, {"fashion", 50, 1, 1, 0.8, 1}, {"mnist", 0, 1, 1, 0.6, 1},
                            {"mnist", 0, 2, 1, 0.4, 1}};
  const char *said;
  size_t size;
  if (!make_root(run, COUNT(run))) return;
  if (!EXPECT_INT(command(&said, "python3 lab/tables.py --root %s", in_tmp("vgg28-root")), 0)) printf("%s\n", said);
  char *page = file_read(in_tmp("vgg28-root/docs/classification.md"), &size, NULL);
  if (!page) return;
  EXPECT(strstr(page, "<!-- value: vgg28.fashion -->+39.00 ± 5.00<!-- end -->"));
  EXPECT(strstr(page, "\n| Fashion-MNIST, a part | bf16 | 0 | 2 | 85.00 ± 7.07 | 42.50 ± 3.54 | +42.50 ± 5.59 |"));
  free(page);
}
