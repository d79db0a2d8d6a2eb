// CVAT's XML 1.1, for images and for video. https://docs.cvat.ai/docs/dataset_management/formats/format-cvat/
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/xml.h"

enum { NAME = 32, DEEPEST = 64 };

typedef struct Cvat {
  ImportSet *s;
  const TreeFile *f;
  char *folder;
  char path[DEEPEST][NAME]; // names of the elements around
  int depth;
  char *text; // of the innermost element
  size_t length, cap;
  char *label;                     // in <labels>: the name of one
  bool other;                      // it has no area: a part of a skeleton, a line, a tag
  int h, w;                        // original_size
  long size, start;                // frames of the task or job, and the number of its first
  int image;                       // around; -1: none
  char *track_label, *track_group; // of a <track> around; NULL: there is none
  char *track_subset;              // likewise, in a project's export
  int skeletons;                   // around
  bool video;
  TextTable missing; // frames that were not found
} Cvat;

// ---- numbers --------------------------------------------------------------------------------------------------------

static double number(const char **attributes, const char *name, double otherwise) {
  const char *text = xml_attribute(attributes, name);
  char *end;
  const double v = text ? strtod(text, &end) : NAN;
  return text && end > text && isfinite(v) ? v : otherwise;
}

// "x,y;x,y" as pairs, malloc'ed; how many, or -1.
static int read_points(const char *text, double **xy) {
  size_t n = 0, cap = 0;
  *xy = NULL;
  array_reserve((void **)xy, &cap, 2, sizeof **xy);
  for (const char *p = text ? text : ""; *p;) {
    char *end;
    const double v = strtod(p, &end);
    if (end == p || !isfinite(v) || n > INT32_MAX / 2) return -1;
    array_reserve((void **)xy, &cap, n + 1, sizeof **xy);
    (*xy)[n++] = v;
    p = end + strspn(end, " ");
    if (*p && *p != (n % 2 ? ',' : ';')) return -1;
    p += *p != '\0';
  }
  return n % 2 ? -1 : (int)(n / 2);
}

// ---- pictures -------------------------------------------------------------------------------------------------------

static void refuse_picture(const Cvat *c, const char *name, TreeMatch match) {
  import_broken(c->s, "%s: its image %s %s; put it in this folder, or name its folder with --images", c->f->path, name,
                match == TREE_SEVERAL ? "may be one of several files" : "is not found");
}

// The picture of a name, or of one without ending, as a video's frames have. A project's export has a folder for each
// subset, and may have the name in several.
static TreeMatch find_picture(const Cvat *c, const char *subset, const char *name, int *file) {
  TreeMatch match = TREE_MISSING;
  char *path = xasprintf("%s/%s", subset ? subset : "", name);
  for (int pass = !subset; pass < 2 && match != TREE_EXACT && match != TREE_NAME; pass++) {
    match = tree_picture(c->s->tree, pass ? name : path, c->folder, file);
    if (!match) match = tree_stem(c->s->tree, pass ? name : path, c->folder, file);
  }
  free(path);
  return match;
}

static void begin_image(Cvat *c, const char **a) {
  const char *name = xml_attribute(a, "name"), *subset = xml_attribute(a, "subset");
  const char *split = subset ? split_named(subset) : NULL;
  int file;
  const TreeMatch match = name ? find_picture(c, subset, name, &file) : TREE_MISSING;
  c->image = -1;
  if (match != TREE_EXACT && match != TREE_NAME) {
    refuse_picture(c, name ? name : "without a name", match);
    return;
  }
  c->image = import_image(c->s, file, split ? split : split_of(c->f->path, true));
  if (c->image >= 0) import_size(c->s, c->image, import_int(number(a, "height", 0)), import_int(number(a, "width", 0)));
}

// The n-th picture, in the order of names, if there are as many as the task has frames; -1: there are not.
static int picture_at(const Cvat *c, long n) {
  const Tree *t = c->s->tree;
  int found = -1;
  long pictures = 0;
  for (int i = 0; i < t->n; i++)
    if (t->file[i].picture && pictures++ == n) found = i;
  return pictures == c->size ? found : -1;
}

static int frame_image(Cvat *c, long frame) {
  char *stem = xasprintf("frame_%06ld", frame);
  const char *split = c->track_subset ? split_named(c->track_subset) : NULL;
  int file;
  TreeMatch match = find_picture(c, c->track_subset, stem, &file);
  if (!match && (file = picture_at(c, frame - c->start)) >= 0) {
    import_note(c->s, c->f->path, "images are frames in the order of their names, as none is called frame_…");
    match = TREE_NAME;
  }
  int image = -1;
  if (match == TREE_EXACT || match == TREE_NAME)
    image = import_image(c->s, file, split ? split : split_of(c->f->path, true));
  else if (text_table_find(&c->missing, stem) < 0)
    import_broken(c->s, "%s: frame %ld is not found; put the video's frames here as images/%s.png", c->f->path, frame,
                  stem);
  if (image >= 0) import_size(c->s, image, c->h, c->w);
  if (image < 0) text_table_add(&c->missing, stem);
  free(stem);
  return image;
}

// Frames without an object are not in the file.
static void take_other_frames(const Cvat *c) {
  const Tree *t = c->s->tree;
  for (int i = 0; i < t->n; i++) {
    const char *name = path_name(t->file[i].path);
    if (t->file[i].picture && t->file[i].image < 0 && !strncmp(name, "frame_", 6) &&
        name[6 + strspn(name + 6, "0123456789")] == '.')
      import_image(c->s, i, split_of(c->f->path, true));
  }
  import_note(c->s, c->f->path,
              "these are frames of one video, which are alike: with train --val-fraction, --group REGEX keeps a "
              "video's on one side");
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

// Runs along the rows of the mask's own box, background first. Runs behind a full box are left out. False: they do not
// add up to it.
static bool read_mask(Cvat *c, const char **a, const ImportImage *im, Rle *mask) {
  const double limit = 1 << 28;
  const double w = number(a, "width", 0), h = number(a, "height", 0), x = number(a, "left", NAN),
               y = number(a, "top", NAN);
  if (!(w >= 1 && h >= 1 && w * h <= limit && fabs(x) < limit && fabs(y) < limit)) return false;
  const size_t pixels = (size_t)w * (size_t)h;
  const char *p = xml_attribute(a, "rle");
  uint8_t *bytes = xcalloc(pixels, 1);
  size_t at = 0;
  bool ok = p != NULL;
  for (uint8_t value = 0; ok && *p; value = !value) {
    char *end;
    const unsigned long run = strtoul(p, &end, 10);
    ok = end > p && p[strspn(p, " ")] != '-';
    if (ok && at == pixels && run > 0) {
      import_note(c->s, c->f->path, "mask with more runs than its box has pixels; the others are ignored");
      break;
    }
    ok = ok && run <= pixels - at;
    if (ok && value) memset(bytes + at, 1, run);
    at += ok ? run : 0;
    p = end + strspn(end, " ,\n");
  }
  ok = ok && at == pixels;
  if (ok) *mask = mask_placed(bytes, (int)h, (int)w, (int)x, (int)y, im->h, im->w);
  free(bytes);
  return ok;
}

static void take_shape(Cvat *c, int image, const char *name, const char **a) {
  ImportSet *s = c->s;
  const char *label = c->track_label ? c->track_label : xml_attribute(a, "label"), *where = s->images[image].name;
  const char *group = c->track_label ? c->track_group : xml_attribute(a, "group_id");
  const double angle = number(a, "rotation", 0) * acos(-1) / 180;
  double *xy = NULL;
  Rle mask;
  if (group && (!*group || !strcmp(group, "0"))) group = NULL;
  if (!label) label = s->options.class_name;
  if (!label) {
    import_invalid(s, where, "shape: it has no label");
  } else if (!strcmp(name, "polygon")) {
    const int n = read_points(xml_attribute(a, "points"), &xy);
    if (n < 3)
      import_invalid(s, where, "polygon: fewer than 3 points");
    else
      object_polygon(import_object(s, image, label, group), xy, n);
    free(xy);
  } else if (!strcmp(name, "mask")) {
    if (read_mask(c, a, &s->images[image], &mask))
      object_mask(import_object(s, image, label, group), mask);
    else
      import_invalid(s, where, "mask: its runs do not add up to its box");
  } else if (!strcmp(name, "ellipse")) {
    object_ellipse(import_object(s, image, label, group), number(a, "cx", 0), number(a, "cy", 0), number(a, "rx", 0),
                   number(a, "ry", 0), angle);
  } else if (!strcmp(name, "box")) {
    ImportObject *o = import_object(s, image, label, angle != 0 ? group : NULL);
    const double x1 = number(a, "xtl", 0), y1 = number(a, "ytl", 0), x2 = number(a, "xbr", 0), y2 = number(a, "ybr", 0);
    if (angle != 0)
      object_rectangle(o, x1, y1, x2, y2, angle, true);
    else
      object_box(o, x1, y1, x2, y2);
  } else {
    import_drop(s, where, "shape: no area (%s)", name);
  }
}

static bool is_shape(const char *name) {
  static const char *const shapes[] = {"box",  "polygon", "polyline", "points", "ellipse",
                                       "mask", "cuboid",  "skeleton", "tag"};
  for (int i = 0; i < COUNT(shapes); i++)
    if (!strcmp(name, shapes[i])) return true;
  return false;
}

// ---- elements -------------------------------------------------------------------------------------------------------

static bool is_in(const Cvat *c, const char *name) {
  return c->depth > 0 && c->depth <= DEEPEST && !strcmp(c->path[c->depth - 1], name);
}

static void end_track(Cvat *c) {
  free(c->track_label);
  free(c->track_group);
  free(c->track_subset);
  c->track_label = c->track_group = c->track_subset = NULL;
}

static void begin(void *of, const char *name, const char **a) {
  Cvat *c = of;
  const bool track = is_in(c, "track");
  if (!strcmp(name, "image") && is_in(c, "annotations")) {
    begin_image(c, a);
  } else if (!strcmp(name, "track")) {
    const char *label = xml_attribute(a, "label"), *group = xml_attribute(a, "group_id"),
               *subset = xml_attribute(a, "subset");
    c->video = true;
    end_track(c); // one that the file lets end within another
    c->track_label = label ? xstrdup(label) : NULL;
    c->track_group = group ? xstrdup(group) : NULL;
    c->track_subset = subset ? xstrdup(subset) : NULL;
  } else if (is_shape(name) && c->skeletons == 0 && (track || is_in(c, "image"))) {
    const bool outside = track && number(a, "outside", 0) != 0;
    const int image = outside ? -1 : track ? frame_image(c, import_int(number(a, "frame", -1))) : c->image;
    if (image >= 0) take_shape(c, image, name, a);
  }
  c->skeletons += !strcmp(name, "skeleton");
  if (c->depth < DEEPEST) snprintf(c->path[c->depth], NAME, "%s", name);
  c->depth++;
  c->length = 0;
}

static void text_piece(void *of, const char *text, int n) {
  Cvat *c = of;
  array_reserve((void **)&c->text, &c->cap, c->length + (size_t)n + 1, 1);
  memcpy(c->text + c->length, text, (size_t)n);
  c->length += (size_t)n;
}

static void end(void *of, const char *name) {
  Cvat *c = of;
  text_piece(c, "", 0);
  c->text[c->length] = '\0';
  c->depth--;
  if (!strcmp(name, "name") && is_in(c, "label")) {
    free(c->label);
    c->label = xstrdup(c->text);
  } else if (!strcmp(name, "parent") && is_in(c, "label")) {
    c->other = true;
  } else if (!strcmp(name, "type") && is_in(c, "label")) {
    c->other |= strcmp(c->text, "mask") && strcmp(c->text, "polygon") && strcmp(c->text, "ellipse") &&
                strcmp(c->text, "rectangle") && strcmp(c->text, "any");
  } else if (!strcmp(name, "label") && is_in(c, "labels")) {
    if (c->label && *c->label && !c->other) {
      import_category(c->s, c->label);
      c->s->ordered = true;
    }
    c->other = false;
  } else if (is_in(c, "original_size")) {
    *(name[0] == 'w' ? &c->w : &c->h) = atoi(c->text);
  } else if (!strcmp(name, "size") && (is_in(c, "task") || is_in(c, "job"))) {
    c->size = atol(c->text);
  } else if (!strcmp(name, "start_frame") && (is_in(c, "task") || is_in(c, "job"))) {
    c->start = atol(c->text);
  } else if (!strcmp(name, "track")) {
    end_track(c);
  } else if (!strcmp(name, "image")) {
    c->image = -1;
  }
  c->skeletons -= !strcmp(name, "skeleton");
  c->length = 0;
}

// ---- files ----------------------------------------------------------------------------------------------------------

static bool is_cvat(const Tree *t, int file) {
  const TreeFile *f = &t->file[file];
  if (!path_ends(f->path, ".xml") || (t->only && strcmp(f->path, t->only))) return false;
  size_t size;
  char *text = file_read(f->full, &size, NULL);
  const char *root = text ? strstr(text, "<annotations") : NULL;
  const bool is =
      root && root - text < 4096 && (strstr(root, "<image") || strstr(root, "<track") || strstr(root, "<meta"));
  free(text);
  return is;
}

static void read_cvat(ImportSet *s) {
  static const XmlHandlers handlers = {begin, end, text_piece};
  for (int i = 0; i < s->tree->n; i++) {
    if (!is_cvat(s->tree, i)) continue;
    const TreeFile *f = &s->tree->file[i];
    size_t size;
    char *text = import_read(s, i, &size);
    Cvat c = {.s = s, .f = f, .folder = path_folder(f->path), .image = -1};
    Err err;
    s->files++;
    if (text && !xml_parse(text, size, f->path, &handlers, &c, &err)) {
      if (xml_is_built)
        import_broken(s, "%s; what stands before it was read", err.msg);
      else
        import_refuse(s, "%s", err.msg);
    }
    if (c.video) take_other_frames(&c);
    free(text);
    free(c.folder);
    free(c.text);
    free(c.label);
    end_track(&c);
    text_table_free(&c.missing);
  }
}

static int detect_cvat(Tree *t) {
  int n = 0;
  for (int i = 0; i < t->n; i++) n += is_cvat(t, i);
  return n;
}

const ImportFormat import_cvat = {"cvat", "CVAT XML file", detect_cvat, read_cvat};
