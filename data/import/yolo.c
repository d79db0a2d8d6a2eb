// YOLO with segmentation: a .txt beside each picture's, one object a row, "CLASS x y x y …", or "CLASS x y w h" for a
// box, in parts of the picture's size. data.yaml names classes and splits, by paths of the machine that wrote it.
// https://docs.ultralytics.com/datasets/segment/
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/import/formats.h"
#include "data/import/yaml.h"

// ---- data.yaml ------------------------------------------------------------------------------------------------------

static int depth_of(const char *path) {
  int n = 0;
  for (; *path; path++) n += *path == '/';
  return n;
}

// A file that lists names; settings of runs do not.
static bool read_yaml(const Tree *t, int file, Yaml *y) {
  const TreeFile *f = &t->file[file];
  if (!path_ends(f->path, ".yaml") && !path_ends(f->path, ".yml")) return false;
  size_t size;
  char *text = file_read(f->full, &size, NULL);
  if (!text) return false;
  *y = yaml_read(text);
  free(text);
  const YamlEntry *names = yaml_find(y, "names");
  if (names && names->many && names->n > 0) return true;
  yaml_free(y);
  return false;
}

// data.yaml before others, the nearest to the root first.
static bool goes_before(const char *a, const char *b) {
  const int i = depth_of(a), k = depth_of(b);
  if (i != k) return i < k;
  const bool usual = !strcmp(path_name(a), "data.yaml");
  return usual != !strcmp(path_name(b), "data.yaml") ? usual : strcmp(a, b) < 0;
}

static int find_yaml(const Tree *t) {
  int found = -1;
  Yaml y;
  for (int i = 0; i < t->n; i++) {
    const char *path = t->file[i].path;
    if (t->only && (path_ends(t->only, ".yaml") || path_ends(t->only, ".yml")) && strcmp(path, t->only)) continue;
    if ((found >= 0 && !goes_before(path, t->file[found].path)) || !read_yaml(t, i, &y)) continue;
    found = i;
    yaml_free(&y);
  }
  return found;
}

static bool same_values(const YamlEntry *a, const YamlEntry *b) {
  if (!a || !b) return !a && !b;
  bool same = a->n == b->n;
  for (int i = 0; same && i < a->n; i++) same = !strcmp(a->value[i], b->value[i]);
  return same;
}

static void note_other_yamls(ImportSet *s, int taken, const Yaml *y) {
  const Tree *t = s->tree;
  for (int i = 0; i < t->n; i++) {
    Yaml other;
    if (i == taken || !read_yaml(t, i, &other)) continue;
    const bool names = !same_values(yaml_find(y, "names"), yaml_find(&other, "names"));
    if (names || !same_values(yaml_find(y, "train"), yaml_find(&other, "train")))
      import_note(s, t->file[i].path,
                  "this file has other %s than %s, which was used; to use it, give it instead of the folder",
                  names ? "names" : "paths", t->file[taken].path);
    yaml_free(&other);
  }
}

// The names by class number: texts[n], owned by the table of categories.
static void take_names(ImportSet *s, const YamlEntry *names) {
  int most = -1;
  for (int i = 0; i < names->n; i++) {
    const int class = names->name[i] ? atoi(names->name[i]) : i;
    most = MAX(most, class);
  }
  enum { MOST = 100000 };
  for (int class = 0; class <= MIN(most, MOST); class ++) {
    const char *name = NULL;
    for (int i = 0; i < names->n; i++)
      if ((names->name[i] ? atoi(names->name[i]) : i) == class) name = names->value[i];
    char *own = !name || !*name || text_table_find(&s->categories, name) >= 0
                    ? xasprintf("%s%sclass %d", name ? name : "", name && *name ? " " : "", class)
                    : xstrdup(name);
    import_category(s, own);
    free(own);
  }
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// Reads a row up to the end of its line: the class, then *n numbers, of which `room` are kept. False: no such row.
static bool read_row(const char *p, const char *end, long *class, double *numbers, int room, int *n) {
  char *after;
  const double first = strtod(p, &after);
  if (after == p || after > end || !(first >= 0 && first < 1e6) || first != floor(first)) return false;
  *class = (long)first;
  for (*n = 0;; ++*n) {
    p = after + strspn(after, " \t\r");
    if (p >= end) return true;
    const double v = strtod(p, &after);
    if (after == p || after > end || !isfinite(v)) return false;
    if (*n < room) numbers[*n] = v;
  }
}

static bool is_inside(const double *v, int n) {
  const double slack = 0.5; // beyond, the numbers are no parts of a size
  for (int i = 0; i < n; i++)
    if (v[i] < -slack || v[i] > 1 + slack) return false;
  return true;
}

static double clip(double v) { return MAX(0, MIN(1, v)); }

static void take_row(ImportSet *s, const TreeFile *f, int image, const char *category, double *v, int n) {
  const int h = s->images[image].h, w = s->images[image].w;
  bool clipped = false;
  if (n == 4) {
    const double box[4] = {v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2};
    object_box(import_object(s, image, category, NULL), clip(box[0]) * w, clip(box[1]) * h, clip(box[2]) * w,
               clip(box[3]) * h);
    return;
  }
  for (int i = 0; i < n; i++) {
    clipped |= clip(v[i]) != v[i];
    v[i] = clip(v[i]) * (i % 2 ? h : w);
  }
  if (clipped) import_note(s, f->path, "polygon with points outside its image, clipped");
  object_polygon(import_object(s, image, category, NULL), v, n / 2);
}

// False: the file cannot be read.
static bool read_labels(ImportSet *s, int file, int image) {
  const TreeFile *f = &s->tree->file[file];
  size_t size;
  char *text = import_read(s, file, &size);
  int number = 0;
  s->files++;
  for (const char *p = text; p && *p;) {
    const char *end = p + strcspn(p, "\n");
    const int room = (int)((end - p) / 2 + 1);
    double *v = xmalloc((size_t)room * sizeof *v);
    long class;
    int n;
    char *place = xasprintf("%s:%d", f->path, ++number);
    if (p + strspn(p, " \t\r") < end) {
      if (!read_row(p, end, &class, v, room, &n) || (n != 4 && (n < 6 || n % 2 != 0))) {
        import_invalid(s, place, "row: expected CLASS x y x y …, or CLASS x y w h");
      } else if (!is_inside(v, n)) {
        import_invalid(s, place, "row: its coordinates are not fractions of the image size, 0 to 1");
      } else if (s->ordered && class >= s->categories.n) {
        import_invalid(s, place, "object: class %ld, but there are %d class names", class, s->categories.n);
      } else {
        char *unnamed = s->ordered              ? NULL
                        : s->options.class_name ? xstrdup(s->options.class_name)
                                                : xasprintf("class %ld", class);
        take_row(s, f, image, unnamed ? unnamed : s->categories.text[class], v, n);
        free(unnamed);
      }
    }
    free(place);
    free(v);
    p = end + (*end == '\n');
  }
  free(text);
  return text != NULL;
}

// ---- pictures -------------------------------------------------------------------------------------------------------

// The label file of a picture: images/ in its path is labels/; else beside it, or the only one of that name. -1: none.
static int labels_of(const Tree *t, int picture) {
  const TreeFile *f = &t->file[picture];
  const char *images = NULL, *point = strrchr(f->path, '.');
  for (const char *p = f->path; (p = strstr(p, "images/")); p++)
    if (p == f->path || p[-1] == '/') images = p;
  const int stem = (int)(point - f->path);
  char *path =
      images ? xasprintf("%.*slabels%.*s.txt", (int)(images - f->path), f->path, (int)(point - images - 6), images + 6)
             : xasprintf("%.*s.txt", stem, f->path);
  int found = tree_find(t, path);
  free(path);
  path = xasprintf("%.*s.txt", stem, f->path);
  if (found < 0) found = tree_find(t, path);
  free(path);
  return found >= 0 ? found : tree_only(t, picture, ".txt");
}

static bool is_below(const char *path, const char *folder) {
  const size_t n = strlen(folder);
  return n == 0 || (!strncmp(path, folder, n) && path[n] == '/');
}

// Whether the path's folders have `tail` among them, as whole parts; the folder up to it is then in *folder, malloc'ed.
static bool has_tail(const char *path, const char *tail, char **folder) {
  const size_t n = strlen(tail);
  for (const char *p = path; (p = strstr(p, tail)); p++)
    if ((p == path || p[-1] == '/') && p[n] == '/') {
      *folder = xasprintf("%.*s", (int)(p + n - path), path);
      return true;
    }
  return false;
}

// The folder of pictures that a path of data.yaml means: it, or the longest end of it that is here. An end has to keep
// the word that names the split. NULL: there is none.
static char *find_folder(const Tree *t, const char *base, const char *name) {
  char *path = xstrdup(name), *folder = NULL;
  for (char *p = path; *p; p++)
    if (*p == '\\') *p = '/';
  for (size_t n = strlen(path); n > 0 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
  char *probe = xasprintf("%s/x", path);
  const bool names = split_of(probe, false);
  free(probe);
  for (const char *p = path; !folder && p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
    while (!strncmp(p, "../", 3) || !strncmp(p, "./", 2)) p += *(p + 1) == '.' ? 3 : 2;
    if (!*p || !strcmp(p, ".")) {
      folder = xstrdup(base);
      break;
    }
    probe = xasprintf("%s/x", p);
    const bool keeps = !names || split_of(probe, false);
    free(probe);
    if (!keeps) break;
    char *near = xasprintf("%s%s%s", base, *base ? "/" : "", p);
    for (int i = 0; !folder && i < t->n; i++)
      if (t->file[i].picture && is_below(t->file[i].path, near)) folder = xstrdup(near);
    for (int i = 0; !folder && i < t->n; i++)
      if (t->file[i].picture) has_tail(t->file[i].path, p, &folder);
    free(near);
  }
  free(path);
  return folder;
}

static void take_picture(ImportSet *s, int file, const char *split) {
  const int image = s->tree->file[file].image;
  if (image >= 0) {
    if (strcmp(s->images[image].split, split))
      import_note(s, s->tree->file[file].path, "image of two splits, taken for the first, %s", s->images[image].split);
    return;
  }
  const int labels = labels_of(s->tree, file), taken = import_image(s, file, split);
  if (taken < 0) return;
  if (labels >= 0 && !read_labels(s, labels, taken)) import_take_back(s, taken);
  if (labels < 0) import_note(s, s->tree->file[file].path, "image without a .txt file, taken as background");
}

// A text file that lists pictures, one a line.
static bool take_list(ImportSet *s, const char *base, const char *name, const char *split) {
  int file = -1;
  char *path = xstrdup(name);
  for (char *p = path; *p; p++)
    if (*p == '\\') *p = '/';
  const char *tail = path_ends(path, ".txt") ? path : NULL; // the longest end of the path that is here
  for (const char *p = tail; file < 0 && p; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
    char *near = xasprintf("%s%s%s", base, *base ? "/" : "", p);
    file = tree_find(s->tree, near);
    if (file < 0) file = tree_find(s->tree, p);
    free(near);
  }
  if (file < 0 && tail) file = tree_named(s->tree, path_name(tail));
  free(path);
  size_t size;
  char *text = file >= 0 ? import_read(s, file, &size) : NULL;
  for (char *p = text; p && *p;) {
    char *end = p + strcspn(p, "\r\n");
    const bool more = *end;
    int picture;
    *end = '\0';
    if (*p) {
      const TreeMatch match = tree_picture(s->tree, p, base, &picture);
      if (match == TREE_EXACT || match == TREE_NAME)
        take_picture(s, picture, split);
      else
        import_invalid(s, s->tree->file[file].path, "line: the image that it names is not found");
    }
    p = end + more;
  }
  free(text);
  return file >= 0;
}

static void take_split(ImportSet *s, const char *base, const YamlEntry *e, const YamlEntry *path, const char *split) {
  for (int i = 0; i < e->n; i++) {
    const char *name = e->value[i];
    if (!*name || !strcmp(name, "null") || !strcmp(name, "~")) continue;
    if (take_list(s, base, name, split)) continue;
    int picture;
    const TreeMatch match = tree_picture(s->tree, name, base, &picture); // a list of pictures
    if (match == TREE_EXACT || match == TREE_NAME) {
      take_picture(s, picture, split);
      continue;
    }
    char *whole = path && path->n == 1 ? xasprintf("%s/%s", path->value[0], name) : xstrdup(name);
    char *folder = find_folder(s->tree, base, whole);
    if (!folder)
      import_note(s, NULL, "data.yaml: %s: %s not found; left out", split, name);
    else if (strcmp(folder, name))
      import_note(s, NULL, "data.yaml: %s: %s not found; using %s", split, name,
                  *folder ? folder : "the folder itself");
    for (int k = 0; folder && k < s->tree->n; k++)
      if (s->tree->file[k].picture && is_below(s->tree->file[k].path, folder)) take_picture(s, k, split);
    free(folder);
    free(whole);
  }
}

static void read_class_file(ImportSet *s) {
  static const char *const names[] = {"classes.txt", "obj.names", "classes.names"};
  int file = -1;
  for (int i = 0; file < 0 && i < COUNT(names); i++) file = tree_named(s->tree, names[i]);
  size_t size;
  char *text = file >= 0 ? import_read(s, file, &size) : NULL;
  if (!text) return;
  s->ordered = true;
  for (char *p = text; *p;) {
    const size_t n = strcspn(p, "\r\n");
    const bool more = p[n];
    p[n] = '\0';
    if (*p) import_category(s, p);
    p += n + more;
  }
  free(text);
}

static void read_yolo(ImportSet *s) {
  static const struct {
    const char *key, *split;
  } splits[] = {{"train", "train"}, {"val", "val"}, {"valid", "val"}, {"validation", "val"}, {"test", "test"}};
  const int file = find_yaml(s->tree);
  Yaml y = {0};
  if (file >= 0 && read_yaml(s->tree, file, &y)) {
    char *base = path_folder(s->tree->file[file].path);
    s->ordered = true;
    if (yaml_find(&y, "kpt_shape"))
      import_refuse(s, "%s: its rows are boxes with key points (kpt_shape), not polygons", s->tree->file[file].path);
    take_names(s, yaml_find(&y, "names"));
    note_other_yamls(s, file, &y);
    for (int i = 0; i < COUNT(splits); i++) {
      const YamlEntry *e = yaml_find(&y, splits[i].key);
      if (e && i > 0 && same_values(e, yaml_find(&y, "train")))
        import_note(s, NULL, "data.yaml: %s has the images of train, and is left out", splits[i].key);
      else if (e)
        take_split(s, base, e, yaml_find(&y, "path"), splits[i].split);
    }
    free(base);
  } else {
    read_class_file(s);
    if (!s->ordered)
      import_note(s, NULL, "no data.yaml with names, or classes.txt: classes are called by their number");
  }
  const bool all = s->n == 0;
  for (int i = 0; i < s->tree->n; i++) {
    if (!s->tree->file[i].picture || s->tree->file[i].image >= 0) continue;
    const char *split = split_of(s->tree->file[i].path, false);
    if (all)
      take_picture(s, i, split ? split : "train");
    else if (labels_of(s->tree, i) >= 0)
      import_drop(s, s->tree->file[i].path, "image: in no split of data.yaml");
  }
  yaml_free(&y);
}

// ---- finding --------------------------------------------------------------------------------------------------------

// -1: it is empty, as those of pictures without objects are.
static int is_label_file(const TreeFile *f) {
  size_t size;
  char *text = file_read(f->full, &size, NULL);
  double v;
  long class;
  int n;
  const char *p = text ? text + strspn(text, " \t\r\n") : NULL;
  const int is = p && *p ? read_row(p, p + strcspn(p, "\n"), &class, &v, 1, &n) && n >= 4 : -1;
  free(text);
  return is;
}

static int detect_yolo(Tree *t) {
  int n = 0, looked_at = 0, good = 0;
  if (t->only && !path_ends(t->only, ".yaml") && !path_ends(t->only, ".yml")) return 0;
  for (int i = 0; i < t->n; i++) {
    const int labels = t->file[i].picture ? labels_of(t, i) : -1;
    if (labels < 0) continue;
    n++;
    if (good > 0 || looked_at == 100) continue;
    const int is = is_label_file(&t->file[labels]);
    good += is == 1;
    looked_at += is >= 0;
  }
  return good > 0 ? n : 0;
}

const ImportFormat import_yolo = {"yolo", "YOLO label file", detect_yolo, read_yolo};
