// Writes scenes to files: PNG images and COCO annotations.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/rng.h"
#include "base/text.h"
#include "data/coco/contour.h"
#include "data/images/png.h"
#include "data/shapes/shapes.h"
#include "data/shapes/shapes_folder.h"

typedef enum Encoding { ENCODE_POLYGONS, ENCODE_COUNTS, ENCODE_STRING } Encoding;

static void print_polygons(FILE *f, const Contours *c) {
  const double *xy = c->xy;
  fputc('[', f);
  for (int part = 0; part < c->parts; part++) {
    fputs(part ? ",[" : "[", f);
    for (int i = 0; i < 2 * c->points[part]; i++) fprintf(f, i ? ",%.0f" : "%.0f", *xy++);
    fputc(']', f);
  }
  fputc(']', f);
}

static void print_rle(FILE *f, const Rle *r, Encoding encoding) {
  fprintf(f, "{\"size\":[%d,%d],\"counts\":", r->h, r->w);
  if (encoding == ENCODE_COUNTS) {
    for (int i = 0; i < r->n; i++) fprintf(f, "%c%u", i ? ',' : '[', r->runs[i]);
    fputs("]}", f);
    return;
  }
  char *text = rle_to_string(r);
  fputc('"', f);
  for (const char *c = text; *c; c++) fprintf(f, *c == '\\' ? "\\%c" : "%c", *c);
  fputs("\"}", f);
  free(text);
}

// The members of an annotation after its id, which is known only when all images are done. Caller frees.
static char *annotation_text(const ShapeInstance *s, int image_id, uint64_t choice) {
  const Rle *r = &s->mask;
  uint8_t *pixels = xmalloc((size_t)r->h * r->w);
  rle_to_bytes(r, pixels);
  Contours outline;
  bool whole = contours_trace(&outline, pixels, r->h, r->w); // false: the mask has a hole
  Encoding encoding = choice % 8 == 0 ? ENCODE_COUNTS : choice % 8 == 1 ? ENCODE_STRING : ENCODE_POLYGONS;
  if (!whole && encoding == ENCODE_POLYGONS) encoding = choice & 8 ? ENCODE_COUNTS : ENCODE_STRING;
  if (s->crowd) encoding = ENCODE_COUNTS; // as crowds are in COCO

  char *text = NULL;
  size_t size;
  FILE *f = text_open(&text, &size);
  double box[4];
  rle_bbox(r, box);
  fprintf(f, "\"image_id\":%d,\"category_id\":%d,\"iscrowd\":%d,\"area\":%llu,\"bbox\":[%.0f,%.0f,%.0f,%.0f],",
          image_id, s->category + 1, s->crowd, (unsigned long long)rle_area(r), box[0], box[1], box[2], box[3]);
  fputs("\"segmentation\":", f);
  if (encoding == ENCODE_POLYGONS)
    print_polygons(f, &outline);
  else
    print_rle(f, r, encoding);
  text_close(f);
  if (whole) contours_free(&outline);
  free(pixels);
  return text;
}

// One split under construction: each image's annotations.
typedef struct ShapesSplit {
  const ShapesConfig *config;
  const char *name;
  int count, done;
  int *num_anns;                       // [count]
  char *(*anns)[SHAPES_MAX_INSTANCES]; // [count]
  int failed;                          // the first image that could not be written, or count
  Err err;                             // why
} ShapesSplit;

static char *image_path(const ShapesSplit *s, int image_id) {
  return xasprintf("%s/%s/%06d.png", s->config->dir, s->name, image_id);
}

static bool write_scene(ShapesSplit *s, int i, uint64_t key, Err *err) {
  int image_id = i + 1;
  ShapeScene scene;
  shapes_scene(&scene, s->config->size, key);
  char *path = image_path(s, image_id);
  bool ok = png_write(path, &scene.image, PNG_FAST, err);
  s->num_anns[i] = scene.n;
  for (int k = 0; k < scene.n; k++)
    s->anns[i][k] = annotation_text(&scene.items[k], image_id, rng_u32(rng_key(key, RNG_SHAPES), (uint64_t)k));
  shapes_scene_free(&scene);
  free(path);
  return ok;
}

static bool write_annotations(const ShapesSplit *s, Err *err) {
  AtomicFile out;
  char *path = xasprintf("%s/annotations/instances_%s.json", s->config->dir, s->name);
  bool ok = file_begin(&out, path, err);
  free(path);
  if (!ok) return false;
  FILE *f = out.f;
  fprintf(f, "{\"info\":{\"description\":\"made by tools/shapes\",\"seed\":%llu},\n\"categories\":[",
          (unsigned long long)s->config->seed);
  for (int i = 0; i < SHAPE_CLASSES; i++)
    fprintf(f, "%s\n{\"id\":%d,\"name\":\"%s\",\"supercategory\":\"shape\"}", i ? "," : "", i + 1, shape_names[i]);
  fputs("],\n\"images\":[", f);
  for (int i = 0; i < s->count; i++)
    fprintf(f, "%s\n{\"id\":%d,\"file_name\":\"%06d.png\",\"height\":%d,\"width\":%d}", i ? "," : "", i + 1, i + 1,
            s->config->size, s->config->size);
  fputs("],\n\"annotations\":[", f);
  int id = 0;
  for (int i = 0; i < s->count; i++)
    for (int k = 0; k < s->num_anns[i]; k++, id++)
      fprintf(f, "%s\n{\"id\":%d,%s}", id ? "," : "", id + 1, s->anns[i][k]);
  fputs("]}\n", f);
  return file_commit(&out, err);
}

// Generates one split; `before` of `total` images belong to earlier splits.
static bool write_split(const ShapesConfig *config, const char *name, int count, int before, int total, Err *err) {
  ShapesSplit s = {.config = config, .name = name, .count = count, .failed = count};
  s.num_anns = xcalloc((size_t)count, sizeof *s.num_anns);
  s.anns = xcalloc((size_t)count, sizeof *s.anns);
  uint64_t split_key = rng_key(rng_key(RNG_SHAPES, config->seed), (uint64_t)name[0]);
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < count; i++) {
    Err why;
    bool ok = write_scene(&s, i, rng_key(split_key, (uint64_t)i), &why);
#pragma omp critical
    {
      if (!ok && i < s.failed) {
        s.failed = i;
        s.err = why;
      }
      s.done++;
      if (config->progress) config->progress(before + s.done, total);
    }
  }
  bool ok = s.failed == count || err_set(err, "%s", s.err.msg);
  if (ok) ok = write_annotations(&s, err);
  for (int stale = count + 1, gone = 0; ok && gone == 0; stale++) { // of a larger data set that was here before
    char *path = image_path(&s, stale);
    gone = unlink(path);
    free(path);
  }
  for (int i = 0; i < count; i++)
    for (int k = 0; k < s.num_anns[i]; k++) free(s.anns[i][k]);
  free(s.num_anns);
  free(s.anns);
  return ok;
}

bool shapes_write(const ShapesConfig *c, Err *err) {
  static const char *const parts[] = {"annotations", "train", "val"};
  if (!shapes_folder_take(c, "shapes.json", parts, COUNT(parts), err)) return false;
  for (int i = 1; i < COUNT(parts); i++) { // annotations are written last: if they exist, all images do
    char *path = xasprintf("%s/annotations/instances_%s.json", c->dir, parts[i]);
    unlink(path);
    free(path);
  }
  int total = c->train + c->val;
  return write_split(c, "train", c->train, 0, total, err) && write_split(c, "val", c->val, c->train, total, err);
}
