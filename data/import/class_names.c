#include "data/import/class_names.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"

int64_t voc_colour(int value) {
  int rgb[3] = {0};
  for (int bit = 7; value; bit--, value >>= 3)
    for (int k = 0; k < 3; k++) rgb[k] |= (value >> k & 1) << bit;
  return (int64_t)rgb[0] << 16 | rgb[1] << 8 | rgb[2];
}

static bool is_background(const char *name) {
  static const char *const names[] = {"background", "_background_", "__background__", "__ignore__",
                                      "bg",         "unlabelled",   "unlabeled"};
  for (int i = 0; i < COUNT(names); i++)
    if (!strcasecmp(name, names[i])) return true;
  return false;
}

static void add(ClassNames *c, const char *name, size_t length, int value, int64_t colour) {
  while (length > 0 && isspace((unsigned char)name[length - 1])) length--;
  while (length > 0 && isspace((unsigned char)*name)) {
    name++;
    length--;
  }
  c->item = xrealloc(c->item, (size_t)(c->n + 1) * sizeof *c->item);
  char *own = xasprintf("%.*s", (int)length, name);
  c->item[c->n++] = (ClassName){own, value, colour, is_background(own)};
}

// Three numbers from 0 to 255 with any of " ,\t;" between them; *after: what follows.
static bool read_colour(const char *p, int64_t *colour, const char **after) {
  *colour = 0;
  for (int k = 0; k < 3; k++) {
    char *end;
    const long v = strtol(p, &end, 10);
    if (end == p || v < 0 || v > 255) return false;
    *colour = *colour << 8 | v;
    p = end + (k < 2 ? strspn(end, " ,\t;") : 0);
  }
  *after = p;
  return true;
}

typedef enum NameFile { NAMES, MAP, COLOUR_NAME, NAME_COLOUR, VALUE_NAME } NameFile;
static const struct {
  const char *name;
  NameFile form;
} class_files[] = {{"labelmap.txt", MAP},           {"label_colors.txt", COLOUR_NAME},
                   {"class_dict.csv", NAME_COLOUR}, {"class_names.txt", NAMES},
                   {"labels.txt", NAMES},           {"classes.txt", NAMES},
                   {"_classes.csv", VALUE_NAME}};

static void read_line(ClassNames *c, NameFile form, const char *line) {
  int64_t colour;
  const char *after, *colon = strchr(line, ':'), *comma = strchr(line, ',');
  if (form == NAMES) {
    add(c, line, strlen(line), c->n, -1);
  } else if (form == MAP && colon && *line != '#') { // without a colour it has that of its place
    const bool has = read_colour(colon + 1, &colour, &after);
    add(c, line, (size_t)(colon - line), has ? -1 : c->n, has ? colour : -1);
  } else if (form == COLOUR_NAME && read_colour(line, &colour, &after)) {
    add(c, after, strlen(after), -1, colour);
  } else if (form == NAME_COLOUR && comma && read_colour(comma + 1, &colour, &after)) {
    add(c, line, (size_t)(comma - line), -1, colour);
  } else if (form == VALUE_NAME && comma) {
    char *end;
    const long value = strtol(line, &end, 10);
    if (end > line && value >= 0 && value < 65536) add(c, comma + 1, strlen(comma + 1), (int)value, -1);
  }
}

ClassNames class_names_read(ImportSet *s) {
  ClassNames c = {.file = -1};
  int k = 0;
  for (; c.file < 0 && k < COUNT(class_files); k++) c.file = tree_named(s->tree, class_files[k].name);
  size_t size;
  char *text = c.file >= 0 ? import_read(s, c.file, &size) : NULL;
  for (char *p = text; p && *p;) {
    const size_t n = strcspn(p, "\r\n");
    const bool more = p[n];
    p[n] = '\0';
    if (p[strspn(p, " \t")]) read_line(&c, class_files[k - 1].form, p);
    p += n + more;
  }
  free(text);
  const bool ignores = c.n > 0 && !strcmp(c.item[0].name, "__ignore__"), background = c.n > 0 && c.item[0].background;
  const int first = k == 0 || class_files[k - 1].form != NAMES || (background && !ignores) ? 0 : ignores ? -1 : 1;
  for (int i = 0; i < c.n; i++)
    if (c.item[i].colour < 0) c.item[i].value += first;
  return c;
}

void class_names_free(ClassNames *c) {
  for (int i = 0; i < c->n; i++) free(c->item[i].name);
  free(c->item);
}

const ClassName *class_of_value(const ClassNames *c, int value) {
  for (int i = 0; i < c->n; i++)
    if (c->item[i].value == value) return &c->item[i];
  return NULL;
}

const ClassName *class_of_colour(const ClassNames *c, int64_t colour) {
  for (int i = 0; i < c->n; i++)
    if (c->item[i].colour == colour) return &c->item[i];
  return NULL;
}

void class_names_declare(ImportSet *s, const ClassNames *c) {
  for (int i = 0; i < c->n; i++)
    if (!c->item[i].background) import_category(s, c->item[i].name);
  s->ordered = c->n > 0;
}
