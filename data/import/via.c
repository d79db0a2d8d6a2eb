// VGG Image Annotator 1 and 2: a project, or the regions of all pictures in one file. There are no sizes.
// https://www.robots.ox.ac.uk/~vgg/software/via/
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "data/import/formats.h"

// ---- the attribute that holds the class -----------------------------------------------------------------------------

typedef struct Attribute {
  char *name;
  int64_t n;     // regions that have a value
  int64_t apart; // of them, those whose value is another than that of an attribute before it
} Attribute;

typedef struct Attributes {
  Attribute *item;
  int n;
  int64_t regions;
  const char *taken; // NULL: there is none
} Attributes;

// A text, a number, or the option of a checkbox that is ticked; malloc'ed, NULL: none.
static char *attribute_value(JsonValue v) {
  char *text = value_word(v);
  if (value_type(v) == JSON_OBJECT)
    for (ValueWalk w = value_walk(v); value_next(&w);)
      if (!text && value_truth(w.value)) text = xstrdup(w.key);
  if (text && text[strspn(text, " \t\r\n")]) return text;
  free(text);
  return NULL;
}

static void count_region(Attributes *a, JsonValue region) {
  char *first = NULL;
  a->regions++;
  for (ValueWalk w = value_walk(value_of(region, "region_attributes")); value_next(&w);) {
    char *value = attribute_value(w.value);
    int i = 0;
    while (value && i < a->n && strcmp(a->item[i].name, w.key)) i++;
    if (value && i == a->n) {
      a->item = xrealloc(a->item, (size_t)(a->n + 1) * sizeof *a->item);
      a->item[a->n++] = (Attribute){.name = xstrdup(w.key)};
    }
    if (value) {
      a->item[i].n++;
      a->item[i].apart += first && strcmp(first, value) != 0;
    }
    if (value && !first)
      first = value;
    else
      free(value);
  }
  free(first);
}

static int usual(const char *name) {
  static const char *const names[] = {"class", "label", "category", "name", "type", "object"};
  for (int i = 0; i < COUNT(names); i++)
    if (!strcasecmp(name, names[i])) return COUNT(names) - i;
  return 0;
}

// The one that most regions have; of several, the one with the most usual name, or the first if all say the same.
static void choose_attribute(ImportSet *s, Attributes *a) {
  const char *asked = s->options.attribute;
  const Attribute *best = NULL, *other = NULL;
  for (int i = 0; i < a->n; i++) {
    const Attribute *k = &a->item[i];
    if (asked ? !strcmp(k->name, asked)
              : !best || k->n > best->n || (k->n == best->n && usual(k->name) > usual(best->name)))
      best = k;
  }
  for (int i = 0; best && i < a->n; i++) {
    const Attribute *k = &a->item[i];
    const bool equal = k->n == best->n && usual(k->name) == usual(best->name), differs = k->apart + best->apart > 0;
    if (k != best && (!other || (equal && differs))) other = k;
  }
  char *names = xstrdup("");
  for (int i = 0; i < a->n; i++) {
    char *more = xasprintf("%s%s%s", names, i ? ", " : "", a->item[i].name);
    free(names);
    names = more;
  }
  if (asked && !best) import_refuse(s, "--attribute %s: no region has it; there are: %s", asked, a->n ? names : "none");
  if (other && !asked && other->n == best->n && usual(other->name) == usual(best->name) &&
      other->apart + best->apart > 0)
    import_refuse(s, "regions have several attributes that say different things (%s); choose with --attribute NAME",
                  names);
  if (best) a->taken = best->name;
  if (best && other)
    import_note(s, NULL, "class names are taken from the region attribute \"%s\"; --attribute NAME uses another of: %s",
                best->name, names);
  if (!best)
    import_note(s, NULL, "regions have no attributes: all are of one class, %s; --class NAME renames it",
                s->options.class_name ? s->options.class_name : "object");
  free(names);
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

// A polyline is an outline if its ends are as near as this part of its length.
static bool is_closed(const double *xy, int n) {
  const double most = 0.1;
  double length = 0;
  for (int i = 1; i < n; i++) length += hypot(xy[2 * i] - xy[2 * i - 2], xy[2 * i + 1] - xy[2 * i - 1]);
  return hypot(xy[2 * n - 2] - xy[0], xy[2 * n - 1] - xy[1]) <= most * length;
}

// all_points_x and all_points_y as pairs, malloc'ed; -1: they are no lists of the same length.
static int read_points(JsonValue shape, double **xy) {
  const JsonValue x = value_of(shape, "all_points_x"), y = value_of(shape, "all_points_y");
  const int n = value_numbers(x, NULL, 0);
  *xy = xcalloc((size_t)MAX(n, 0) + 1, 2 * sizeof **xy);
  if (n < 0 || value_numbers(y, NULL, 0) != n) return -1;
  double *of = xcalloc((size_t)n + 1, sizeof *of);
  for (int axis = 0; axis < 2; axis++) {
    value_numbers(axis ? y : x, of, n);
    for (int i = 0; i < n; i++) (*xy)[2 * i + axis] = of[i];
  }
  free(of);
  return n;
}

// The numbers under these keys, up to an empty one. False: one is missing or not finite.
static bool read_numbers(JsonValue shape, const char *const *keys, double *numbers) {
  bool ok = true;
  for (int i = 0; keys[i]; i++) ok &= isfinite(numbers[i] = value_number(value_of(shape, keys[i]), NAN)) != 0;
  return ok;
}

static void read_shape(ImportSet *s, const TreeFile *f, int image, const char *class, JsonValue shape) {
  static const char *const rect[] = {"x", "y", "width", "height", NULL}, *const circle[] = {"cx", "cy", "r", NULL},
                           *const ellipse[] = {"cx", "cy", "rx", "ry", NULL};
  char *name = value_text(value_of(shape, "name"));
  double v[4], *xy = NULL;
  const bool polygon = name && !strcmp(name, "polygon"), line = name && !strcmp(name, "polyline");
  const int n = polygon || line ? read_points(shape, &xy) : 0;
  if (!name) {
    import_invalid(s, s->images[image].name, "region: it has no shape");
  } else if (polygon || line) {
    if (n < 3 || (line && !is_closed(xy, n))) {
      if (line && n >= 0)
        import_drop(s, s->images[image].name, "shape: no area (polyline)");
      else
        import_invalid(s, s->images[image].name, n < 0 ? "%s: its points are not numbers" : "%s: fewer than 3 points",
                       name);
    } else {
      if (line) import_note(s, f->path, "polyline whose ends nearly meet, taken as a polygon");
      object_polygon(import_object(s, image, class, NULL), xy, n);
    }
  } else if (!strcmp(name, "rect") && read_numbers(shape, rect, v)) {
    object_rectangle(import_object(s, image, class, NULL), v[0], v[1], v[0] + v[2], v[1] + v[3], 0, false);
  } else if (!strcmp(name, "circle") && read_numbers(shape, circle, v)) {
    object_ellipse(import_object(s, image, class, NULL), v[0], v[1], v[2], v[2], 0);
  } else if (!strcmp(name, "ellipse") && read_numbers(shape, ellipse, v)) {
    const double angle = value_number(value_of(shape, "theta"), 0);
    object_ellipse(import_object(s, image, class, NULL), v[0], v[1], v[2], v[3], isfinite(angle) ? angle : 0);
  } else if (strcmp(name, "rect") && strcmp(name, "circle") && strcmp(name, "ellipse")) {
    import_drop(s, s->images[image].name, "shape: no area (%s)", name);
  } else {
    import_invalid(s, s->images[image].name, "%s: its numbers are missing", name);
  }
  free(name);
  free(xy);
}

// ---- files ----------------------------------------------------------------------------------------------------------

// The pictures of a project are under one key, those of a bare file are its members.
static JsonValue pictures_of(JsonValue v) {
  const JsonValue inner = value_of(v, "_via_img_metadata");
  return inner.begin ? inner : v;
}

static void read_picture(ImportSet *s, const TreeFile *f, const Attributes *a, JsonValue v) {
  char *name = value_text(value_of(v, "filename")), *folder = path_folder(f->path);
  int file, image = -1;
  const TreeMatch match = name ? tree_picture(s->tree, name, folder, &file) : TREE_MISSING;
  const char *split = split_of(f->path, true);
  if (match == TREE_EXACT || match == TREE_NAME)
    image = import_image(s, file, split);
  else if (name)
    import_broken(s, "%s: its image %s %s; put it in this folder, or name its folder with --images", f->path, name,
                  match == TREE_SEVERAL ? "may be one of several files" : "is not found");
  if (image >= 0)
    for (ValueWalk w = value_walk(value_of(v, "regions")); value_next(&w);) {
      char *class = a->taken ? attribute_value(value_of(value_of(w.value, "region_attributes"), a->taken)) : NULL;
      const char *otherwise = s->options.class_name ? s->options.class_name : a->taken ? NULL : "object";
      if (class || otherwise)
        read_shape(s, f, image, class ? class : otherwise, value_of(w.value, "shape_attributes"));
      else
        import_invalid(s, s->images[image].name, "region: it has no class; --class NAME gives it one");
      free(class);
    }
  free(name);
  free(folder);
}

static void read_via(ImportSet *s) {
  Attributes a = {0};
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < s->tree->n; i++) {
      const TreeFile *f = &s->tree->file[i];
      const JsonKind kind = json_kind(s->tree, i);
      if (kind != JSON_VIA && (kind != JSON_BROKEN || pass == 0)) continue;
      size_t size;
      char *text = import_read(s, i, &size);
      JsonValue v;
      Err err;
      const bool ok = text && value_read(&v, f->path, text, size, &err);
      if (text && !ok && pass == 1) import_broken(s, "%s", err.msg);
      if (ok)
        for (ValueWalk w = value_walk(pictures_of(v)); value_next(&w);) {
          if (pass == 1) read_picture(s, f, &a, w.value);
          if (pass == 0)
            for (ValueWalk r = value_walk(value_of(w.value, "regions")); value_next(&r);) count_region(&a, r.value);
        }
      s->files += ok && pass == 1;
      free(text);
    }
    if (pass == 0) choose_attribute(s, &a);
  }
  for (int i = 0; i < a.n; i++) free(a.item[i].name);
  free(a.item);
}

static int detect_via(Tree *t) { return json_kinds(t, JSON_VIA); }

const ImportFormat import_via = {"via", "VIA JSON file", detect_via, read_via};
