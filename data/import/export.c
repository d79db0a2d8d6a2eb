#include "data/import/export.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/record.h"
#include "base/text.h"
#include "data/coco/polygons.h"
#include "data/import/value.h"

// ---- reading --------------------------------------------------------------------------------------------------------

// The image of this name; -1: it is not found, which is said.
static int find_image(ImportSet *s, const char *name, bool tree) {
  int file = -1;
  TreeMatch match = TREE_MISSING;
  if (tree) {
    match = tree_picture(s->tree, name, "", &file);
  } else if (path_is_file(name)) {
    tree_add(s->tree, name, name);
    file = s->tree->n - 1;
    match = TREE_EXACT;
  }
  if (match == TREE_EXACT || match == TREE_NAME) return import_image(s, file, "train");
  import_broken(s, "image %s %s; give --images DIR", name,
                match == TREE_SEVERAL ? "may be one of several files" : "not found");
  return -1;
}

// False: it is no run-length code.
static bool read_mask(JsonValue v, Rle *mask) {
  double size[2];
  size_t length = 0;
  char *counts = value_text(value_of(v, "counts"));
  const bool sized = value_numbers(value_of(v, "size"), size, 2) == 2 && size[0] >= 1 && size[1] >= 1 &&
                     size[0] <= INT32_MAX && size[1] <= INT32_MAX;
  if (counts) length = strlen(counts);
  const bool ok = counts && sized && rle_from_string(mask, counts, length, (int)size[0], (int)size[1], NULL);
  free(counts);
  return ok;
}

static void read_detection(ImportSet *s, int image, JsonValue v) {
  char *category = value_text(value_of(v, "category"));
  const JsonValue segmentation = value_of(v, "segmentation");
  ImportImage *im = &s->images[image];
  double box[4];
  Rle mask = {0};
  if (!category || !*category) {
    free(category);
    category = value_word(value_of(v, "category_id"));
  }
  if (!category) {
    import_invalid(s, im->name, "detection: it has no category");
  } else if (value_type(segmentation) == JSON_OBJECT) {
    const bool ok = read_mask(segmentation, &mask);
    if (ok && im->n == 0) import_size(s, image, mask.h, mask.w);
    if (ok && mask.h == im->h && mask.w == im->w) {
      object_mask(import_object(s, image, category, NULL), mask);
    } else {
      rle_free(&mask);
      import_invalid(s, im->name, "mask: malformed, or its size is not that of its image");
    }
  } else if (value_numbers(value_of(v, "bbox"), box, 4) == 4) {
    object_box(import_object(s, image, category, NULL), box[0], box[1], box[0] + box[2], box[1] + box[3]);
  } else {
    import_invalid(s, im->name, "detection: it has no mask or box");
  }
  free(category);
}

void export_read(ImportSet *s, const char *path, double least) {
  const bool tree = s->tree->n > 0;
  size_t size;
  Err err;
  char *text = file_read(path, &size, &err);
  JsonValue v;
  TextTable names = {0};
  int *image_of = NULL;
  size_t cap = 0;
  if (!text || !value_read(&v, path, text, size, &err)) {
    import_refuse(s, "%s", err.msg);
    free(text);
    return;
  }
  const JsonValue inner = value_of(v, "detections"), all = inner.begin ? inner : v;
  int64_t n = 0, taken = 0;
  if (value_type(all) != JSON_ARRAY) import_refuse(s, "%s: expected detections.json as infer writes it", path);
  for (ValueWalk w = value_walk(all); !s->refused && value_next(&w);) {
    const double score = value_number(value_of(w.value, "score"), NAN);
    if (isnan(score)) {
      import_refuse(s, "%s: entry %lld has no score: expected detections.json as infer writes it", path,
                    (long long)n + 1);
      value_stop(&w);
      break;
    }
    n++;
    if (score < least) continue;
    taken++;
    char *name = value_text(value_of(w.value, "file_name"));
    if (name) {
      const int before = names.n, k = text_table_add(&names, name);
      array_reserve((void **)&image_of, &cap, (size_t)names.n, sizeof *image_of);
      if (k == before) image_of[k] = find_image(s, name, tree);
      if (image_of[k] >= 0) read_detection(s, image_of[k], w.value);
    } else {
      import_invalid(s, path, "detection: it has no file_name, which infer writes");
    }
    free(name);
  }
  if (taken == 0 && !tree)
    import_refuse(s, "%s: none of %lld detections has a score of at least %g (--score); nothing was written", path,
                  (long long)n, least);
  for (int i = 0; tree && i < s->tree->n; i++)
    if (s->tree->file[i].picture) import_image(s, i, "train");
  text_table_free(&names);
  free(image_of);
  free(text);
}

// ---- polygons -------------------------------------------------------------------------------------------------------

// Pixels of one mask alone.
static uint64_t difference(const Rle *a, const Rle *b) {
  const Rle both[] = {*a, *b};
  Rle common = rle_merge(both, 2, true);
  const uint64_t n = rle_area(a) + rle_area(b) - 2 * rle_area(&common);
  rle_free(&common);
  return n;
}

static uint64_t lost_pixels(const Rle *mask, const double *xy, const int *points, int parts) {
  Rle *part = xcalloc((size_t)parts + 1, sizeof *part);
  for (int p = 0; p < parts; xy += 2 * (size_t)points[p++]) part[p] = rle_from_polygon(xy, points[p], mask->h, mask->w);
  Rle all = rle_merge(part, parts, false);
  const uint64_t lost = difference(mask, &all);
  for (int p = 0; p < parts; p++) rle_free(&part[p]);
  free(part);
  rle_free(&all);
  return lost;
}

// One polygon of all: each further part is put in at a point of those before, by a line there and back, which cancels
// out. malloc'ed; *points: how many.
static double *join_parts(const Contours *c, int *points) {
  size_t all = 0;
  for (int p = 0; p < c->parts; p++) all += (size_t)c->points[p] + 2;
  double *xy = xmalloc(2 * all * sizeof *xy);
  const double *from = c->xy;
  size_t n = 0;
  for (int p = 0; p < c->parts; p++) {
    const size_t m = (size_t)c->points[p];
    size_t at = n, first = 0; // the part is put behind point `at`, and begins with its own `first`
    double nearest = INFINITY;
    const size_t step = n * m > 4000000 ? n * m / 4000000 + 1 : 1; // of huge outlines not all pairs are compared
    for (size_t i = 0; i < n; i += step)
      for (size_t k = 0; k < m; k++) {
        const double d = hypot(xy[2 * i] - from[2 * k], xy[2 * i + 1] - from[2 * k + 1]);
        if (d >= nearest) continue;
        nearest = d;
        at = i;
        first = k;
      }
    if (n == 0) {
      memcpy(xy, from, 2 * m * sizeof *xy);
      n = m;
    } else {
      memmove(xy + 2 * (at + m + 2), xy + 2 * at, 2 * (n - at) * sizeof *xy);
      double *to = xy + 2 * (at + 1); // point `at` stands before and behind the part
      for (size_t k = 0; k <= m; k++, to += 2) memcpy(to, from + 2 * ((first + k) % m), 2 * sizeof *to);
      n += m + 2;
    }
    from += 2 * m;
  }
  *points = (int)n;
  return xy;
}

// ---- labelme --------------------------------------------------------------------------------------------------------

static void write_points(FILE *f, const double *xy, int points) {
  char text[NUMBER_TEXT];
  for (int i = 0; i < 2 * points; i++)
    fprintf(f, "%s%s%s", i % 2 ? "," : i ? ",[" : "[", number_text(xy[i], text), i % 2 ? "]" : "");
}

static void write_shape(FILE *f, const char *label, const char *type, const double *xy, int points, int group,
                        bool first) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, "label", label);
  fprintf(f, "%s\n%s,\"points\":[", first ? "" : ",", r.text);
  write_points(f, xy, points);
  fprintf(f, "],\"group_id\":");
  if (group > 0) fprintf(f, "%d", group);
  fprintf(f, "%s,\"description\":\"\",\"shape_type\":\"%s\",\"flags\":{},\"mask\":null}", group > 0 ? "" : "null",
          type);
  record_free(&r);
}

static void write_labelme(FILE *f, const ImportSet *s, const ImportImage *im, uint64_t *lost) {
  int group = 0;
  bool first = true;
  fprintf(f, "{\"version\":\"5.5.0\",\"flags\":{},\"shapes\":[");
  for (int k = 0; k < im->n; k++) {
    const ImportObject *o = &im->objects[k];
    const char *label = s->categories.text[o->category];
    const double *b = o->bbox;
    if (!o->mask.runs) {
      const double corners[] = {b[0], b[1], b[0] + b[2], b[1] + b[3]};
      write_shape(f, label, "rectangle", corners, 2, 0, first);
      first = false;
      continue;
    }
    Contours c = polygons_of(&o->mask);
    const double *xy = c.xy;
    group += c.parts > 1;
    for (int p = 0; p < c.parts; xy += 2 * (size_t)c.points[p++]) {
      write_shape(f, label, "polygon", xy, c.points[p], c.parts > 1 ? group : 0, first);
      first = false;
    }
    *lost += lost_pixels(&o->mask, c.xy, c.points, c.parts);
    contours_free(&c);
  }
  Record r = {0};
  record_begin(&r);
  record_str(&r, "imagePath", path_name(im->picture));
  record_raw(&r, "imageData", "null");
  record_int(&r, "imageHeight", im->h);
  record_int(&r, "imageWidth", im->w);
  fprintf(f, "],\n%s\n", record_end(&r) + 1);
  record_free(&r);
}

// ---- files ----------------------------------------------------------------------------------------------------------

static bool write_text(const char *path, const char *text, size_t size, Err *err) {
  char *folder = path_folder(path);
  AtomicFile f;
  const bool begun = dirs_make(folder, err) && file_begin(&f, path, err);
  free(folder);
  if (!begun) return false;
  fwrite(text, 1, size, f.f);
  return file_commit(&f, err);
}

// Labelme and YOLO's programs show pictures upright.
static bool is_upright(ImportSet *s, const ImportImage *im) {
  if (im->orientation == 1 || im->orientation == 0 || im->upright) return true;
  import_broken(s, "%s: detections of the image as stored, but it is shown turned by its EXIF orientation", im->name);
  return false;
}

bool export_labelme(ImportSet *s, const char *dir, uint64_t *lost, Err *err) {
  bool ok = import_may_write(dir, err);
  import_name_pictures(s, true);
  for (int i = 0; ok && i < s->n; i++) {
    ImportImage *im = &s->images[i];
    if (!is_upright(s, im)) continue;
    char *text, *picture = xasprintf("%s/%s", dir, im->picture),
                *json = xasprintf("%.*s.json", (int)(strrchr(picture, '.') - picture), picture);
    size_t size;
    FILE *f = text_open(&text, &size);
    write_labelme(f, s, im, lost);
    text_close(f);
    ok = import_write_picture(s, im, picture, err) && write_text(json, text, size, err);
    free(text);
    free(picture);
    free(json);
  }
  return ok;
}

static void write_rows(FILE *f, const ImportImage *im, uint64_t *lost) {
  for (int k = 0; k < im->n; k++) {
    const ImportObject *o = &im->objects[k];
    const double *b = o->bbox;
    fprintf(f, "%d", o->category);
    if (o->mask.runs) {
      Contours c = polygons_of(&o->mask);
      int points;
      double *xy = join_parts(&c, &points);
      for (int i = 0; i < 2 * points; i++) fprintf(f, " %.9g", xy[i] / (i % 2 ? im->h : im->w));
      *lost += lost_pixels(&o->mask, xy, &points, 1);
      contours_free(&c);
      free(xy);
    } else {
      fprintf(f, " %.9g %.9g %.9g %.9g", (b[0] + b[2] / 2) / im->w, (b[1] + b[3] / 2) / im->h, b[2] / im->w,
              b[3] / im->h);
    }
    fputc('\n', f);
  }
}

static bool write_yaml(const ImportSet *s, const char *dir, Err *err) {
  char *text, *path = xasprintf("%s/data.yaml", dir);
  size_t size;
  FILE *f = text_open(&text, &size);
  Record r = {0};
  fprintf(f, "train: images/train\nval: images/train # set apart what is to evaluate\nnames:\n");
  for (int k = 0; k < s->categories.n; k++) { // a text of JSON is one of YAML
    record_begin(&r);
    record_str(&r, "", s->categories.text[k]);
    fprintf(f, "  %d: %s\n", k, strchr(r.text, ':') + 1);
  }
  text_close(f);
  const bool ok = write_text(path, text, size, err);
  record_free(&r);
  free(text);
  free(path);
  return ok;
}

bool export_yolo(ImportSet *s, const char *dir, uint64_t *lost, Err *err) {
  bool ok = import_may_write(dir, err);
  import_name_pictures(s, true);
  for (int i = 0; ok && i < s->n; i++) {
    ImportImage *im = &s->images[i];
    if (!is_upright(s, im)) continue;
    char *text, *picture = xasprintf("%s/images/train/%s", dir, im->picture),
                *labels = xasprintf("%s/labels/train/%.*s.txt", dir, (int)(strrchr(im->picture, '.') - im->picture),
                                    im->picture);
    size_t size;
    FILE *f = text_open(&text, &size);
    write_rows(f, im, lost);
    text_close(f);
    ok = import_write_picture(s, im, picture, err) && write_text(labels, text, size, err);
    free(text);
    free(picture);
    free(labels);
  }
  return ok && write_yaml(s, dir, err);
}
