// report: several runs on one page, or one picture of their losses, curve over curve.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/file.h"
#include "base/file_set.h"
#include "base/log_read.h"
#include "base/output.h"
#include "base/run_folder.h"
#include "page/page_read.h"
#include "page/plot.h"
#include "page/run_page.h"

enum { MAX_RUNS = 8 };
_Static_assert((int)MAX_RUNS <= (int)PLOT_COLOURS, "every run has a colour of its own");

// clang-format off
#define REPORT_OPTIONS(X)                                                                                              \
  X(STRING, out, NULL, "FILE", "file to write", .usual = "report.html in the folder, for a single run")                \
  X(STRING, title, "Loss", "TEXT", "title of a picture of logs")
// clang-format on

typedef struct ReportOptions {
  OPTION_FIELDS(REPORT_OPTIONS)
} ReportOptions;

// ---- a picture of logs ----------------------------------------------------------------------------------------------

static void draw_logs(const ReportOptions *o, char **args, int n) {
  enum { TOTAL, MASK, SECONDS, KEYS };
  static const char *const keys[KEYS] = {"loss", "loss_mask", "seconds"};
  PlotSeries series[KEYS][MAX_RUNS];
  int timed = 0;
  Curve curves[MAX_RUNS][KEYS] = {0};
  FileSet inputs = {0};
  Err err;
  for (int i = 0; i < n; i++) {
    char *path = strchr(args[i], '=');
    if (!path) die(EXIT_USAGE, "%s: expected NAME=log.jsonl", args[i]);
    *path++ = '\0';
    file_set_add(&inputs, path);
    if (!curves_read(path, keys, KEYS, curves[i], &err)) die(EXIT_USAGE, "%s", err.msg);
    const Curve *loss = &curves[i][TOTAL], *mask = &curves[i][MASK], *seconds = &curves[i][SECONDS];
    series[TOTAL][i] = (PlotSeries){args[i], loss->x, loss->y, loss->n, true};
    series[MASK][i] = (PlotSeries){args[i], mask->x, mask->y, mask->n, true};
    bool has_time = seconds->n == loss->n; // a log may lack it
    series[SECONDS][i] = (PlotSeries){args[i], seconds->y, loss->y, has_time ? loss->n : 0, true};
    timed += has_time;
  }
  PlotPanel panels[] = {{"Total loss", "step", "loss", true, series[TOTAL], n, NULL},
                        {"Mask loss", "step", "loss", true, series[MASK], n, NULL},
                        {"Total loss", "seconds of training", "loss", true, series[SECONDS], n, NULL}};
  if (!file_set_spares(&inputs, o->out, &err)) die(EXIT_USAGE, "--out %s", err.msg);
  if (!plot_svg(o->out, o->title, panels, COUNT(panels) - !timed, &err)) die(EXIT_RUN, "%s", err.msg);
  for (int i = 0; i < n; i++) curves_free(curves[i], KEYS);
  file_set_free(&inputs);
}

// ---- a page of runs -------------------------------------------------------------------------------------------------

// A page has a page's name, so that no checkpoint of the run gives way to one; and what is written must be none of what
// the page is made of.
static void spare_inputs(const char *out, const char *const *folder, int n) {
  static const char *const input[] = {RUN_LOG, RUN_RECORD, RUN_EVALUATION, OLD_SESSION, OLD_EVALUATION};
  FileSet inputs = {0};
  Err err;
  const char *dot = strrchr(out, '.');
  if (!dot || (strcmp(dot, ".html") && strcmp(dot, ".htm")))
    die(EXIT_USAGE, "--out %s: a page of runs is a FILE.html; a picture, FILE.svg, is drawn of logs, NAME=log.jsonl",
        out);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < COUNT(input); k++) {
      char *path = xasprintf("%s/%s", folder[i], input[k]);
      if (path_is_file(path)) file_set_add(&inputs, path);
      free(path);
    }
  if (!file_set_spares(&inputs, out, &err)) die(EXIT_USAGE, "--out %s", err.msg);
  file_set_free(&inputs);
}

// NAME=FOLDER or FOLDER, which is cut in two; NULL: it has no name of its own. A folder's own name may hold a "=".
static const char *name_of(char *arg, const char **folder) {
  char *equals = strchr(arg, '=');
  *folder = arg;
  if (!equals || path_is_dir(arg)) return NULL;
  *equals = '\0';
  *folder = equals + 1;
  return arg;
}

static void write_page(const ReportOptions *o, char **args, int n) {
  RunPage page[MAX_RUNS] = {0};
  const char *folder[MAX_RUNS];
  Err err;
  for (int i = 0; i < n; i++) {
    const char *name = name_of(args[i], &folder[i]);
    if (!page_read(&page[i], folder[i], name ? name : n > 1 ? folder[i] : NULL, &err)) die(EXIT_USAGE, "%s", err.msg);
  }
  if (n > 1 && !o->out) die(EXIT_USAGE, "--out FILE is missing: where the page of %d runs goes", n);
  char *out = o->out ? xstrdup(o->out) : xasprintf("%s/" PAGE_FILE, folder[0]);
  spare_inputs(out, folder, n);
  if (!run_page_write(out, page, n, &err)) die(EXIT_RUN, "%s", err.msg);
  for (int i = 0; i < n; i++) run_page_free(&page[i]);
  free(out);
}

// ---- which of them --------------------------------------------------------------------------------------------------

static bool is_log(const char *arg) {
  const char *path = strchr(arg, '=');
  return path && !path_is_dir(arg) && !path_is_dir(path + 1) && (path_is_file(path + 1) || strstr(path, ".jsonl"));
}

int main(int argc, char **argv) {
  ReportOptions o = {OPTION_DEFAULTS(REPORT_OPTIONS)};
  OPTION_TABLE(table, ReportOptions, REPORT_OPTIONS);
  Cli cli = {.usage = "RUN… [--out FILE]   or   --out FILE.svg NAME=log.jsonl …",
             .about =
                 "Writes an HTML page of one or several runs, given by their folders, RUN or NAME=RUN. Of logs, it "
                 "draws the total loss and the mask loss into one picture, by step and by time.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "RUN"};
  int logs = 0;
  cli_parse_or_exit(&cli, argc, argv);
  if (!cli.num_args || cli.num_args > MAX_RUNS)
    die(EXIT_USAGE, "needs one to %d folders of runs, or --out FILE and as many of NAME=log.jsonl", MAX_RUNS);
  for (int i = 0; i < cli.num_args; i++) logs += is_log(cli.args[i]);
  if (logs && logs < cli.num_args) die(EXIT_USAGE, "give folders of runs, or logs: not both");
  if (logs && !o.out) die(EXIT_USAGE, "--out FILE is missing: where the picture goes");
  (logs ? draw_logs : write_page)(&o, cli.args, cli.num_args);
  stdout_close();
  return 0;
}
