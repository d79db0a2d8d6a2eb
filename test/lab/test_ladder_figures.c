// Catches the ladder's table and plot showing other numbers than their records.
#include "base/file.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char ladder_origin[] =
    "\"date\":\"2026-01-01T00:00:00Z\",\"commit\":\"0123456\",\"clean\":true,\"command\":\"made "
    "up\",\"machine\":{\"cpu\":\"\",\"cores\":1,\"ram_gib\":1,\"os\":\"\",\"kernel\":\"\",\"compiler\":\"\","
    "\"gpu\":null,\"gpus\":null,\"gpu_memory_gib\":null,\"sm_mhz\":null,\"sm_mhz_max\":null,\"memory_mhz\":null,"
    "\"memory_mhz_max\":null,\"power_limit_w\":null,\"driver\":null,\"cuda_runtime\":null,\"cuda_toolkit\":null}";

// Of 1000 µs at the peak; ratio 0: there was no cuDNN.
static void write_row(FILE *f, const char *rung, const char *layer, double tflops, double us, double ratio) {
  fprintf(f, "{\"bench\":\"ladder\",\"gpu\":\"a GPU\",\"op\":\"fwd\",\"rung\":\"%s\",\"layer\":\"%s\",\"tflops\":%g,",
          rung, layer, tflops);
  fprintf(f, "\"us\":%g,\"floor_us\":1000,", us);
  if (ratio > 0)
    fprintf(f, "\"ratio\":%g,%s}\n", ratio, ladder_origin);
  else
    fprintf(f, "\"ratio\":null,%s}\n", ladder_origin);
}

static bool make_root(void) {
  const char *said, *root = in_tmp("ladder-root");
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  CHECK(!command(&said,
                 "mkdir -p %s/docs %s/results && echo '[]' >%s/results/legacy.json && "
                 "printf '<!-- table: ladder-lessons -->\\n<!-- end -->\\n' >%s/docs/page.md && "
                 "echo '`legacy.json` `ladder-h200.jsonl`' >%s/results/README.md",
                 root, root, root, root, root));
  FILE *f = fopen(in_tmp("ladder-root/results/ladder-h200.jsonl"), "w");
  CHECK(f);
  write_row(f, "cudnn", "p2.3x3", 800, 1250, 1);
  write_row(f, "wgmma", "p2.3x3", 840, 1200, 1.05);
  write_row(f, "02_smem_tile", "p2.3x3", 4, 250000, 0.005);
  write_row(f, "01_naive", "p2.3x3", 0.25, 4000000, 0.0003);
  write_row(f, "01_naive", "gemm.8192", 0.5, 2000000, 0);
  return EXPECT(!fclose(f));
}

TEST_TIER(ladder_figures_table, 1) {
  const char *said;
  size_t size;
  if (!make_root()) return;
  if (!EXPECT_INT(command(&said, "python3 lab/tables.py --root %s", in_tmp("ladder-root")), 0)) printf("%s\n", said);
  char *page = file_read(in_tmp("ladder-root/docs/page.md"), &size, NULL);
  if (!page) return;
  const char *rows = strstr(page, "\n| 01_naive | 0.25 | 0.03 % | 0.03 % | 0.50 | – | 0.05 % |\n"
                                  "| 02_smem_tile | 4.00 | 0.50 % | 0.40 % | – | – | – |\n"
                                  "| wgmma | 840 | 105.0 % | 83.3 % | – | – | – |\n"
                                  "| cudnn | 800 |  | 80.0 % | – | – | – |\n");
  if (!EXPECT(rows)) printf("%s\n", page);
  free(page);
}

TEST_TIER(ladder_figures_plot, 1) {
  const char *said;
  if (!make_root()) return;
  EXPECT_INT(command(&said, "python3 lab/ladder_plot.py %s", in_tmp("ladder-root/results/ladder-h200.jsonl")), 0);
  EXPECT(strstr(said, "<svg ") == said && strstr(said, ">02_smem_tile<") && strstr(said, ">a GPU, medians<"));
  EXPECT_INT(command(&said, "python3 lab/ladder_plot.py %s", in_tmp("ladder-root/results/README.md")), 2);
  EXPECT(strstr(said, "ladder_plot: ") == said && !strchr(said, '\n')[1]);
}
