// report: one picture of several runs, curve over curve.
#include <stdlib.h>
#include <string.h>
#include "data/plot.h"
#include "engine/curves.h"
#include "nn/cli.h"

enum { MAX_RUNS = 8 };

int main(int argc, char **argv) {
  const char *out = NULL, *title = "Loss";
  Option table[] = {
      {.name = "out", .kind = OPT_STRING, .target = &out, .arg = "FILE", .help = "the SVG file to write"},
      {.name = "title", .kind = OPT_STRING, .target = &title, .arg = "TEXT", .help = "what stands above it"},
  };
  Cli cli = {.usage = "--out FILE NAME=log.jsonl …",
             .about = "Draws the total loss and the mask loss of several runs into one picture.",
             .options = table,
             .num_options = COUNT(table),
             .positional = "NAME=LOG"};
  cli_parse_or_exit(&cli, argc, argv);
  if (!out || !cli.num_args || cli.num_args > MAX_RUNS)
    die(EXIT_USAGE, "needs --out FILE and one to %d of NAME=log.jsonl", MAX_RUNS);
  static const char *const keys[] = {"loss", "loss_mask"};
  PlotSeries series[COUNT(keys)][MAX_RUNS];
  Curve curves[MAX_RUNS][COUNT(keys)] = {0};
  Err err;
  for (int i = 0; i < cli.num_args; i++) {
    char *path = strchr(cli.args[i], '=');
    if (!path) die(EXIT_USAGE, "%s: expected NAME=log.jsonl", cli.args[i]);
    *path++ = '\0';
    if (!curves_read(path, keys, COUNT(keys), curves[i], &err)) die(EXIT_USAGE, "%s", err.msg);
    for (int k = 0; k < COUNT(keys); k++)
      series[k][i] = (PlotSeries){cli.args[i], curves[i][k].x, curves[i][k].y, curves[i][k].n, true};
  }
  PlotPanel panels[] = {{"Total loss", "step", "loss", true, series[0], cli.num_args, NULL},
                        {"Mask loss", "step", "loss", true, series[1], cli.num_args, NULL}};
  if (!plot_svg(out, title, panels, COUNT(panels), &err)) die(EXIT_RUN, "%s", err.msg);
  for (int i = 0; i < cli.num_args; i++) curves_free(curves[i], COUNT(keys));
  return 0;
}
