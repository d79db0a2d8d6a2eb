// report: writes an HTML page of one run, or of several side by side.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/file.h"
#include "base/file_set.h"
#include "base/output.h"
#include "base/own_files.h"
#include "base/run_folder.h"
#include "page/page_draw.h"
#include "page/tensorboard.h"

enum { MAX_RUNS = 8 }; // one colour each: page/report.css

// clang-format off
#define REPORT_OPTIONS(X)                                                                                              \
  X(STRING, out, NULL, "FILE.html", "file to write", .usual = "report.html in the folder, for a single run")           \
  X(FLAG, force, false, "overwrite a file that this program did not write")                                            \
  X(FLAG, single_file, false, "embed the pictures in the page, so that it can be sent as one file")                    \
  X(STRING, tensorboard, NULL, "DIR", "write TensorBoard's event files to DIR/RUN instead of a page")
// clang-format on

typedef struct ReportOptions {
  OPTION_FIELDS(REPORT_OPTIONS)
} ReportOptions;

// The output must not overwrite any input.
static void spare_inputs(const char *out, const PageRun *run, int n) {
  static const char *const input[] = {RUN_LOG, RUN_RECORD, RUN_EVALUATION};
  FileSet inputs = {0};
  Err err;
  if (!document_name_fits(out, &err)) die(EXIT_USAGE, "--out %s", err.msg);
  for (int i = 0; i < n; i++) {
    if (run[i].log) file_set_add(&inputs, run[i].log);
    for (int k = 0; run[i].folder && k < COUNT(input); k++) {
      char *path = xasprintf("%s/%s", run[i].folder, input[k]);
      if (path_is_file(path)) file_set_add(&inputs, path);
      free(path);
    }
  }
  if (!file_set_spares(&inputs, out, &err)) die(EXIT_USAGE, "--out %s", err.msg);
  file_set_free(&inputs);
}

// NAME=PATH or PATH, a run's folder or its log; the argument is split in place. A path itself may contain "=".
static PageRun run_of(char *arg) {
  PageRun run = {0};
  char *equals = strchr(arg, '='), *path = arg;
  if (equals && !path_is_dir(arg) && !path_is_file(arg)) {
    *equals = '\0';
    run.name = arg;
    path = equals + 1;
  }
  if (path_is_dir(path)) {
    run.folder = path;
    if (run_is_older(path)) die(EXIT_USAGE, "%s: a run of version 1.1 or older; version 1.2 draws its page", path);
    if (!run_has_facts(path))
      fprintf(stderr, "report: %s: no " RUN_LOG ", " RUN_RECORD " or " RUN_EVALUATION "; is it the folder of a run?\n",
              path);
  } else if (path_is_file(path)) {
    run.log = path;
  } else {
    die(EXIT_USAGE, "%s: no such folder: give the folder of a run of train (its --out), or its " RUN_LOG, path);
  }
  return run;
}

// Names runs that have no name by their paths, without the folders that all paths share.
static void name_runs(PageRun *run, int n) {
  const char *first = NULL;
  size_t common = 0;
  for (int i = 0; i < n; i++) {
    if (run[i].name) continue;
    const char *path = run[i].folder ? run[i].folder : run[i].log;
    size_t end = 0;
    if (!first) first = path;
    for (size_t k = 0; path[k] && path[k] == first[k]; k++)
      if (path[k] == '/' && path[k + 1] && path[k + 1] != '/') end = k + 1;
    common = path == first ? end : MIN(common, end);
  }
  for (int i = 0; i < n; i++)
    if (!run[i].name) run[i].name = (run[i].folder ? run[i].folder : run[i].log) + common;
}

static int write_events(const ReportOptions *o, PageRun *run, int n) {
  Err err;
  if (o->out || o->single_file || o->force)
    die(EXIT_USAGE, "--tensorboard writes no page; leave out the options for pages");
  name_runs(run, n);
  if (!tensorboard_write(o->tensorboard, run, n, &err)) die(EXIT_USAGE, "%s", err.msg);
  line_print(stderr, "report: %s; view with: tensorboard --logdir %s", o->tensorboard, o->tensorboard);
  stdout_close();
  return 0;
}

int main(int argc, char **argv) {
  ReportOptions o = {OPTION_DEFAULTS(REPORT_OPTIONS)};
  OPTION_TABLE(table, ReportOptions, REPORT_OPTIONS);
  Cli cli = {.usage = "RUN… [--out FILE.html]",
             .about =
                 "Writes an HTML page of one run, or of several side by side. A RUN is the folder that train wrote "
                 "(its --out), or a log.jsonl; NAME=RUN gives it another name on the page.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "RUN"};
  PageRun run[MAX_RUNS];
  Err err;
  cli_parse_or_exit(&cli, argc, argv);
  const int n = cli.num_args;
  if (!n || n > MAX_RUNS) die(EXIT_USAGE, "give 1 to %d runs; --help shows the usage", MAX_RUNS);
  for (int i = 0; i < n; i++) run[i] = run_of(cli.args[i]);
  if (o.tensorboard) return write_events(&o, run, n);
  if (n > 1) name_runs(run, n);
  if (!o.out && (n > 1 || !run[0].folder))
    die(EXIT_USAGE, "--out FILE.html is missing; it is optional only for the folder of a single run");
  char *out = o.out ? xstrdup(o.out) : xasprintf("%s/" PAGE_FILE, run[0].folder);
  spare_inputs(out, run, n);
  const OwnName page = {PAGE_FILE, OWN_PAGE};
  if (o.out ? !output_is_own(out, OWN_PAGE, o.force, &err) : !folder_is_own(run[0].folder, &page, 1, o.force, &err))
    die(EXIT_USAGE, "%s", err.msg);
  if (!page_of_runs(out, run, n, o.single_file, &err)) die(EXIT_RUN, "%s", err.msg);
  fprintf(stderr, "report: %s\n", out);
  free(out);
  stdout_close();
  return 0;
}
