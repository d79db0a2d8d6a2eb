#include "classification/data/shapes_classes.h"
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "classification/data/idx.h"
#include "data/images/png.h"
#include "data/shapes/shapes_folder.h"

// One split while it is generated. Image i is of class i % SHAPE_CLASSES.
typedef struct ShapesSet {
  const ShapesConfig *config;
  const char *name;
  int count, done, before; // images of this split, of these written; images of earlier splits
  Idx images;              // SHAPES_IDX; bytes NULL: folders
  int failed;              // the first image that could not be written, or count
  Err err;                 // why
} ShapesSet;

static char *picture_path(const ShapesSet *s, int i) {
  return xasprintf("%s/%s/%s/%06d.png", s->config->dir, s->name, shape_names[i % SHAPE_CLASSES], i + 1);
}

// ITU-R 601, as Pillow's convert("L") rounds it.
static void take_brightness(const Image *im, uint8_t *gray) {
  const uint8_t *p = im->rgb;
  for (int i = 0; i < im->h * im->w; i++, p += 3)
    gray[i] = (uint8_t)((19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 0x8000) >> 16);
}

static bool write_single(ShapesSet *s, int i, uint64_t key, Err *err) {
  const int size = s->config->size;
  Image im = shapes_single(i % SHAPE_CLASSES, size, key);
  bool ok = true;
  if (s->images.bytes) {
    take_brightness(&im, s->images.bytes + (size_t)i * size * size);
  } else {
    char *path = picture_path(s, i);
    ok = png_write(path, &im, PNG_FAST, err);
    free(path);
  }
  image_free(&im);
  return ok;
}

static bool draw_set(ShapesSet *s, Err *err) {
  const ShapesConfig *c = s->config;
  const uint64_t split_key = rng_key(rng_key(RNG_SHAPES, c->seed), (uint64_t)s->name[0]);
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < s->count; i++) {
    Err why;
    bool ok = write_single(s, i, rng_key(split_key, (uint64_t)i), &why);
#pragma omp critical
    {
      if (!ok && i < s->failed) {
        s->failed = i;
        s->err = why;
      }
      s->done++;
      if (c->progress) c->progress(s->before + s->done, c->train + c->val);
    }
  }
  return s->failed == s->count || err_set(err, "%s", s->err.msg);
}

static bool save_labels(const ShapesSet *s, const char *path, Err *err) {
  Idx labels = {s->count, 1, 1, xmalloc((size_t)s->count)};
  for (int i = 0; i < s->count; i++) labels.bytes[i] = (uint8_t)(i % SHAPE_CLASSES);
  bool ok = idx_save(&labels, path, IDX_LABELS, err);
  idx_free(&labels);
  return ok;
}

static bool save_idx(const ShapesSet *s, const char *split, Err *err) {
  char *images = xasprintf("%s/%s-images-idx3-ubyte.gz", s->config->dir, split);
  char *labels = xasprintf("%s/%s-labels-idx1-ubyte.gz", s->config->dir, split);
  bool ok = idx_save(&s->images, images, IDX_IMAGES, err) && save_labels(s, labels, err);
  free(images);
  free(labels);
  return ok;
}

// Removes the images of a larger data set that was written here before.
static void remove_stale(const ShapesSet *s) {
  for (int i = s->count, gone = 0; gone == 0; i++) {
    char *path = picture_path(s, i);
    gone = unlink(path);
    free(path);
  }
}

static bool write_set(const ShapesConfig *c, ShapesLayout layout, const char *name, int count, int before, Err *err) {
  ShapesSet s = {.config = c, .name = name, .count = count, .before = before, .failed = count};
  if (layout == SHAPES_IDX) s.images = (Idx){count, c->size, c->size, xmalloc((size_t)count * c->size * c->size)};
  bool ok = draw_set(&s, err);
  if (ok && layout == SHAPES_IDX) ok = save_idx(&s, name[0] == 't' ? "train" : "t10k", err);
  if (ok && layout == SHAPES_FOLDERS) remove_stale(&s);
  idx_free(&s.images);
  return ok;
}

static bool write_names(const char *dir, Err *err) {
  AtomicFile out;
  char *path = xasprintf("%s/classes.txt", dir);
  bool ok = file_begin(&out, path, err);
  free(path);
  for (int i = 0; ok && i < SHAPE_CLASSES; i++) fprintf(out.f, "%s\n", shape_names[i]);
  return ok && file_commit(&out, err);
}

static bool take_folders(const ShapesConfig *c, Err *err) {
  char *part[2 * SHAPE_CLASSES];
  for (int i = 0; i < COUNT(part); i++)
    part[i] = xasprintf("%s/%s", i < SHAPE_CLASSES ? "train" : "val", shape_names[i % SHAPE_CLASSES]);
  bool ok = shapes_folder_take(c, "shapes-folders.json", (const char *const *)part, COUNT(part), err);
  for (int i = 0; i < COUNT(part); i++) free(part[i]);
  return ok;
}

bool shapes_write_classes(const ShapesConfig *c, ShapesLayout layout, Err *err) {
  static const char *const itself[] = {"."};
  bool ok = layout == SHAPES_FOLDERS
                ? take_folders(c, err)
                : shapes_folder_take(c, "shapes-idx.json", itself, 1, err) && write_names(c->dir, err);
  return ok && write_set(c, layout, "train", c->train, 0, err) && write_set(c, layout, "val", c->val, c->train, err);
}
