// labelme 3 to 5: a JSON file beside or apart from each picture. https://github.com/wkentaro/labelme, label_file.py and
// utils/shape.py. imagePath is relative to the JSON file on the machine that wrote it, often with backslashes.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/images/image.h"
#include "data/import/base64.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

// The picture inside the file; -1: there is none, or it cannot be read.
static int embedded(ImportSet *s, const TreeFile *f, JsonValue v, const char *path) {
  char *text = value_text(value_of(v, "imageData")), *stem = path_stem(f->path);
  size_t size = 0;
  uint8_t *bytes = text && *text ? base64_decode(text, &size) : NULL;
  const char *last = path ? path_name(path) : "";
  const bool named = *last && strcmp(last, ".") && strcmp(last, "..");
  char *name = named ? xstrdup(last) : xasprintf("%s.%s", stem, bytes && *bytes == 0xff ? "jpg" : "png");
  const int image = bytes ? import_embedded(s, name, bytes, size, split_of(f->path, false)) : -1;
  if (image >= 0) import_note(s, f->path, "image taken from imageData, as no file has its name and size");
  free(text);
  free(stem);
  free(name);
  return image;
}

// Whether a picture has the size that its annotations give, stored or upright, or they give none.
static bool has_size(const TreeFile *f, int h, int w) {
  int own_h, own_w, orientation;
  if (h <= 0 || w <= 0 || !image_header(f->full, true, &own_h, &own_w, &orientation, NULL)) return true;
  return (own_h == h && own_w == w) || (orientation >= IMAGE_TURNED && own_h == w && own_w == h);
}

// The picture that a file is of; -1: there is none.
static int find_image(ImportSet *s, const TreeFile *f, JsonValue v) {
  char *path = value_text(value_of(v, "imagePath")), *folder = path_folder(f->path), *stem = path_stem(f->path);
  for (char *p = path; p && *p; p++)
    if (*p == '\\') *p = '/';
  const int h = import_int(value_number(value_of(v, "imageHeight"), 0)),
            w = import_int(value_number(value_of(v, "imageWidth"), 0));
  int file = -1, image = -1;
  const TreeMatch match = path && *path ? tree_picture(s->tree, path, folder, &file) : TREE_MISSING;
  const char *how = match == TREE_NAME ? "image found by the last part of imagePath" : NULL;
  bool found = match == TREE_EXACT || match == TREE_NAME;
  if (!found) {
    const TreeMatch own = tree_stem(s->tree, stem, folder, &file);
    found = own == TREE_EXACT || own == TREE_NAME;
    how = "image found by the name of its JSON file, as imagePath leads nowhere";
  }
  if (!found || !has_size(&s->tree->file[file], h, w)) image = embedded(s, f, v, path);
  if (image < 0 && found) {
    image = import_image(s, file, split_of(f->path, false));
    if (how) import_note(s, f->path, "%s", how);
  } else if (image < 0) {
    import_broken(s, "%s: its image, %s, %s; put it in this folder, or name its folder with --images", f->path,
                  path ? path : stem, match == TREE_SEVERAL ? "may be one of several files" : "is not found");
  }
  if (image >= 0) import_size(s, image, h, w);
  free(path);
  free(folder);
  free(stem);
  return image;
}

// A PNG whose first pixel is at (x, y), as a mask of the picture's size. False: it is none.
static bool read_mask(const TreeFile *f, const ImportImage *im, JsonValue v, const double *xy, Rle *mask) {
  char *text = value_text(v);
  size_t size = 0;
  uint8_t *bytes = text ? base64_decode(text, &size) : NULL;
  Samples samples;
  const bool ok = bytes && samples_decode(&samples, bytes, size, f->path, NULL);
  if (ok) {
    *mask = mask_of_samples(&samples, false, import_int(xy[0]), import_int(xy[1]), im->h, im->w);
    samples_free(&samples);
  }
  free(bytes);
  free(text);
  return ok;
}

static void read_shape(ImportSet *s, const TreeFile *f, int image, JsonValue v) {
  char *label = value_word(value_of(v, "label")), *type = value_text(value_of(v, "shape_type"));
  char *group = value_word(value_of(v, "group_id"));
  double *xy;
  const int n = value_points(value_of(v, "points"), &xy);
  const char *is = type && *type ? type : "polygon";
  const bool line = !strcmp(is, "line") || !strcmp(is, "linestrip") || !strcmp(is, "point") || !strcmp(is, "points");
  const bool circle = !strcmp(is, "circle"), rectangle = !strcmp(is, "rectangle"), mask = !strcmp(is, "mask");
  const bool polygon =
      !strcmp(is, "polygon") ||
      ((rectangle || !strcmp(is, "rotation") || !strcmp(is, "oriented_rectangle") || !strcmp(is, "quadrilateral")) &&
       n > 2);
  if (label && !*label) {
    free(label);
    label = NULL;
  }
  if (!label && s->options.class_name) label = xstrdup(s->options.class_name);
  if (!label) {
    import_invalid(s, f->path, "shape: it has no label");
  } else if (!strcmp(label, "__ignore__") || !strcmp(label, "_background_")) {
    import_drop(s, f->path, "shape: its label is %s", label);
  } else if (line) {
    import_drop(s, f->path, "shape: no area (%s)", is);
  } else if (n < 0) {
    import_invalid(s, f->path, "shape: its points are not pairs of numbers");
  } else if (polygon ? n < 3 : n < (mask ? 1 : 2)) {
    import_invalid(s, f->path, "%s: it has too few points", is);
  } else if (polygon) {
    object_polygon(import_object(s, image, label, group), xy, n);
  } else if (rectangle) {
    object_rectangle(import_object(s, image, label, group), xy[0], xy[1], xy[2], xy[3], 0, false);
  } else if (circle) {
    const double r = hypot(xy[2] - xy[0], xy[3] - xy[1]);
    object_ellipse(import_object(s, image, label, group), xy[0], xy[1], r, r, 0);
  } else if (mask) {
    Rle pixels;
    if (read_mask(f, &s->images[image], value_of(v, "mask"), xy, &pixels))
      object_mask(import_object(s, image, label, group), pixels);
    else
      import_invalid(s, f->path, "mask: not a PNG");
  } else {
    import_invalid(s, f->path, "shape: unknown shape_type %s", is);
  }
  free(xy);
  free(label);
  free(type);
  free(group);
}

static void read_file(ImportSet *s, const TreeFile *f, JsonValue v) {
  const int image = find_image(s, f, v);
  if (image < 0) return;
  for (ValueWalk w = value_walk(value_of(v, "shapes")); value_next(&w);) read_shape(s, f, image, w.value);
}

static void read_labelme(ImportSet *s) { json_read_each(s, JSON_LABELME, read_file); }

static int detect_labelme(Tree *t) { return json_kinds(t, JSON_LABELME); }

const ImportFormat import_labelme = {"labelme", "labelme JSON file", detect_labelme, read_labelme};
