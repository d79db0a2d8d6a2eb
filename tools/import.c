// import: turns the annotations of a tool into COCO. The formats are in data/import/formats.c.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/cli.h"
#include "base/command.h"
#include "base/output.h"
#include "base/text.h"
#include "data/import/formats.h"

// clang-format off
#define IMPORT_OPTIONS(X)                                                                                              \
  X(STRING, to, NULL, "DIR", "folder to write, created if missing; it must be empty")                                  \
  X(STRING, format, NULL, "NAME", "format of the annotations (default: found; a wrong name lists all)")                \
  X(STRING, images, NULL, "DIR", "folder of the images, if they are elsewhere")                                        \
  X(STRING, class, NULL, "NAME", "class of objects that have none")                                                    \
  X(STRING, attribute, NULL, "NAME", "VIA: the attribute that holds the class (default: found)")                       \
  X(CHOICE, values, IMPORT_FOUND, import_values, "what a value of label images stands for")                          \
  X(FLAG, strict, false, "stop at the first file that cannot be used, instead of leaving it out")
// clang-format on

typedef struct ImportToolOptions {
  OPTION_FIELDS(IMPORT_OPTIONS)
} ImportToolOptions;

static NORETURN void refuse_format(const char *why) {
  char *names;
  size_t size;
  FILE *f = text_open(&names, &size);
  for (int i = 0; import_formats[i]; i++) fprintf(f, "%s%s", i ? ", " : "", import_formats[i]->name);
  text_close(f);
  die(EXIT_USAGE, "%s: expected one of %s", why, names);
}

// The first format that is found, or the one that was asked for; says what else there is.
static const ImportFormat *choose(Tree *t, const char *dir, const char *asked) {
  const ImportFormat *taken = asked ? import_format(asked) : NULL;
  if (asked && !taken) refuse_format(xasprintf("--format %s", asked));
  for (int i = 0; !asked && import_formats[i]; i++) {
    const ImportFormat *f = import_formats[i];
    const int n = f->detect(t);
    if (n == 0) continue;
    if (!taken)
      taken = f;
    else
      line_print(stdout, "note: %d of %s, too: not read; --format %s takes them instead", n, f->about, f->name);
  }
  const int coco = json_kinds(t, JSON_COCO);
  if (taken && coco > 0) line_print(stdout, "note: %d of COCO, too: not read; train reads them as they are", coco);
  if (!taken && coco > 0)
    die(EXIT_USAGE, "%s: its annotations are COCO's already, which train reads; try %s --data %s", dir,
        command_name("doctor"), dir);
  for (int i = 0; !taken && i < t->n; i++)
    if (json_kind(t, i) == JSON_BROKEN)
      die(EXIT_USAGE, "%s: no annotations of a known format are in this folder, and %s is no JSON", dir,
          t->file[i].path);
  if (!taken) refuse_format(xasprintf("%s: no annotations of a known format are in this folder", dir));
  return taken;
}

static void print_split(const ImportSet *s, const char *split) {
  int images = 0, empty = 0, objects = 0, polygons = 0, masks = 0;
  for (int i = 0; i < s->n; i++) {
    const ImportImage *im = &s->images[i];
    if (im->split != split) continue;
    images++;
    empty += im->n == 0;
    objects += im->n;
    for (int k = 0; k < im->n; k++) {
      masks += im->objects[k].mask.runs != NULL;
      polygons += im->objects[k].parts > 0;
    }
  }
  if (images > 0)
    line_print(stdout, "%s: %d images, %d without objects; %d objects: %d polygons, %d pixel masks, %d boxes alone",
               split, images, empty, objects, polygons, masks, objects - polygons - masks);
}

static void print_report(const ImportSet *s) {
  for (int k = 0; k < s->splits.n; k++) print_split(s, s->splits.text[k]);
  int64_t *n = xcalloc((size_t)s->categories.n + 1, sizeof *n);
  for (int i = 0; i < s->n; i++)
    for (int k = 0; s->images[i].split && k < s->images[i].n; k++) n[s->images[i].objects[k].category]++;
  for (int k = 0; k < s->categories.n; k++)
    line_print(stdout, "category %d: %s, %lld objects", k + 1, s->categories.text[k], (long long)n[k]);
  free(n);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < s->num_counts; i++) {
      const ImportCount *c = &s->counts[i];
      if (c->dropped != (pass == 0)) continue;
      char *times = c->first   ? xasprintf(": %lld, first in %s", (long long)c->n, c->first)
                    : c->n > 1 ? xasprintf(": %lld", (long long)c->n)
                               : xstrdup("");
      line_print(stdout, "%s: %s%s", c->dropped ? "dropped" : "note", c->what, times);
      free(times);
    }
}

int main(int argc, char **argv) {
  ImportToolOptions o = {OPTION_DEFAULTS(IMPORT_OPTIONS)};
  OPTION_TABLE(table, ImportToolOptions, IMPORT_OPTIONS);
  Cli cli = {.usage = "DIR --to OUT [options]",
             .about =
                 "Turns the annotations of a tool (labelme, CVAT, YOLO, …) into COCO, and never alters DIR. DIR may "
                 "be one annotation file.",
             .options = table,
             .num_options = COUNT(table),
             .values = &o,
             .positional = "DIR"};
  cli_parse_or_exit(&cli, argc, argv);
  if (cli.num_args != 1) die(EXIT_USAGE, "expected one folder, found %d; --help shows the usage", cli.num_args);
  if (!o.to) die(EXIT_USAGE, "--to OUT is missing; --help shows the usage");
  Err err;
  Tree tree;
  const char *dir = cli.args[0];
  if (!import_may_write(o.to, &err) || !tree_open(&tree, dir, o.images, &err)) die(EXIT_USAGE, "%s", err.msg);
  ImportSet set = {.options = {o.class, o.attribute, o.values, o.strict}, .tree = &tree};
  const ImportFormat *format = choose(&tree, dir, o.format);
  format->read(&set);
  line_print(stdout, "format: %s, %s", format->name, format->about);
  if (set.refused) die(EXIT_USAGE, "%s", set.refused);
  import_settle(&set);
  if (set.n == 0) print_report(&set);
  if (set.n == 0) die(EXIT_USAGE, "%s: no image with annotations could be read; nothing was written", dir);
  if (!import_write(&set, o.to, &err)) die(err_exit(&err), "%s", err.msg);
  if (set.refused) die(EXIT_USAGE, "%s", set.refused);
  print_report(&set);
  line_print(stdout, "written: %s; next: %s --data %s", o.to, command_name("doctor"), o.to);
  import_free(&set);
  tree_free(&tree);
  stdout_close();
  return 0;
}
