// The tables and the plot of docs/nets.md, from records that are made up here.
#include "test/harness/command.h"
#include "test/harness/test.h"

static const char origin[] =
    "\"date\":\"2026-01-01T00:00:00Z\",\"commit\":\"0123456\",\"clean\":true,\"command\":\"made "
    "up\",\"machine\":{\"cpu\":"
    "\"\",\"cores\":1,\"ram_gib\":1,\"os\":\"\",\"kernel\":\"\",\"compiler\":\"\",\"gpu\":null,\"gpus\":null,"
    "\"gpu_memory_gib\":null,\"sm_mhz\":null,\"sm_mhz_max\":null,\"memory_mhz\":null,\"memory_mhz_max\":null,"
    "\"power_limit_w\":null,\"driver\":null,\"cuda_runtime\":null,\"cuda_toolkit\":null}";

// The medians of the walks, forward `ms` and each next one twice as much.
static void write_walks(FILE *f, const char *way, double ms) {
  static const char *const walks[] = {"fwd", "fwdbwd", "step"};
  for (int i = 0; i < COUNT(walks); i++, ms *= 2) fprintf(f, "\"%s%s\":{\"median\":%g},", walks[i], way, ms);
}

static void begin_record(FILE *f, const char *bench, const char *net, int batch, bool out_of_memory) {
  fprintf(f, "{\"bench\":\"%s\",\"net\":\"%s\",\"gpu\":\"a GPU\",\"dtype\":\"bf16\",\"batch\":%d,\"peak_bytes\":%lld,",
          bench, net, batch, 3LL << 29);
  fprintf(f, "\"out_of_memory\":%s,", out_of_memory ? "true" : "false");
}

// Ours takes `ours` ms, on cuDNN's convolutions twice that, PyTorch eagerly 5 and as a graph 4; 0: memory is out.
static void write_setting(FILE *f, const char *net, int batch, double ours) {
  for (int cudnn = 0; cudnn < 2; cudnn++) {
    begin_record(f, "net", net, batch, ours == 0);
    fprintf(f, "\"conv\":\"%s\",", cudnn ? "cudnn" : "auto");
    if (ours) write_walks(f, "", cudnn ? 2 * ours : ours);
    fprintf(f, "%s}\n", origin);
  }
  begin_record(f, "net-peer", net, batch, false);
  write_walks(f, "_eager", 5);
  write_walks(f, "_graph", 4);
  fprintf(f, "%s}\n", origin);
}

static bool make_root(void) {
  static const char *const seven[] = {"alexnet",  "overfeat",  "vgg16",    "googlenet",
                                      "resnet50", "resnet101", "resnet152"};
  const char *said, *root = in_tmp("nets-root");
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  CHECK(!command(&said, "mkdir -p %s/docs %s/results && cp docs/nets.md %s/docs && echo '[]' >%s/results/legacy.json",
                 root, root, root, root));
  FILE *list = fopen(in_tmp("nets-root/results/README.md"), "w"),
       *f = fopen(in_tmp("nets-root/results/nets-h200.jsonl"), "w");
  CHECK(list && f);
  fprintf(list, "`legacy.json` `nets-h200.jsonl`\n");
  for (int i = 0; i < COUNT(seven); i++)
    for (int batch = 1; batch <= 64; batch *= 2)
      write_setting(f, seven[i], batch, i == 1 && batch == 32 ? 0 : i ? 2 : 1);
  write_setting(f, "vgg-28", 64, 3);
  return EXPECT(!fclose(list) && !fclose(f));
}

TEST_TIER(nets_figures_tables, 1) {
  const char *said;
  size_t size;
  if (!make_root()) return;
  if (!EXPECT_INT(command(&said, "python3 tools/tables.py --root %s", in_tmp("nets-root")), 0)) printf("%s\n", said);
  char *page = file_read(in_tmp("nets-root/docs/nets.md"), &size, NULL);
  if (!page) return;
  EXPECT(strstr(page,
                "\n| AlexNet | 1.00 / 2.00 / 4.00 | 0.25 | 2.00 / 4.00 / 8.00 | 0.25 | 4.00 / 8.00 / 16.00 | 0.25 "
                "| 1.5 / 1.5 / 1.5 |\n"));
  EXPECT(strstr(page, "\n| VGG-28 | 3.00 / 6.00 / 4.00 | 0.75 |"));
  EXPECT(strstr(page, "\n| geometric mean of the first seven |  | 0.45 |")); // (1/4 · (1/2)^6)^(1/7)
  EXPECT(strstr(page, "\n| OverFeat (fast) | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 | memory out: ours | 0.50 | 0.50 |\n"));
  EXPECT(strstr(page, "\n| geometric mean of the first seven | 0.45 | 0.45 | 0.45 | 0.45 | 0.45 | 0.45 (of 6) "
                      "| 0.45 | 0.45 |\n"));
  EXPECT(strstr(page, "\n| VGG-28 | – | – | – | – | – | – | 0.75 | – |\n"));
  free(page);
}

TEST_TIER(nets_figures_plot, 1) {
  const char *said;
  if (!make_root()) return;
  EXPECT_INT(command(&said, "python3 tools/nets_plot.py %s", in_tmp("nets-root/results/nets-h200.jsonl")), 0);
  EXPECT(strstr(said, "<svg ") == said && strstr(said, ">ResNet-152<") && strstr(said, ">a GPU, bf16, medians"));
  EXPECT_INT(command(&said, "python3 tools/nets_plot.py %s", in_tmp("nets-root/results/README.md")), 2);
  EXPECT(strstr(said, "nets_plot: ") == said && !strchr(said, '\n')[1]);
}
