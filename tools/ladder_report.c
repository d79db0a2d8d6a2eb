// ladder_report: the records of bench conv as the tables of cuda/conv/README.md and a chart.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data/json.h"
#include "data/plot.h"
#include "nn/cli.h"

enum { MAX_RUNGS = 12, MAX_LAYERS = 128, OPS = 3, NAME = 32 };

static const char *const dtype_names[] = {"bf16", "fp16", "tf32", "fp32"};
static const char *const op_names[OPS] = {"fwd", "dgrad", "wgrad"};
// In the chart and the second table: one of each kind.
static const char *const shown[] = {"res3.3x3", "res4.3x3",       "res5.3x3", "res4.1x1.in", "res4.1x1.out",
                                    "p2.3x3",   "fpn.p2.lateral", "mask.3x3", "mask.deconv", "box.fc6"};
static const char begin_mark[] = "<!-- conv tables: generated from ", end_mark[] = "<!-- end of conv tables -->";

typedef struct Entry {
  double us, tflops, ratio, floor_us; // us 0: not measured
  int count;
} Entry;

// One dtype's figures. The last record of a (rung, op, layer) counts.
typedef struct Table {
  char rung[MAX_RUNGS][NAME], layer[MAX_LAYERS][NAME];
  int rungs, layers;
  Entry entry[MAX_RUNGS][OPS][MAX_LAYERS];
  char gpu[128], commit[64];
} Table;

typedef struct Row { // one record
  char bench[NAME], dtype[NAME], fused[NAME], rung[NAME], op[NAME], layer[NAME], gpu[128], commit[64];
  Entry entry;
} Row;

// ---- reading --------------------------------------------------------------------------------------------------------

static void read_text(Json *j, char *out, size_t size) { snprintf(out, size, "%s", json_string(j, NULL)); }
static double read_number(Json *j) {
  if (json_peek(j) != JSON_NULL) return json_number(j);
  json_skip(j);
  return NAN;
}

static bool read_row(Json *j, Row *r) {
  *r = (Row){.fused = "none", .entry = {.ratio = NAN, .floor_us = NAN}};
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
      {"commit", r->commit, sizeof r->commit, NULL},
      {"us", NULL, 0, &r->entry.us},
      {"tflops", NULL, 0, &r->entry.tflops},
      {"ratio", NULL, 0, &r->entry.ratio},
      {"floor_us", NULL, 0, &r->entry.floor_us},
  };
  const char *key;
  if (!json_begin_object(j)) return false;
  while ((key = json_key(j))) {
    int i = 0;
    while (i < COUNT(members) && strcmp(members[i].key, key)) i++;
    if (!strcmp(key, "count"))
      r->entry.count = (int)json_int(j);
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

static void add_row(Table tables[], const Row *r) {
  int dtype = 0, op = 0;
  while (dtype < COUNT(dtype_names) && strcmp(dtype_names[dtype], r->dtype)) dtype++;
  while (op < OPS && strcmp(op_names[op], r->op)) op++;
  if (strcmp(r->bench, "conv") || strcmp(r->fused, "none") || dtype == COUNT(dtype_names) || op == OPS) return;
  Table *t = &tables[dtype];
  int layer = place(t->layer, &t->layers, MAX_LAYERS, r->layer);
  t->entry[place(t->rung, &t->rungs, MAX_RUNGS, r->rung)][op][layer] = r->entry;
  memcpy(t->gpu, r->gpu, sizeof t->gpu);
  memcpy(t->commit, r->commit, sizeof t->commit);
}

static void read_file(Table tables[], const char *path) {
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (!text) die(EXIT_USAGE, "%s", err.msg);
  Json j;
  json_open(&j, path, text, size);
  Row row;
  while (json_peek(&j) == JSON_OBJECT && read_row(&j, &row)) add_row(tables, &row);
  if (!json_done(&j)) die(EXIT_USAGE, "%s", j.err.msg);
  json_close(&j);
  free(text);
}

// cuDNN last, whatever came first.
static void move_cudnn_last(Table *t) {
  static Entry moved[OPS][MAX_LAYERS];
  for (int i = 0; i + 1 < t->rungs; i++) {
    if (strcmp(t->rung[i], "cudnn")) continue;
    char name[NAME];
    memcpy(name, t->rung[i], NAME), memcpy(t->rung[i], t->rung[i + 1], NAME), memcpy(t->rung[i + 1], name, NAME);
    memcpy(moved, t->entry[i], sizeof moved);
    memcpy(t->entry[i], t->entry[i + 1], sizeof moved);
    memcpy(t->entry[i + 1], moved, sizeof moved);
  }
}

// ---- tables ---------------------------------------------------------------------------------------------------------

static int find(const Table *t, const char *rung) {
  for (int i = 0; i < t->rungs; i++)
    if (!strcmp(t->rung[i], rung)) return i;
  return -1;
}
static int find_layer(const Table *t, const char *layer) {
  for (int i = 0; i < t->layers; i++)
    if (!strcmp(t->layer[i], layer)) return i;
  return -1;
}

// Milliseconds of a rung's layers, each as often as it occurs; of those alone that `also` has measured too.
static double total_ms(const Table *t, int op, int rung, int also) {
  double us = 0;
  for (int i = 0; i < t->layers; i++)
    if (also < 0 || t->entry[also][op][i].us > 0) us += t->entry[rung][op][i].count * t->entry[rung][op][i].us;
  return us / 1e3;
}

// The layer where a rung is slowest against cuDNN; -1 when nothing is known.
static int worst_layer(const Table *t, int op, int rung) {
  int worst = -1;
  for (int i = 0; i < t->layers; i++) {
    const Entry *e = &t->entry[rung][op][i];
    if (e->us > 0 && !isnan(e->ratio) && (worst < 0 || e->ratio < t->entry[rung][op][worst].ratio)) worst = i;
  }
  return worst;
}

static void print_totals(FILE *f, const Table *t, const char *dtype) {
  int cudnn = find(t, "cudnn");
  fprintf(f,
          "\nAll convolutions of a step in %s:\n\n| op | rung | layers | ms | cuDNN's ms | of its speed | slowest |\n",
          dtype);
  fprintf(f, "|---|---|---|---|---|---|---|\n");
  for (int op = 0; op < OPS; op++)
    for (int r = 0; r < t->rungs; r++) {
      int layers = 0, worst = worst_layer(t, op, r);
      for (int i = 0; i < t->layers; i++) layers += t->entry[r][op][i].us > 0;
      if (r == cudnn || !layers) continue;
      fprintf(f, "| %s | %s | %d | %.2f | ", op_names[op], t->rung[r], layers, total_ms(t, op, r, -1));
      if (cudnn < 0) {
        fprintf(f, "– | – | – |\n");
        continue;
      }
      double theirs = total_ms(t, op, cudnn, r);
      fprintf(f, "%.2f | %.2f | ", theirs, theirs / total_ms(t, op, r, cudnn));
      if (worst < 0)
        fprintf(f, "– |\n");
      else
        fprintf(f, "%s, %.2f |\n", t->layer[worst], t->entry[r][op][worst].ratio);
    }
}

static void print_layers(FILE *f, const Table *t, const char *dtype) {
  fprintf(f, "\nTFLOP/s in %s, forward / dgrad / wgrad:\n\n| layer |", dtype);
  for (int r = 0; r < t->rungs; r++) fprintf(f, " %s |", t->rung[r]);
  fprintf(f, "\n|---|");
  for (int r = 0; r < t->rungs; r++) fprintf(f, "---|");
  for (int i = 0; i < COUNT(shown); i++) {
    int layer = find_layer(t, shown[i]);
    if (layer < 0) continue;
    fprintf(f, "\n| %s |", shown[i]);
    for (int r = 0; r < t->rungs; r++)
      for (int op = 0; op < OPS; op++) {
        const Entry *e = &t->entry[r][op][layer];
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

static void print_section(FILE *f, const Table tables[], char **files, int num_files, const char *readme,
                          const char *chart) {
  fprintf(f, "%s", begin_mark);
  for (int i = 0; i < num_files; i++) fprintf(f, "%s%s", i ? ", " : "", files[i]);
  fprintf(f, " by ladder_report -->\n");
  for (int d = 0; d < COUNT(dtype_names); d++)
    if (tables[d].rungs) print_totals(f, &tables[d], dtype_names[d]);
  if (tables[0].rungs) print_layers(f, &tables[0], dtype_names[0]);
  if (chart) print_link(f, readme, chart);
  for (int d = 0; d < COUNT(dtype_names); d++)
    if (tables[d].rungs)
      fprintf(f, "%s%s: %s, commit %s.", d ? " " : "\n", dtype_names[d], tables[d].gpu, tables[d].commit);
  fprintf(f, "\n\n%s\n", end_mark);
}

// Replaces what is between the marks, or after the first where the last is missing.
static void rewrite(const char *path, const Table tables[], char **files, int num_files, const char *chart) {
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  if (!text) die(EXIT_USAGE, "%s", err.msg);
  char *begin = strstr(text, begin_mark), *end = begin ? strstr(begin, end_mark) : NULL;
  if (!begin) die(EXIT_USAGE, "%s: no line begins with \"%s\"", path, begin_mark);
  AtomicFile out;
  if (!file_begin(&out, path, &err)) die(EXIT_RUN, "%s", err.msg);
  fwrite(text, 1, (size_t)(begin - text), out.f);
  print_section(out.f, tables, files, num_files, path, chart);
  if (end) fputs(end + strlen(end_mark) + (end[strlen(end_mark)] == '\n'), out.f);
  if (!file_commit(&out, &err)) die(EXIT_RUN, "%s", err.msg);
  free(text);
}

// ---- the chart --------------------------------------------------------------------------------------------------------

static void draw(const char *path, const Table *t, const char *dtype) {
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
  snprintf(title, sizeof title, "Convolutions in %s on %.*s", dtype, (int)strcspn(t->gpu, ","), t->gpu);
  Err err;
  if (!plot_svg(path, title, panels, OPS, &err)) die(EXIT_RUN, "%s", err.msg);
}

int main(int argc, char **argv) {
  static Table tables[COUNT(dtype_names)];
  const char *readme = NULL, *chart = NULL;
  Option options[] = {
      {.name = "readme", .kind = OPT_STRING, .target = &readme, .arg = "FILE", .help = "rewrite the tables in this"},
      {.name = "chart", .kind = OPT_STRING, .target = &chart, .arg = "FILE", .help = "draw bf16 into this SVG file"},
  };
  Cli cli = {.usage = "[--readme cuda/conv/README.md] [--chart FILE] RECORDS.jsonl …",
             .about = "Turns what bench conv measured into the tables of the ladder and a chart.",
             .options = options,
             .num_options = COUNT(options),
             .positional = "RECORDS"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!cli.num_args || (!readme && !chart)) die(EXIT_USAGE, "needs records, and --readme or --chart");
  for (int i = 0; i < cli.num_args; i++) read_file(tables, cli.args[i]);
  for (int d = 0; d < COUNT(dtype_names); d++) move_cudnn_last(&tables[d]);
  if (readme) rewrite(readme, tables, cli.args, cli.num_args, chart);
  if (chart) draw(chart, &tables[0], dtype_names[0]);
  return 0;
}
