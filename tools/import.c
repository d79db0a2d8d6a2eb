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
  X(STRING, format, NULL, "NAME", "cvat, label-studio, via, labelme, supervisely, yolo, voc, dsb2018 or label-images", \
    .usual = "auto-detected")                                                                                          \
  X(STRING, images, NULL, "DIR", "folder of the images, if they are elsewhere")                                        \
  X(STRING, class, NULL, "NAME", "category name for annotations without one")                                          \
  X(STRING, attribute, NULL, "NAME", "VIA: the region attribute that holds the class", .usual = "auto-detected")       \
  X(CHOICE, values, IMPORT_AUTO, import_values, "label images: what a pixel value is")                                 \
  X(FLAG, strict, false, "stop at the first malformed file or annotation, instead of leaving it out")
// clang-format on

typedef struct ImportToolOptions {
  OPTION_FIELDS(IMPORT_OPTIONS)
} ImportToolOptions;

// What ends the noun behind a number.
static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static NORETURN void refuse_format(const char *why) {
  char *names;
  size_t size;
  FILE *f = text_open(&names, &size);
  for (int i = 0; import_formats[i]; i++) fprintf(f, "%s%s", i ? ", " : "", import_formats[i]->name);
  text_close(f);
  die(EXIT_USAGE, "%s: expected one of %s", why, names);
}

// Why no format was found.
static NORETURN void refuse_folder(const Tree *t, const char *dir) {
  static const char *const archives[] = {".zip", ".tar", ".tgz", ".gz", ".7z", ".rar"};
  for (int i = 0; t->only && i < COUNT(archives); i++)
    if (path_ends(dir, archives[i])) die(EXIT_USAGE, "%s is an archive: unpack it and give the folder", dir);
  if (t->only) refuse_format(xasprintf("%s: not an annotation file of a known format", dir));
  for (int i = 0; i < t->n; i++) {
    const char *path = t->file[i].path;
    const char *folder = strstr(path, "Annotations/");
    if (path_ends(path, ".xml") && folder && (folder == path || folder[-1] == '/'))
      die(EXIT_USAGE, "%s: Pascal VOC boxes (%s) are not supported, only its instance masks (SegmentationObject/)", dir,
          path);
  }
  refuse_format(xasprintf("%s: no annotations of a known format are in this folder", dir));
}

// Whether the folder to write would be below `dir`, which is never altered.
static bool is_inside(const char *to, const char *dir) {
  char *path = *to == '/' ? xstrdup(to) : xasprintf("./%s", to), *root = realpath(dir, NULL), *real = NULL;
  while (!real && *path && !(real = realpath(path, NULL))) { // the nearest folder that is there
    char *folder = path_folder(path);
    free(path);
    path = folder;
  }
  const size_t n = root ? strlen(root) : 0;
  const bool is = root && real && !strncmp(real, root, n) && (!real[n] || real[n] == '/' || n == 1);
  free(path);
  free(root);
  free(real);
  return is;
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
      line_print(stdout, "note: also found %d %s%s, not read; --format %s reads %s instead", n, f->about, plural(n),
                 f->name, n == 1 ? "that" : "those");
  }
  const int coco = json_kinds(t, JSON_COCO);
  const bool masks = taken == &import_voc || taken == &import_dsb2018 || taken == &import_label_images;
  if (masks && !asked && coco > 0) // which have the names of classes
    die(EXIT_USAGE,
        "%s already has COCO annotations (%d file%s): use %s --data %s; to convert the mask images instead, "
        "give --format %s",
        dir, coco, plural(coco), command_name("doctor"), dir, taken->name);
  if (taken && coco > 0)
    line_print(stdout, "note: also found %d COCO JSON file%s, not read; train reads COCO as it is", coco, plural(coco));
  if (!taken && coco > 0 && t->only)
    die(EXIT_USAGE, "%s is COCO already, which train reads; try %s --train-json %s --train-images DIR", dir,
        command_name("doctor"), dir);
  if (!taken && coco > 0)
    die(EXIT_USAGE, "%s: its annotations are COCO already, which train reads; try %s --data %s", dir,
        command_name("doctor"), dir);
  for (int i = 0; !taken && i < t->n; i++)
    if (json_kind(t, i) == JSON_BROKEN)
      die(EXIT_USAGE, "%s: no annotations of a known format are in this folder, and %s is no JSON", dir,
          t->file[i].path);
  if (!taken) refuse_folder(t, dir);
  return taken;
}

// Returns how many boxes without masks it has.
static int print_split(const ImportSet *s, const char *split) {
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
  const int boxes = objects - polygons - masks;
  if (images > 0)
    line_print(stdout, "%s: %d image%s, %d without objects; %d object%s (%d polygon, %d RLE, %d box only)", split,
               images, plural(images), empty, objects, plural(objects), polygons, masks, boxes);
  return boxes;
}

static void print_report(const ImportSet *s) {
  int boxes = 0;
  for (int k = 0; k < s->splits.n; k++) boxes += print_split(s, s->splits.text[k]);
  int64_t *n = xcalloc((size_t)s->categories.n + 1, sizeof *n);
  for (int i = 0; i < s->n; i++)
    for (int k = 0; s->images[i].split && k < s->images[i].n; k++) n[s->images[i].objects[k].category]++;
  for (int k = 0; k < s->categories.n; k++)
    line_print(stdout, "category %d: %s, %lld object%s", k + 1, s->categories.text[k], (long long)n[k], plural(n[k]));
  free(n);
  import_print_counts(s);
  if (boxes > 0) line_print(stdout, "note: box-only objects are trained without a mask loss");
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
  if (!tree.only && is_inside(o.to, dir))
    die(EXIT_USAGE, "--to %s is inside %s; choose a folder outside it", o.to, dir);
  ImportSet set = {.options = {o.class, o.attribute, o.values, o.strict}, .tree = &tree};
  const ImportFormat *format = choose(&tree, dir, o.format);
  format->read(&set);
  line_print(stdout, "format: %s (%ss)", format->name, format->about);
  if (set.refused) die(EXIT_USAGE, "%s", set.refused);
  import_settle(&set);
  int objects = 0;
  for (int i = 0; i < set.n; i++) objects += set.images[i].n;
  if (objects == 0) print_report(&set);
  if (set.n == 0 && set.num_counts == 0) die(EXIT_USAGE, "%s: no %ss found", dir, format->about);
  if (set.n == 0) die(EXIT_USAGE, "%s: no image with annotations could be read; nothing was written", dir);
  if (objects == 0)
    die(EXIT_USAGE, "%s: no object could be read from %d image%s; nothing was written", dir, set.n, plural(set.n));
  if (!import_write(&set, o.to, &err)) die(err_exit(&err), "%s", err.msg);
  if (set.refused) die(EXIT_USAGE, "%s", set.refused);
  print_report(&set);
  line_print(stdout, "written: %s; next: %s --data %s", o.to, command_name("doctor"), o.to);
  import_free(&set);
  tree_free(&tree);
  stdout_close();
  return 0;
}
