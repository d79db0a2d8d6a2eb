#include "data/import/import.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/image.h"
#include "data/import/tiff.h"
#include "data/import/value.h"

char *import_read(ImportSet *s, int file, size_t *size) {
  Err err;
  bool latin1;
  char *text = text_read(s->tree->file[file].full, size, &latin1, &err);
  if (!text) import_broken(s, "%s", err.msg);
  if (text && latin1) import_note(s, s->tree->file[file].path, "file that is not UTF-8, read as Latin-1");
  return text;
}

// ---- images ---------------------------------------------------------------------------------------------------------

static const char *keep_split(ImportSet *s, const char *split) {
  const int i = text_table_add(&s->splits, split ? split : "train");
  return s->splits.text[i];
}

static int add_image(ImportSet *s, ImportImage im) {
  const bool turned = im.orientation >= IMAGE_TURNED;
  im.h = turned ? im.stored_w : im.stored_h;
  im.w = turned ? im.stored_h : im.stored_w;
  im.upright = true;
  if (im.orientation > 1) import_note(s, im.name, "image stored turned, taken upright by its EXIF orientation");
  array_reserve((void **)&s->images, &s->cap, (size_t)s->n + 1, sizeof *s->images);
  s->images[s->n] = im;
  return s->n++;
}

// Its size, if it is a TIFF; *is: whether it is one.
static bool measure_tiff(const TreeFile *f, ImportImage *im, bool *is, Err *err) {
  size_t size;
  char *bytes = path_ends(f->path, ".tif") || path_ends(f->path, ".tiff") ? file_read(f->full, &size, err) : NULL;
  *is = bytes && tiff_is((const uint8_t *)bytes, size);
  const bool ok = *is && tiff_measure((const uint8_t *)bytes, size, f->path, &im->stored_h, &im->stored_w, err);
  im->orientation = 1;
  im->tiff = ok;
  free(bytes);
  return ok;
}

// Of the PNG that a TIFF becomes.
static char *name_png(const Tree *t, const char *path) {
  char *name = xasprintf("%.*s.png", (int)(strrchr(path, '.') - path), path);
  if (tree_find(t, name) < 0) return name;
  free(name);
  return xasprintf("%s.png", path);
}

int import_image(ImportSet *s, int file, const char *split) {
  TreeFile *f = &s->tree->file[file];
  if (!split) split = split_of(f->path, false);
  split = keep_split(s, split);
  if (f->image >= 0 && s->images[f->image].split == split) return f->image;
  ImportImage im = {.file = file, .split = split};
  Err err;
  bool tiff;
  if (!measure_tiff(f, &im, &tiff, &err) &&
      (tiff || !image_header(f->full, true, &im.stored_h, &im.stored_w, &im.orientation, &err))) {
    import_broken(s, "%s", err.msg);
    return -1;
  }
  im.name = im.tiff ? name_png(s->tree, f->path) : xstrdup(f->path);
  return f->image = add_image(s, im);
}

int import_embedded(ImportSet *s, const char *name, uint8_t *bytes, size_t size, const char *split) {
  ImportImage im = {.file = -1, .bytes = bytes, .size = size, .split = keep_split(s, split)};
  Err err;
  if (!image_measure(bytes, size, name, &im.stored_h, &im.stored_w, &err)) {
    import_broken(s, "%s", err.msg);
    free(bytes);
    return -1;
  }
  im.orientation = image_orientation(bytes, size);
  im.name = xstrdup(name);
  return add_image(s, im);
}

void import_take_back(ImportSet *s, int image) {
  ImportImage *im = &s->images[image];
  if (image != s->n - 1 || im->n > 0) return;
  if (im->file >= 0) s->tree->file[im->file].image = -1;
  free(im->name);
  free(im->bytes);
  s->n--;
}

void import_size(ImportSet *s, int image, int h, int w) {
  ImportImage *im = &s->images[image];
  if (h <= 0 || w <= 0 || (h == im->h && w == im->w)) return;
  if (h == im->stored_h && w == im->stored_w) { // before the tool looked at EXIF
    im->h = h;
    im->w = w;
    im->upright = false;
  } else {
    import_note(s, im->name, "image of another size than its annotations give; coordinates are taken as pixels");
  }
}

int import_category(ImportSet *s, const char *name) { return text_table_add(&s->categories, name); }

// ---- objects --------------------------------------------------------------------------------------------------------

ImportObject *import_object(ImportSet *s, int image, const char *category, const char *group) {
  ImportImage *im = &s->images[image];
  const int k = import_category(s, category);
  for (int i = im->n - 1; group && i >= 0; i--)
    if (im->objects[i].category == k && im->objects[i].group && !strcmp(im->objects[i].group, group))
      return &im->objects[i];
  array_reserve((void **)&im->objects, &im->cap, (size_t)im->n + 1, sizeof *im->objects);
  im->objects[im->n] = (ImportObject){.category = k, .source = s->files, .group = group ? xstrdup(group) : NULL};
  return &im->objects[im->n++];
}

void object_polygon(ImportObject *o, const double *xy, int points) {
  o->points = xrealloc(o->points, (size_t)(o->parts + 1) * sizeof *o->points);
  o->xy = xrealloc(o->xy, (o->numbers + 2 * (size_t)points) * sizeof *o->xy);
  memcpy(o->xy + o->numbers, xy, 2 * (size_t)points * sizeof *o->xy);
  o->points[o->parts++] = points;
  o->numbers += 2 * (size_t)points;
}

void object_box(ImportObject *o, double x1, double y1, double x2, double y2) {
  const double box[4] = {MIN(x1, x2), MIN(y1, y2), MAX(x1, x2), MAX(y1, y2)};
  for (int i = 0; i < 4; i++)
    o->box[i] = !o->has_box ? box[i] : i < 2 ? MIN(o->box[i], box[i]) : MAX(o->box[i], box[i]);
  o->has_box = true;
}

void object_mask(ImportObject *o, Rle mask) {
  if (o->mask.runs) {
    const Rle parts[] = {o->mask, mask};
    const Rle both = rle_merge(parts, 2, false);
    rle_free(&o->mask);
    rle_free(&mask);
    mask = both;
  }
  o->mask = mask;
}

void object_ellipse(ImportObject *o, double x, double y, double rx, double ry, double angle) {
  enum { FEWEST = 32, MOST = 720 }; // of points; a multiple of four, so that its extremes are among them
  const double pi = acos(-1), around = 2 * pi * MAX(fabs(rx), fabs(ry));
  const int n = around < MOST ? MAX(FEWEST, (int)around / 4 * 4) : MOST;
  double xy[2 * MOST];
  for (int i = 0; i < n; i++) {
    const double at = 2 * pi * i / n, u = rx * cos(at), v = ry * sin(at);
    xy[2 * i] = x + u * cos(angle) - v * sin(angle);
    xy[2 * i + 1] = y + u * sin(angle) + v * cos(angle);
  }
  object_polygon(o, xy, n);
}

void object_rectangle(ImportObject *o, double x1, double y1, double x2, double y2, double angle, bool about_centre) {
  const double x = about_centre ? (x1 + x2) / 2 : x1, y = about_centre ? (y1 + y2) / 2 : y1;
  double xy[8] = {x1, y1, x2, y1, x2, y2, x1, y2};
  for (int i = 0; angle != 0 && i < 8; i += 2) {
    const double u = xy[i] - x, v = xy[i + 1] - y;
    xy[i] = x + u * cos(angle) - v * sin(angle);
    xy[i + 1] = y + u * sin(angle) + v * cos(angle);
  }
  object_polygon(o, xy, 4);
}

// The pixels that a mask lacks.
static Rle complement(const Rle *r) {
  const bool drops = r->n > 0 && r->runs[0] == 0;
  Rle other = {r->h, r->w, drops ? r->n - 1 : r->n + 1, xmalloc((size_t)(r->n + 1) * sizeof(uint32_t))};
  if (!drops) other.runs[0] = 0;
  memcpy(other.runs + !drops, r->runs + drops, (size_t)(r->n - drops) * sizeof *r->runs);
  return other;
}

void object_polygon_with_holes(ImportObject *o, const double *xy, const int *points, int parts, int h, int w) {
  Rle mask = rle_from_polygon(xy, points[0], h, w);
  for (int p = 1; p < parts; p++) {
    xy += 2 * (size_t)points[p - 1];
    Rle hole = rle_from_polygon(xy, points[p], h, w), around = complement(&hole);
    const Rle both[] = {mask, around};
    const Rle rest = rle_merge(both, 2, true);
    rle_free(&hole);
    rle_free(&around);
    rle_free(&mask);
    mask = rest;
  }
  object_mask(o, mask);
}

static void object_free(ImportObject *o) {
  free(o->group);
  free(o->points);
  free(o->xy);
  rle_free(&o->mask);
}

void import_free(ImportSet *s) {
  for (int i = 0; i < s->n; i++) {
    ImportImage *im = &s->images[i];
    for (int k = 0; k < im->n; k++) object_free(&im->objects[k]);
    free(im->objects);
    free(im->name);
    free(im->picture);
    free(im->bytes);
  }
  free(s->images);
  for (int i = 0; i < s->num_counts; i++) {
    free(s->counts[i].what);
    free(s->counts[i].first);
  }
  free(s->counts);
  free(s->refused);
  text_table_free(&s->categories);
  text_table_free(&s->splits);
}

// ---- the end of reading ---------------------------------------------------------------------------------------------

// The union of an object's polygons and its mask. Caller frees.
static Rle mask_of(const ImportObject *o, int h, int w) {
  Rle *part = xcalloc((size_t)o->parts + 1, sizeof *part);
  const double *xy = o->xy;
  int n = 0;
  for (int p = 0; p < o->parts; p++) {
    part[n++] = rle_from_polygon(xy, o->points[p], h, w);
    xy += 2 * (size_t)o->points[p];
  }
  if (o->mask.runs) part[n++] = rle_copy(&o->mask);
  const Rle all = rle_merge(part, n, false);
  for (int i = 0; i < n; i++) rle_free(&part[i]);
  free(part);
  return all;
}

// The box around the points, inside the picture: x1 y1 x2 y2.
static void bound(const ImportObject *o, double h, double w, double box[4]) {
  if (!o->has_box || o->parts > 0) {
    box[0] = box[1] = INFINITY;
    box[2] = box[3] = -INFINITY;
  } else {
    memcpy(box, o->box, sizeof o->box);
  }
  for (size_t i = 0; i < o->numbers; i++) {
    box[i % 2] = MIN(box[i % 2], o->xy[i]);
    box[2 + i % 2] = MAX(box[2 + i % 2], o->xy[i]);
  }
  for (int i = 0; i < 4; i++) box[i] = MAX(0, MIN(box[i], i % 2 ? h : w));
}

// Its box and area. False: nothing of it is in the picture, or it has no pixel.
static bool settle(ImportObject *o, int h, int w) {
  double box[4];
  if (o->parts > 0 || o->mask.runs) {
    Rle mask = mask_of(o, h, w);
    o->area = rle_area(&mask);
    if (o->area == 0) {
      rle_free(&mask);
      return false;
    }
    o->has_box = false;
    if (!o->mask.runs) {
      bound(o, h, w, box);
      rle_free(&mask);
    } else { // with a mask, polygons are pixels, too
      rle_bbox(&mask, o->bbox);
      rle_free(&o->mask);
      o->mask = mask;
      o->parts = 0;
      return true;
    }
  } else {
    bound(o, h, w, box);
    o->area = (uint64_t)((box[2] - box[0]) * (box[3] - box[1]) + 0.5);
  }
  for (int i = 0; i < 2; i++) {
    o->bbox[i] = box[i];
    o->bbox[2 + i] = box[2 + i] - box[i];
  }
  return o->bbox[2] > 0 && o->bbox[3] > 0;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// Sorts the categories by name, without those that have no object.
static void sort_categories(ImportSet *s) {
  bool *used = xcalloc((size_t)s->categories.n + 1, sizeof *used);
  char **names = xcalloc((size_t)s->categories.n + 1, sizeof *names);
  TextTable sorted = {0};
  int n = 0;
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->images[i].n; k++) used[s->images[i].objects[k].category] = true;
  for (int k = 0; k < s->categories.n; k++)
    if (used[k]) names[n++] = s->categories.text[k];
  qsort(names, (size_t)n, sizeof *names, by_text);
  for (int k = 0; k < n; k++) text_table_add(&sorted, names[k]);
  for (int i = 0; i < s->n; i++)
    for (int k = 0; k < s->images[i].n; k++) {
      ImportObject *o = &s->images[i].objects[k];
      o->category = text_table_find(&sorted, s->categories.text[o->category]);
    }
  text_table_free(&s->categories);
  s->categories = sorted;
  free(names);
  free(used);
}

static void drop_repeated(ImportSet *s, ImportImage *im) {
  int kept = 0;
  for (int k = 0; k < im->n; k++) {
    ImportObject o = im->objects[k];
    im->objects[kept] = o;
    if (!object_is_repeated(im, kept)) {
      kept++;
      continue;
    }
    import_drop(s, im->name, "object: another annotation file of its image has it, too");
    object_free(&o);
  }
  im->n = kept;
}

void import_settle(ImportSet *s) {
  for (int i = 0; i < s->n; i++) {
    ImportImage *im = &s->images[i];
    drop_repeated(s, im);
    int kept = 0;
    for (int k = 0; k < im->n; k++) {
      ImportObject *o = &im->objects[k];
      if (settle(o, im->h, im->w)) {
        im->objects[kept++] = *o;
      } else {
        const bool mask = o->parts > 0 || o->mask.runs;
        import_drop(s, im->name, mask ? "mask: no pixel in its image" : "box: no area in its image");
        object_free(o);
      }
    }
    im->n = kept;
  }
  if (!s->ordered) sort_categories(s);
}
