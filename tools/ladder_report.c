// ladder_report: the records of bench conv as the tables of cuda/conv/README.md and a chart.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/json.h"
#include "data/reports/plot.h"

enum { MAX_RUNGS = 12, MAX_LAYERS = 128, MAX_TABLES = 32, OPS = 3, NAME = 64, MAX_COMMITS = 32 };

// As bench writes them, in the order of the tables.
static const char *const dtype_names[] = {"bf16", "fp16", "tf32", "fp32"};
static const char *const fused_names[] = {"none", "relu", "add-relu"};
static const char *const op_names[OPS] = {"fwd", "dgrad", "wgrad"};
static const char *const fused_titles[] = {"", ", bias, ReLU", ", bias, residual, ReLU"}; // behind a dtype and a batch
// In the chart and the tables of layers: one of each kind.
static const char *const shown[] = {"res3.3x3", "res4.3x3",       "res5.3x3", "res4.1x1.in", "res4.1x1.out",
                                    "p2.3x3",   "fpn.p2.lateral", "mask.3x3", "mask.deconv", "box.fc6"};
static const char begin_mark[] = "<!-- conv tables: generated from ", end_mark[] = "<!-- end of conv tables -->";

typedef struct LadderEntry {
  double us, tflops, ratio; // us 0: not measured
  double cudnn_us;          // in the same rounds; NaN: not known
  int count;
  bool fused; // by cuDNN in one graph
} LadderEntry;

// The figures of one dtype, fusion and batch. The last record of a (rung, op, layer) counts.
typedef struct LadderTable {
  int dtype, fused, batch; // indices of names; images
  char rung[MAX_RUNGS][NAME], layer[MAX_LAYERS][NAME];
  int rungs, layers;
  LadderEntry entry[MAX_RUNGS][OPS][MAX_LAYERS];
  char gpu[128], commit[MAX_COMMITS][NAME];
  int commits;
} LadderTable;

typedef struct LadderReport {
  LadderTable table[MAX_TABLES];
  int tables;
} LadderReport;

typedef struct LadderRecord { // one record
  char bench[NAME], dtype[NAME], fused[NAME], rung[NAME], op[NAME], layer[NAME], commit[NAME], gpu[128];
  int batch;
  LadderEntry entry;
} LadderRecord;

// ---- reading --------------------------------------------------------------------------------------------------------

// What is cut off could be what tells two names apart.
static void read_text(Json *j, char *out, size_t size) {
  if (snprintf(out, size, "%s", json_string(j, NULL)) >= (int)size)
    json_fail(j, "a name of more than %zu characters", size - 1);
}
static double read_number(Json *j) {
  if (json_peek(j) != JSON_NULL) return json_number(j);
  json_skip(j);
  return NAN;
}

static bool read_row(Json *j, LadderRecord *r) {
  *r = (LadderRecord){.fused = "none", .batch = 4, .entry = {.ratio = NAN, .cudnn_us = NAN}}; // what bench does unasked
  const struct {
    const char *key;
    char *text;
    size_t size;
    double *number;
  } members[] = {
      {"bench", r->bench, NAME, NULL},
      {"dtype", r->dtype, NAME, NULL},
      {"fused", r->fused, NAME, NULL},
      {"rung", r->rung, NAME, NULL},
      {"op", r->op, NAME, NULL},
      {"layer", r->layer, NAME, NULL},
      {"gpu", r->gpu, sizeof r->gpu, NULL},
      {"commit", r->commit, NAME, NULL},
      {"us", NULL, 0, &r->entry.us},
      {"tflops", NULL, 0, &r->entry.tflops},
      {"ratio", NULL, 0, &r->entry.ratio},
      {"cudnn_us", NULL, 0, &r->entry.cudnn_us},
  };
  const char *key;
  if (!json_begin_object(j)) return false;
  while ((key = json_key(j))) {
    int i = 0;
    while (i < COUNT(members) && strcmp(members[i].key, key)) i++;
    if (!strcmp(key, "count"))
      r->entry.count = (int)json_int(j);
    else if (!strcmp(key, "batch"))
      r->batch = (int)json_int(j);
    else if (!strcmp(key, "cudnn_fused"))
      r->entry.fused = json_bool(j);
    else if (i == COUNT(members))
      json_skip(j);
    else if (members[i].text)
      read_text(j, members[i].text, members[i].size);
    else
      *members[i].number = read_number(j);
  }
  return !j->failed;
}

// Its place among the names, appended when it is new.
static int place(char names[][NAME], int *count, int capacity, const char *name) {
  for (int i = 0; i < *count; i++)
    if (!strcmp(names[i], name)) return i;
  if (*count == capacity) die(EXIT_USAGE, "more than %d different names such as %s", capacity, name);
  strcpy(names[*count], name);
  return (*count)++;
}

static int index_of(const char *const names[], int count, const char *name) {
  int i = 0;
  while (i < count && strcmp(names[i], name)) i++;
  return i;
}

static LadderTable *table_of(LadderReport *all, int dtype, int fused, int batch) {
  for (LadderTable *t = all->table; t < all->table + all->tables; t++)
    if (t->dtype == dtype && t->fused == fused && t->batch == batch) return t;
  if (all->tables == MAX_TABLES) die(EXIT_USAGE, "records of more than %d dtypes, fusions and batches", MAX_TABLES);
  LadderTable *t = &all->table[all->tables++];
  t->dtype = dtype;
  t->fused = fused;
  t->batch = batch;
  return t;
}

static void add_row(LadderReport *all, const char *path, const LadderRecord *r) {
  int dtype = index_of(dtype_names, COUNT(dtype_names), r->dtype), op = index_of(op_names, OPS, r->op);
  int fused = index_of(fused_names, COUNT(fused_names), r->fused);
  if (strcmp(r->bench, "conv") || fused == COUNT(fused_names) || dtype == COUNT(dtype_names) || op == OPS) return;
  LadderTable *t = table_of(all, dtype, fused, r->batch);
  if (!t->rungs) memcpy(t->gpu, r->gpu, sizeof t->gpu);
  if (strcmp(t->gpu, r->gpu))
    die(EXIT_USAGE, "%s: %s, batch %d%s: a record from %s, others from %s; report them apart", path, r->dtype, r->batch,
        fused_titles[fused], r->gpu, t->gpu);
  int layer = place(t->layer, &t->layers, MAX_LAYERS, r->layer);
  t->entry[place(t->rung, &t->rungs, MAX_RUNGS, r->rung)][op][layer] = r->entry;
  if (*r->commit) place(t->commit, &t->commits, MAX_COMMITS, r->commit);
}

static void read_file(LadderReport *all, const char *path) {
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

static int compare_tables(const void *a, const void *b) {
  const LadderTable *s = a, *t = b;
  if (s->dtype != t->dtype) return s->dtype - t->dtype;
  return s->fused != t->fused ? s->fused - t->fused : s->batch - t->batch;
}

// cuDNN last, whatever came first.
static void move_cudnn_last(LadderTable *t) {
  static LadderEntry moved[OPS][MAX_LAYERS];
  for (int i = 0; i + 1 < t->rungs; i++) {
    if (strcmp(t->rung[i], "cudnn")) continue;
    char name[NAME];
    memcpy(name, t->rung[i], NAME);
    memcpy(t->rung[i], t->rung[i + 1], NAME);
    memcpy(t->rung[i + 1], name, NAME);
    memcpy(moved, t->entry[i], sizeof moved);
    memcpy(t->entry[i], t->entry[i + 1], sizeof moved);
    memcpy(t->entry[i + 1], moved, sizeof moved);
  }
}

// ---- tables ---------------------------------------------------------------------------------------------------------

static int find(const LadderTable *t, const char *rung) {
  for (int i = 0; i < t->rungs; i++)
    if (!strcmp(t->rung[i], rung)) return i;
  return -1;
}
static int find_layer(const LadderTable *t, const char *layer) {
  for (int i = 0; i < t->layers; i++)
    if (!strcmp(t->layer[i], layer)) return i;
  return -1;
}

// Over the layers of one op, each as often as it occurs.
typedef struct LadderTotal {
  int layers;
  double us;
  double shared_us, cudnn_us; // of the layers that both have measured
  double worst;               // ratio
  const char *worst_layer;    // NULL: nothing is known
} LadderTotal;

static void add_total(LadderTotal *sum, const LadderTable *t, int op, int rung, int cudnn, bool with_stem) {
  for (int i = 0; i < t->layers; i++) {
    const LadderEntry *e = &t->entry[rung][op][i];
    if (!(e->us > 0) || (!with_stem && !strcmp(t->layer[i], "stem"))) continue;
    sum->layers++;
    sum->us += e->count * e->us;
    double peer = isnan(e->cudnn_us) && cudnn >= 0 ? t->entry[cudnn][op][i].us : e->cudnn_us;
    if (peer > 0) {
      sum->shared_us += e->count * e->us;
      sum->cudnn_us += e->count * peer;
    }
    if (!isnan(e->ratio) && (!sum->worst_layer || e->ratio < sum->worst)) {
      sum->worst = e->ratio;
      sum->worst_layer = t->layer[i];
    }
  }
}

static void print_total(FILE *f, const LadderTable *t, const char *op, const char *without, int rung,
                        const LadderTotal *sum) {
  fprintf(f, "| %s, batch %d | %s%s%s | %s | %d | %.2f | ", dtype_names[t->dtype], t->batch, op, fused_titles[t->fused],
          without, t->rung[rung], sum->layers, sum->us / 1e3);
  if (sum->shared_us > 0)
    fprintf(f, "%.2f | %.2f | ", sum->cudnn_us / 1e3, sum->cudnn_us / sum->shared_us);
  else
    fprintf(f, "– | – | ");
  if (sum->worst_layer)
    fprintf(f, "%s, %.2f |\n", sum->worst_layer, sum->worst);
  else
    fprintf(f, "– |\n");
}

// In the stem cuDNN is so slow that it hides the rest: where it is among the layers, a row without it follows.
static void print_with_and_without(FILE *f, const LadderTable *t, const char *op, int rung, const LadderTotal *sum,
                                   const LadderTotal *rest) {
  print_total(f, t, op, "", rung, sum);
  if (rest->layers && rest->layers < sum->layers) print_total(f, t, op, " without the stem", rung, rest);
}

// A rung's ops by themselves and, where it has measured all of them, together.
static void print_rung(FILE *f, const LadderTable *t, int rung, int cudnn) {
  LadderTotal all = {0}, all_rest = {0};
  int ops = 0;
  for (int op = 0; op < OPS; op++) {
    LadderTotal sum = {0}, rest = {0};
    add_total(&sum, t, op, rung, cudnn, true);
    add_total(&rest, t, op, rung, cudnn, false);
    add_total(&all, t, op, rung, cudnn, true);
    add_total(&all_rest, t, op, rung, cudnn, false);
    if (!sum.layers) continue;
    print_with_and_without(f, t, op_names[op], rung, &sum, &rest);
    ops++;
  }
  if (ops == OPS) print_with_and_without(f, t, "all", rung, &all, &all_rest);
}

// What the peer is, where more than a convolution was asked for.
static void print_fusion(FILE *f, const LadderTable *t) {
  int cudnn = find(t, "cudnn"), layers = 0, fused = 0;
  for (int i = 0; i < t->layers && cudnn >= 0; i++) {
    layers += t->entry[cudnn][0][i].us > 0;
    fused += t->entry[cudnn][0][i].us > 0 && t->entry[cudnn][0][i].fused;
  }
  if (t->fused && layers)
    fprintf(f, "\n%s, batch %d%s: in %d of %d layers cuDNN's time is that of one fused graph%s.\n",
            dtype_names[t->dtype], t->batch, fused_titles[t->fused], fused, layers,
            fused < layers ? "; elsewhere it has none, or its convolution with a kernel of ours behind it is faster"
                           : "");
}

static void print_totals(FILE *f, const LadderReport *all) {
  fprintf(f, "\nAll convolutions of a step, each as often as it occurs:\n\n");
  fprintf(
      f,
      "| what | op | rung | layers | ms | cuDNN's ms | of its speed | slowest |\n|---|---|---|---|---|---|---|---|\n");
  for (const LadderTable *t = all->table; t < all->table + all->tables; t++) {
    int cudnn = find(t, "cudnn");
    for (int r = 0; r < t->rungs; r++)
      if (r != cudnn) print_rung(f, t, r, cudnn);
  }
  for (int i = 0; i < all->tables; i++) print_fusion(f, &all->table[i]);
}

static void print_layers(FILE *f, const LadderTable *t) {
  fprintf(f, "\nTFLOP/s in %s, batch %d, forward / dgrad / wgrad:\n\n| layer |", dtype_names[t->dtype], t->batch);
  for (int r = 0; r < t->rungs; r++) fprintf(f, " %s |", t->rung[r]);
  fprintf(f, "\n|---|");
  for (int r = 0; r < t->rungs; r++) fprintf(f, "---|");
  for (int i = 0; i < COUNT(shown); i++) {
    int layer = find_layer(t, shown[i]);
    if (layer < 0) continue;
    fprintf(f, "\n| %s |", shown[i]);
    for (int r = 0; r < t->rungs; r++)
      for (int op = 0; op < OPS; op++) {
        const LadderEntry *e = &t->entry[r][op][layer];
        if (e->us > 0)
          fprintf(f, " %.0f %s", e->tflops, op < OPS - 1 ? "/" : "|");
        else
          fprintf(f, " – %s", op < OPS - 1 ? "/" : "|");
      }
  }
  fprintf(f, "\n");
}

// A path from the root of the tree, as seen from the folder of `from`.
static void print_link(FILE *f, const char *from, const char *path) {
  fprintf(f, "\n![TFLOP/s of the rungs and of cuDNN](");
  for (; *from; from++)
    if (*from == '/') fprintf(f, "../");
  fprintf(f, "%s)\n", path);
}

// Who measured, where; of tables that have it in common, once.
static void print_provenance(FILE *f, const LadderReport *all) {
  fprintf(f, "\n");
  for (int i = 0; i < all->tables; i++) {
    const LadderTable *t = &all->table[i], *next = i + 1 < all->tables ? t + 1 : NULL;
    bool last = !next || strcmp(t->gpu, next->gpu) || memcmp(t->commit, next->commit, sizeof t->commit);
    fprintf(f, "%s, batch %d%s", dtype_names[t->dtype], t->batch, fused_titles[t->fused]);
    if (!last) {
      fprintf(f, "; ");
      continue;
    }
    fprintf(f, ": %s, commit ", t->gpu);
    for (int c = 0; c < t->commits; c++) fprintf(f, "%s%s", c ? ", " : "", t->commit[c]);
    fprintf(f, ".\n");
  }
}

static void print_section(FILE *f, const LadderReport *all, char **files, int num_files, const char *readme,
                          const char *chart) {
  fprintf(f, "%s", begin_mark);
  for (int i = 0; i < num_files; i++) fprintf(f, "%s%s", i ? ", " : "", files[i]);
  fprintf(f, " by ladder_report -->\n");
  print_totals(f, all);
  for (int i = 0; i < all->tables; i++)
    if (!all->table[i].fused) print_layers(f, &all->table[i]);
  if (chart) print_link(f, readme, chart);
  print_provenance(f, all);
  fprintf(f, "\n%s\n", end_mark);
}

// Replaces what is between the marks, or after the first where the last is missing.
static void rewrite(const char *path, const LadderReport *all, char **files, int num_files, const char *chart) {
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (!text) die(EXIT_USAGE, "%s", err.msg);
  char *begin = strstr(text, begin_mark), *end = begin ? strstr(begin, end_mark) : NULL;
  if (!begin) die(EXIT_USAGE, "%s: no line begins with \"%s\"", path, begin_mark);
  AtomicFile out;
  if (!file_begin(&out, path, &err)) die(EXIT_RUN, "%s", err.msg);
  fwrite(text, 1, (size_t)(begin - text), out.f);
  print_section(out.f, all, files, num_files, path, chart);
  if (end) fputs(end + strlen(end_mark) + (end[strlen(end_mark)] == '\n'), out.f);
  if (!file_commit(&out, &err)) die(EXIT_RUN, "%s", err.msg);
  free(text);
}

// ---- the chart ------------------------------------------------------------------------------------------------------

static void draw(const char *path, const LadderTable *t) {
  static double y[OPS][MAX_RUNGS][COUNT(shown)];
  PlotSeries series[OPS][MAX_RUNGS];
  PlotPanel panels[OPS];
  static const char *const titles[OPS] = {"forward", "dgrad", "wgrad"};
  for (int op = 0; op < OPS; op++) {
    for (int r = 0; r < t->rungs; r++) {
      for (int i = 0; i < COUNT(shown); i++) {
        int layer = find_layer(t, shown[i]);
        y[op][r][i] = layer >= 0 && t->entry[r][op][layer].us > 0 ? t->entry[r][op][layer].tflops : NAN;
      }
      series[op][r] = (PlotSeries){t->rung[r], NULL, y[op][r], COUNT(shown), false};
    }
    panels[op] = (PlotPanel){titles[op], "", "TFLOP/s", false, series[op], t->rungs, shown};
  }
  char title[256];
  snprintf(title, sizeof title, "Convolutions in %s, batch %d, on %.*s", dtype_names[t->dtype], t->batch,
           (int)strcspn(t->gpu, ","), t->gpu);
  Err err;
  if (!plot_svg(path, title, panels, OPS, &err)) die(EXIT_RUN, "%s", err.msg);
}

// clang-format off
#define LADDER_REPORT_OPTIONS(X)                                                                                       \
  X(STRING, readme, NULL, "FILE", "rewrite the tables in this")                                                        \
  X(STRING, chart,  NULL, "FILE", "draw the first of the tables into this SVG file")
// clang-format on

typedef struct LadderReportOptions {
  OPTION_FIELDS(LADDER_REPORT_OPTIONS)
} LadderReportOptions;

int main(int argc, char **argv) {
  static LadderReport all;
  LadderReportOptions o = {OPTION_DEFAULTS(LADDER_REPORT_OPTIONS)};
  OPTION_TABLE(table, LadderReportOptions, LADDER_REPORT_OPTIONS);
  Cli cli = {.usage = "[--readme cuda/conv/README.md] [--chart FILE] RECORDS.jsonl …",
             .about = "Turns what bench conv measured into the tables of the ladder and a chart.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "RECORDS"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!cli.num_args || (!o.readme && !o.chart)) die(EXIT_USAGE, "needs records, and --readme or --chart");
  for (int i = 0; i < cli.num_args; i++) read_file(&all, cli.args[i]);
  if (!all.tables) die(EXIT_USAGE, "%s: no record of bench conv", cli.args[0]);
  qsort(all.table, (size_t)all.tables, sizeof *all.table, compare_tables);
  for (int i = 0; i < all.tables; i++) move_cudnn_last(&all.table[i]);
  if (o.readme) rewrite(o.readme, &all, cli.args, cli.num_args, o.chart);
  if (o.chart) draw(o.chart, &all.table[0]);
  return 0;
}
