// report: one picture of several runs, curve over curve.
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/file_set.h"
#include "base/output.h"
#include "data/reports/plot.h"
#include "engine/curves.h"

enum { MAX_RUNS = 8 };

// clang-format off
#define REPORT_OPTIONS(X)                                                                                              \
  X(STRING, out,   NULL,   "FILE", "the SVG file to write")                                                            \
  X(STRING, title, "Loss", "TEXT", "what stands above it")
// clang-format on

typedef struct ReportOptions {
  OPTION_FIELDS(REPORT_OPTIONS)
} ReportOptions;

int main(int argc, char **argv) {
  ReportOptions o = {OPTION_DEFAULTS(REPORT_OPTIONS)};
  OPTION_TABLE(table, ReportOptions, REPORT_OPTIONS);
  Cli cli = {.usage = "--out FILE NAME=log.jsonl …",
             .about = "Draws the total loss and the mask loss of several runs into one picture, by step and by time.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "NAME=LOG"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!o.out || !cli.num_args || cli.num_args > MAX_RUNS)
    die(EXIT_USAGE, "needs --out FILE and one to %d of NAME=log.jsonl", MAX_RUNS);
  enum { TOTAL, MASK, SECONDS, KEYS };
  static const char *const keys[KEYS] = {"loss", "loss_mask", "seconds"};
  PlotSeries series[KEYS][MAX_RUNS];
  int timed = 0;
  Curve curves[MAX_RUNS][KEYS] = {0};
  FileSet inputs = {0};
  Err err;
  for (int i = 0; i < cli.num_args; i++) {
    char *path = strchr(cli.args[i], '=');
    if (!path) die(EXIT_USAGE, "%s: expected NAME=log.jsonl", cli.args[i]);
    *path++ = '\0';
    file_set_add(&inputs, path);
    if (!curves_read(path, keys, KEYS, curves[i], &err)) die(EXIT_USAGE, "%s", err.msg);
    const Curve *loss = &curves[i][TOTAL], *mask = &curves[i][MASK], *seconds = &curves[i][SECONDS];
    series[TOTAL][i] = (PlotSeries){cli.args[i], loss->x, loss->y, loss->n, true};
    series[MASK][i] = (PlotSeries){cli.args[i], mask->x, mask->y, mask->n, true};
    bool has_time = seconds->n == loss->n; // a log may lack it
    series[SECONDS][i] = (PlotSeries){cli.args[i], seconds->y, loss->y, has_time ? loss->n : 0, true};
    timed += has_time;
  }
  PlotPanel panels[] = {{"Total loss", "step", "loss", true, series[TOTAL], cli.num_args, NULL},
                        {"Mask loss", "step", "loss", true, series[MASK], cli.num_args, NULL},
                        {"Total loss", "seconds of training", "loss", true, series[SECONDS], cli.num_args, NULL}};
  if (!file_set_spares(&inputs, o.out, &err)) die(EXIT_USAGE, "--out %s", err.msg);
  if (!plot_svg(o.out, o.title, panels, COUNT(panels) - !timed, &err)) die(EXIT_RUN, "%s", err.msg);
  for (int i = 0; i < cli.num_args; i++) curves_free(curves[i], KEYS);
  file_set_free(&inputs);
  stdout_close();
  return 0;
}
