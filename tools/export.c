// export: turns detections into annotation files of labelme or YOLO, so that a person can correct them and train again.
#include "data/import/export.h"
#include "base/alloc.h"
#include "base/cli.h"
#include "base/command.h"
#include "base/output.h"

// clang-format off
#define EXPORT_OPTIONS(X)                                                                                              \
  X(STRING, to, NULL, "DIR", "folder to write, created if missing; it must be empty")                                  \
  X(FLAG, labelme, false, "write labelme's JSON files, beside the images")                                             \
  X(FLAG, yolo, false, "write YOLO's label files and data.yaml")                                                       \
  X(STRING, images, NULL, "DIR", "folder of the images, which are all exported",                                       \
    .usual = "those with detections, under the names that infer was given")                                           \
  X(FLOAT, score, 0.5f, 0, 1, "SCORE", "only detections with at least this score")
// clang-format on

typedef struct ExportOptions {
  OPTION_FIELDS(EXPORT_OPTIONS)
} ExportOptions;

int main(int argc, char **argv) {
  ExportOptions o = {OPTION_DEFAULTS(EXPORT_OPTIONS)};
  OPTION_TABLE(table, ExportOptions, EXPORT_OPTIONS);
  Cli cli = {.usage = "DETECTIONS.json --to DIR --labelme [options]",
             .about =
                 "Turns detections, as infer writes them, into annotations of labelme or YOLO, to be corrected there "
                 "and read by import.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "DETECTIONS"};
  cli_parse_or_exit(&cli, argc, argv);
  if (cli.num_args != 1) die(EXIT_USAGE, "expected one file of detections, found %d", cli.num_args);
  if (!o.to) die(EXIT_USAGE, "--to DIR is missing; --help shows the usage");
  if (o.labelme == o.yolo) die(EXIT_USAGE, "give one of --labelme and --yolo");
  Err err;
  Tree tree = {0};
  if (!import_may_write(o.to, &err)) die(EXIT_USAGE, "%s", err.msg);
  if (o.images && !tree_open(&tree, o.images, NULL, &err)) die(EXIT_USAGE, "%s", err.msg);
  ImportSet set = {.tree = &tree};
  export_read(&set, cli.args[0], float_decimal(o.score));
  if (set.refused) die(EXIT_USAGE, "%s", set.refused);
  import_settle(&set);
  if (set.n == 0)
    die(EXIT_USAGE, "%s: none of its images is found; give --images DIR; nothing was written", cli.args[0]);
  uint64_t lost = 0;
  if (!(o.labelme ? export_labelme : export_yolo)(&set, o.to, &lost, &err)) die(err_exit(&err), "%s", err.msg);
  int objects = 0;
  for (int i = 0; i < set.n; i++) objects += set.images[i].n;
  import_print_counts(&set);
  line_print(stdout, "written: %d images, %d objects in %s; pixels lost: %llu", set.n, objects, o.to,
             (unsigned long long)lost);
  line_print(stdout, "next, once they are corrected: %s %s --to OUT", command_name("import"), o.to);
  import_free(&set);
  tree_free(&tree);
  stdout_close();
  return 0;
}
