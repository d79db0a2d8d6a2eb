// Catches tables of docs/nets.md showing other numbers than their records.
#include "base/file.h"
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

static void begin_record(FILE *f, const char *bench, const char *net, int batch) {
  fprintf(f, "{\"bench\":\"%s\",\"net\":\"%s\",\"gpu\":\"a GPU\",\"dtype\":\"bf16\",\"batch\":%d,\"peak_bytes\":%lld,",
          bench, net, batch, 3LL << 29);
  fprintf(f, "\"out_of_memory\":false,");
}

static void write_ours(FILE *f, const char *net, int batch, const char *conv, double ms) {
  begin_record(f, "net", net, batch);
  fprintf(f, "\"conv\":\"%s\",", conv);
  write_walks(f, "", ms);
  fprintf(f, "%s}", origin);
}

// Eagerly 5 ms, as a graph 4.
static void write_peer(FILE *f, const char *net, int batch) {
  begin_record(f, "net-peer", net, batch);
  write_walks(f, "_eager", 5);
  write_walks(f, "_graph", 4);
  fprintf(f, "%s}", origin);
}

// Ours takes `ours` ms, on cuDNN's convolutions twice that.
static void write_setting(FILE *f, const char *net, int batch, double ours) {
  write_ours(f, net, batch, "auto", ours);
  fputc('\n', f);
  write_ours(f, net, batch, "cudnn", 2 * ours);
  fputc('\n', f);
  write_peer(f, net, batch);
  fputc('\n', f);
}

// A run of the plan of minibatches; ms 0: PyTorch's.
static void write_run(FILE *f, const char *net, int batch, int repeat, double ms) {
  fprintf(f,
          "{\"kind\":\"run\",\"command\":\"%s\",\"settings\":{\"net\":\"%s\",\"batch\":\"%d\"},\"repeat\":%d,"
          "\"state\":\"ok\",\"files\":\"made-up\",\"records\":[",
          ms > 0 ? "ours" : "pytorch", net, batch, repeat);
  if (ms > 0)
    write_ours(f, net, batch, "auto", ms);
  else
    write_peer(f, net, batch);
  fprintf(f, "]}\n");
}

// In the study AlexNet takes 1 ms, of 8 images 1 and 3; the others 2, OverFeat's 32 images have not run.
static bool make_root(void) {
  static const char *const seven[] = {"alexnet",  "overfeat",  "vgg16",    "googlenet",
                                      "resnet50", "resnet101", "resnet152"};
  const char *said, *root = in_tmp("nets-root");
  if (command(&said, "python3 --version")) {
    test_skip("python3 is not installed");
    return false;
  }
  CHECK(!command(&said,
                 "mkdir -p %s/docs %s/results/studies/minibatch && cp docs/nets.md %s/docs && "
                 "echo '[]' >%s/results/legacy.json",
                 root, root, root, root));
  FILE *list = fopen(in_tmp("nets-root/results/README.md"), "w"),
       *f = fopen(in_tmp("nets-root/results/nets-h200.jsonl"), "w"),
       *study = fopen(in_tmp("nets-root/results/studies/minibatch/results.jsonl"), "w");
  CHECK(list && f && study);
  fprintf(list, "`legacy.json` `nets-h200.jsonl` `studies`\n");
  for (int i = 0; i < COUNT(seven); i++) {
    write_setting(f, seven[i], 64, 7); // an older record
    write_setting(f, seven[i], 64, i ? 2 : 1);
    for (int batch = 1; batch <= 64; batch *= 2) {
      if (i != 1 || batch != 32) write_run(study, seven[i], batch, 1, i ? 2 : 1);
      write_run(study, seven[i], batch, 1, 0);
    }
  }
  write_run(study, "alexnet", 8, 2, 3);
  write_setting(f, "vgg-28", 64, 3);
  return EXPECT(!fclose(list) && !fclose(f) && !fclose(study));
}

TEST_TIER(nets_figures_tables, 1) {
  const char *said;
  size_t size;
  if (!make_root()) return;
  if (!EXPECT_INT(command(&said, "python3 lab/tables.py --root %s", in_tmp("nets-root")), 0)) printf("%s\n", said);
  char *page = file_read(in_tmp("nets-root/docs/nets.md"), &size, NULL);
  if (!page) return;
  EXPECT(strstr(page,
                "\n| AlexNet | 1.00 / 2.00 / 4.00 | 0.25 | 2.00 / 4.00 / 8.00 | 0.25 | 4.00 / 8.00 / 16.00 | 0.25 "
                "| 1.5 / 1.5 / 1.5 |\n"));
  EXPECT(strstr(page, "\n| VGG-28 | 3.00 / 6.00 / 4.00 | 0.75 |"));
  EXPECT(strstr(page, "\n| geometric mean of the first seven |  | 0.45 |")); // (1/4 · (1/2)^6)^(1/7)
  EXPECT(strstr(page, "\n| AlexNet | 0.25 | 0.25 | 0.25 | 0.50 | 0.25 | 0.25 | 0.25 | 0.30 | 0.28 |\n"));
  EXPECT(strstr(page, "\n| OverFeat (fast) | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 | – | 0.50 | 0.50 | 0.50 (of 6) |\n"));
  EXPECT(strstr(page, "\n| geometric mean | 0.45 | 0.45 | 0.45 | 0.50 | 0.45 | 0.45 (of 6) | 0.45 | 0.46 "
                      "| 0.46 (of 48) |\n"));
  free(page);
}
