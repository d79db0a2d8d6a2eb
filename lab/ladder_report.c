// ladder_report: the records of bench conv as a chart, TFLOP/s of the rungs and of cuDNN. The tables of the ladder are
// written by lab/tables.py.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/file.h"
#include "base/file_set.h"
#include "base/json.h"
#include "base/output.h"
#include "page/plot.h"

enum { MAX_RUNGS = 12, OPS = 3, NAME = 64 };

// As bench writes them.
static const char *const dtype_names[] = {"bf16", "fp16", "tf32", "fp32", NULL};
static const char *const op_names[OPS] = {"fwd", "dgrad", "wgrad"};
// One layer of each kind.
static const char *const shown[] = {"res3.3x3", "res4.3x3",       "res5.3x3", "res4.1x1.in", "res4.1x1.out",
                                    "p2.3x3",   "fpn.p2.lateral", "mask.3x3", "mask.deconv", "box.fc6"};

typedef struct LadderRecord { // one record
  char bench[NAME], dtype[NAME], fused[NAME], rung[NAME], op[NAME], layer[NAME], gpu[128];
  int batch;
  double tflops;
} LadderRecord;

// Of one dtype and batch, without fusion. The last record of a (rung, op, layer) counts.
typedef struct LadderChart {
  int dtype, batch; // index of a name; images
  char gpu[128], rung[MAX_RUNGS][NAME];
  int rungs;
  double tflops[MAX_RUNGS][OPS][COUNT(shown)]; // NaN: not measured
} LadderChart;

// ---- reading --------------------------------------------------------------------------------------------------------

// What is cut off could be what tells two names apart.
static void read_text(Json *j, char *out, size_t size) {
  if (snprintf(out, size, "%s", json_string(j, NULL)) >= (int)size)
    json_fail(j, "a name of more than %zu characters", size - 1);
}

static bool read_row(Json *j, LadderRecord *r) {
  *r = (LadderRecord){.fused = "none", .batch = 4, .tflops = NAN}; // what bench does unasked
  const struct {
    const char *key;
    char *text;
    size_t size;
  } members[] = {
      {"bench", r->bench, NAME}, {"dtype", r->dtype, NAME}, {"fused", r->fused, NAME},      {"rung", r->rung, NAME},
      {"op", r->op, NAME},       {"layer", r->layer, NAME}, {"gpu", r->gpu, sizeof r->gpu},
  };
  const char *key;
  if (!json_begin_object(j)) return false;
  while ((key = json_key(j))) {
    int i = 0;
    while (i < COUNT(members) && strcmp(members[i].key, key)) i++;
    if (!strcmp(key, "batch"))
      r->batch = (int)json_int(j);
    else if (!strcmp(key, "tflops") && json_peek(j) == JSON_NUMBER)
      r->tflops = json_number(j);
    else if (i == COUNT(members))
      json_skip(j);
    else
      read_text(j, members[i].text, members[i].size);
  }
  return !j->failed;
}

static int index_of(const char *const names[], int count, const char *name) {
  int i = 0;
  while (i < count && strcmp(names[i], name)) i++;
  return i;
}

// Its place among the rungs, appended when it is new.
static int place(LadderChart *all, const char *rung) {
  for (int i = 0; i < all->rungs; i++)
    if (!strcmp(all->rung[i], rung)) return i;
  if (all->rungs == MAX_RUNGS) die(EXIT_USAGE, "more than %d different rungs such as %s", MAX_RUNGS, rung);
  for (int op = 0; op < OPS; op++)
    for (int i = 0; i < COUNT(shown); i++) all->tflops[all->rungs][op][i] = NAN;
  strcpy(all->rung[all->rungs], rung);
  return all->rungs++;
}

static void add_row(LadderChart *all, const char *path, const LadderRecord *r) {
  int op = index_of(op_names, OPS, r->op), layer = index_of(shown, COUNT(shown), r->layer);
  bool wanted = !strcmp(r->bench, "conv") && !strcmp(r->dtype, dtype_names[all->dtype]) && !strcmp(r->fused, "none") &&
                r->batch == all->batch;
  if (!wanted || op == OPS || layer == COUNT(shown)) return;
  if (!all->rungs) memcpy(all->gpu, r->gpu, sizeof all->gpu);
  if (strcmp(all->gpu, r->gpu))
    die(EXIT_USAGE, "%s: a record from %s, others from %s; draw them apart", path, r->gpu, all->gpu);
  all->tflops[place(all, r->rung)][op][layer] = r->tflops;
}

static void read_file(LadderChart *all, const char *path) {
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (!text) die(EXIT_USAGE, "%s", err.msg);
  Json j;
  json_open(&j, path, text, size);
  LadderRecord row;
  while (json_peek(&j) == JSON_OBJECT && read_row(&j, &row)) add_row(all, path, &row);
  if (!json_done(&j)) die(EXIT_USAGE, "%s", j.err.msg);
  json_close(&j);
  free(text);
}

// ---- the chart ------------------------------------------------------------------------------------------------------

// The order of the series: cuDNN last, whatever came first.
static int order_rungs(const LadderChart *all, int order[MAX_RUNGS]) {
  int n = 0;
  for (int r = 0; r < all->rungs; r++)
    if (strcmp(all->rung[r], "cudnn")) order[n++] = r;
  for (int r = 0; r < all->rungs; r++)
    if (!strcmp(all->rung[r], "cudnn")) order[n++] = r;
  return n;
}

static bool draw(const char *path, const LadderChart *all, Err *err) {
  static const char *const titles[OPS] = {"forward", "dgrad", "wgrad"};
  PlotSeries series[OPS][MAX_RUNGS];
  PlotPanel panels[OPS];
  int order[MAX_RUNGS], rungs = order_rungs(all, order);
  for (int op = 0; op < OPS; op++) {
    for (int i = 0; i < rungs; i++)
      series[op][i] = (PlotSeries){all->rung[order[i]], NULL, all->tflops[order[i]][op], COUNT(shown), false};
    panels[op] = (PlotPanel){titles[op], "", "TFLOP/s", false, series[op], rungs, shown};
  }
  char title[256];
  snprintf(title, sizeof title, "Convolutions in %s, batch %d, on %.*s", dtype_names[all->dtype], all->batch,
           (int)strcspn(all->gpu, ","), all->gpu);
  return plot_svg(path, title, panels, OPS, err);
}

// clang-format off
#define LADDER_REPORT_OPTIONS(X)                                                                                       \
  X(STRING, chart, NULL, "FILE", "SVG file to write")                                                                  \
  X(CHOICE, dtype, 0, dtype_names, "type of the operands")                                                             \
  X(INT, batch, 4, 1, 64, "N", "images per batch")
// clang-format on

typedef struct LadderReportOptions {
  OPTION_FIELDS(LADDER_REPORT_OPTIONS)
} LadderReportOptions;

int main(int argc, char **argv) {
  LadderReportOptions o = {OPTION_DEFAULTS(LADDER_REPORT_OPTIONS)};
  OPTION_TABLE(table, LadderReportOptions, LADDER_REPORT_OPTIONS);
  Cli cli = {.usage = "--chart FILE [options] RECORDS.jsonl …",
             .about = "Draws what bench conv measured.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "RECORDS"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!cli.num_args || !o.chart) die(EXIT_USAGE, "needs --chart FILE and records");
  static LadderChart all;
  all.dtype = o.dtype;
  all.batch = o.batch;
  FileSet inputs = {0};
  for (int i = 0; i < cli.num_args; i++) {
    file_set_add(&inputs, cli.args[i]);
    read_file(&all, cli.args[i]);
  }
  if (!all.rungs)
    die(EXIT_USAGE, "%s: no record of bench conv in %s at batch %d", cli.args[0], dtype_names[all.dtype], all.batch);
  Err err;
  if (!file_set_spares(&inputs, o.chart, &err)) die(EXIT_USAGE, "--chart %s", err.msg);
  file_set_free(&inputs);
  if (!draw(o.chart, &all, &err)) die(EXIT_RUN, "%s", err.msg);
  stdout_close();
  return 0;
}
