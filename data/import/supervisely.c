// Supervisely: meta.json with the classes, and in each data set img/NAME and ann/NAME.json.
// https://docs.supervisely.com/customization-and-integration/00_ann_format_navi
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/alloc.h"
#include "data/images/samples.h"
#include "data/import/base64.h"
#include "data/import/formats.h"
#include "data/import/masks.h"
#include "data/import/samples_file.h"

// ---- shapes ---------------------------------------------------------------------------------------------------------

// Inflates up to a limit; malloc'ed, NULL: it is no such stream.
static uint8_t *inflate_all(const uint8_t *bytes, size_t size, size_t *length) {
  enum { MOST = 1 << 28 };
  z_stream z = {.next_in = (Bytef *)bytes, .avail_in = (uInt)MIN(size, MOST)};
  uint8_t *out = NULL;
  size_t cap = 0;
  int status = inflateInit(&z);
  *length = 0;
  while (status == Z_OK && *length < MOST) {
    array_reserve((void **)&out, &cap, *length + 4096, 1);
    z.next_out = out + *length;
    z.avail_out = (uInt)MIN(cap - *length, MOST);
    status = inflate(&z, Z_NO_FLUSH);
    *length = (size_t)(z.next_out - out);
  }
  inflateEnd(&z);
  if (status == Z_STREAM_END) return out;
  free(out);
  return NULL;
}

// A PNG, compressed once more, whose first pixel is at `origin`.
static bool take_bitmap(const TreeFile *f, const ImportImage *im, JsonValue bitmap, Rle *mask) {
  char *text = value_text(value_of(bitmap, "data"));
  double origin[2];
  size_t size, length = 0;
  uint8_t *packed = text ? base64_decode(text, &size) : NULL, *png = packed ? inflate_all(packed, size, &length) : NULL;
  Samples samples;
  const bool ok = png && value_numbers(value_of(bitmap, "origin"), origin, 2) == 2 &&
                  samples_decode(&samples, png, length, f->path, NULL);
  if (ok) {
    *mask = mask_of_samples(&samples, true, import_int(origin[0]), import_int(origin[1]), im->h, im->w);
    samples_free(&samples);
  }
  free(text);
  free(packed);
  free(png);
  return ok;
}

// An outline, and holes in it.
static void take_polygon(ImportSet *s, const TreeFile *f, int image, const char *class, JsonValue points) {
  double *xy, *hole;
  int n = value_points(value_of(points, "exterior"), &xy), parts = 1;
  const JsonValue interior = value_of(points, "interior");
  if (n < 3) {
    import_invalid(s, f->path, "polygon: fewer than 3 points");
    free(xy);
    return;
  }
  int *of = xmalloc(sizeof *of), all = n;
  of[0] = n;
  for (ValueWalk w = value_walk(interior); value_next(&w);) {
    const int m = value_points(w.value, &hole);
    if (m >= 3 && all + m < INT32_MAX / 4) {
      xy = xrealloc(xy, 2 * (size_t)(all + m) * sizeof *xy);
      memcpy(xy + 2 * (size_t)all, hole, 2 * (size_t)m * sizeof *xy);
      of = xrealloc(of, (size_t)(parts + 1) * sizeof *of);
      of[parts++] = m;
      all += m;
    }
    free(hole);
  }
  const int h = s->images[image].h, w = s->images[image].w;
  ImportObject *o = import_object(s, image, class, NULL);
  if (parts > 1)
    object_polygon_with_holes(o, xy, of, parts, h, w);
  else
    object_polygon(o, xy, n);
  free(xy);
  free(of);
}

static void take_object(ImportSet *s, const TreeFile *f, int image, JsonValue v) {
  char *class = value_text(value_of(v, "classTitle")), *type = value_text(value_of(v, "geometryType"));
  if (!type) type = value_text(value_of(v, "type")); // of older projects
  const JsonValue bitmap = value_of(v, "bitmap"), points = value_of(v, "points");
  const char *is = type ? type : value_type(bitmap) == JSON_OBJECT ? "bitmap" : "polygon";
  double *xy = NULL;
  Rle mask;
  if (!class && s->options.class_name) class = xstrdup(s->options.class_name);
  if (!class) {
    import_invalid(s, f->path, "object: it has no classTitle");
  } else if (!strcmp(is, "bitmap") || !strcmp(is, "alpha_mask")) {
    if (take_bitmap(f, &s->images[image], bitmap.begin ? bitmap : value_of(v, "alpha_mask"), &mask))
      object_mask(import_object(s, image, class, NULL), mask);
    else
      import_invalid(s, f->path, "bitmap: it cannot be decoded");
  } else if (!strcmp(is, "polygon")) {
    take_polygon(s, f, image, class, points);
  } else if (!strcmp(is, "rectangle")) {
    if (value_points(value_of(points, "exterior"), &xy) == 2)
      object_box(import_object(s, image, class, NULL), xy[0], xy[1], xy[2], xy[3]);
    else
      import_invalid(s, f->path, "rectangle: it has not two corners");
    free(xy);
  } else {
    import_drop(s, f->path, "shape: no area (%s)", is);
  }
  free(class);
  free(type);
}

// ---- files ----------------------------------------------------------------------------------------------------------

// The classes in the order of meta.json, if there is one.
static void read_classes(ImportSet *s) {
  const int file = tree_named(s->tree, "meta.json");
  size_t size;
  char *text = file >= 0 ? import_read(s, file, &size) : NULL;
  JsonValue v;
  if (text && value_read(&v, "meta.json", text, size, NULL))
    for (ValueWalk w = value_walk(value_of(v, "classes")); value_next(&w);) {
      char *title = value_text(value_of(w.value, "title"));
      if (title) import_category(s, title);
      free(title);
      s->ordered = true;
    }
  free(text);
}

// ann/NAME.json is of img/NAME, or, as older exports have it, of a picture of that name without its ending.
static TreeMatch find_picture(const Tree *t, const TreeFile *f, int *file) {
  char *stem = path_stem(f->path), *folder = path_folder(f->path);
  char *above = path_folder(folder), *name = xasprintf("%s%simg/%s", above, *above ? "/" : "", stem);
  TreeMatch match = tree_picture(t, name, above, file);
  if (!match) match = tree_stem(t, name, above, file);
  free(stem);
  free(folder);
  free(above);
  free(name);
  return match;
}

static void read_file(ImportSet *s, const TreeFile *f, JsonValue v) {
  int file, image = -1;
  const TreeMatch match = find_picture(s->tree, f, &file);
  if (match == TREE_EXACT || match == TREE_NAME)
    image = import_image(s, file, split_of(f->path, false));
  else
    import_broken(s, "%s: its image %s; put it in img/, or name its folder with --images", f->path,
                  match == TREE_SEVERAL ? "may be one of several files" : "is not found");
  if (image < 0) return;
  const JsonValue own = value_of(v, "size");
  import_size(s, image, import_int(value_number(value_of(own, "height"), 0)),
              import_int(value_number(value_of(own, "width"), 0)));
  for (ValueWalk w = value_walk(value_of(v, "objects")); value_next(&w);) take_object(s, f, image, w.value);
}

static void read_supervisely(ImportSet *s) {
  read_classes(s);
  json_read_each(s, JSON_SUPERVISELY, read_file);
}

static int detect_supervisely(Tree *t) { return json_kinds(t, JSON_SUPERVISELY); }

const ImportFormat import_supervisely = {"supervisely", "Supervisely JSON file", detect_supervisely, read_supervisely};
