#include "data/batches/dataset.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/output.h"

// ---- images and their objects ---------------------------------------------------------------------------------------

static const char *other_path(const Dataset *d, int i) { return d->file ? d->file[d->image[i]] : NULL; }

int dataset_empty_left_out(const Dataset *d) {
  int n = d->without_objects;
  for (int i = 0; i < d->num_images; i++) n -= d->first_object[i] == d->first_object[i + 1];
  return n;
}

size_t dataset_path_size(const Dataset *d, int i) {
  if (other_path(d, i)) return strlen(other_path(d, i)) + 1;
  return strlen(d->folder) + strlen(d->coco.images[d->image[i]].file_name) + sizeof "/";
}

char *dataset_path_to(const Dataset *d, int i, char *path) {
  if (other_path(d, i))
    strcpy(path, other_path(d, i));
  else
    sprintf(path, "%s/%s", d->folder, d->coco.images[d->image[i]].file_name);
  return path;
}

char *dataset_path(const Dataset *d, int i) { return dataset_path_to(d, i, xmalloc(dataset_path_size(d, i))); }

Rle dataset_mask_in(Scratch *scratch, const Dataset *d, int i, const Object *o) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  Rle mask;
  if (coco_ann_rle_in(scratch, &d->coco, &d->coco.anns[o->ann], im->h, im->w, &mask)) return mask;
  double bbox[4] = {o->box[0], o->box[1], o->box[2] - o->box[0] + d->box_extra, o->box[3] - o->box[1] + d->box_extra};
  return rle_from_bbox_in(scratch, bbox, im->h, im->w);
}

bool dataset_has_mask(const Dataset *d, int i, const Object *o) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  return coco_ann_has_mask(&d->coco.anns[o->ann], im->h, im->w);
}

int dataset_polygons(const Dataset *d, const Object *o) {
  const CocoAnn *a = &d->coco.anns[o->ann];
  return d->polygons && a->type == SEG_POLYGONS ? a->parts : 0;
}

Size dataset_size(const Dataset *d, int i) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  const int by = d->shrink ? d->shrink[d->image[i]] : 1;
  return (Size){im->h / by, im->w / by};
}

void dataset_pixels(const Dataset *d, int i, uint8_t *rgb) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  const size_t pixels = (size_t)im->h * im->w;
  const uint8_t *gray = d->gray + (size_t)d->image[i] * pixels;
  for (size_t p = 0; p < pixels; p++, rgb += 3) rgb[0] = rgb[1] = rgb[2] = gray[p];
}

bool dataset_is_resized(const CocoImage *im, int h, int w) {
  if (im->h <= 0 || im->w <= 0 || h <= 0 || w <= 0 || (im->h == h && im->w == w)) return false;
  // Each side of the file may be rounded by a pixel.
  const double by = (double)w / im->w, side = by * im->h;
  return fabs(side - h) <= 1 + by;
}

bool dataset_fits(const Dataset *d, int i, const char *path, int h, int w, int orientation, Err *err) {
  const CocoImage *want = &d->coco.images[d->image[i]];
  const bool exchanges = orientation >= IMAGE_TURNED, exchanged = exchanges && d->upright;
  const int read_h = exchanged ? w : h, read_w = exchanged ? h : w;
  if (read_h == want->h && read_w == want->w) return true;
  const char *hint = dataset_is_resized(want, read_h, read_w)               ? "; it was resized after annotation"
                     : !exchanges || read_h != want->w || read_w != want->h ? ""
                     : d->upright ? "; it would match without the rotation by its EXIF orientation: --exif no"
                                  : "; it would match if rotated by its EXIF orientation: --exif yes";
  return err_set(err, "%s: the image has %d x %d pixels, but %d x %d in %s%s", path, read_w, read_h, want->w, want->h,
                 d->coco.path, hint);
}

static bool is_image_file(const char *path, Err *err) {
  return path_is_file(path) || err_set(err, "%s: no such file, or not a regular file", path);
}

bool dataset_header(const Dataset *d, int i, int *orientation, Err *err) {
  int h, w;
  char *path = dataset_path(d, i);
  const bool ok = is_image_file(path, err) && image_header(path, d->upright, &h, &w, orientation, err) &&
                  dataset_fits(d, i, path, h, w, *orientation, err);
  free(path);
  return ok;
}

bool dataset_image(const Dataset *d, int i, Image *im, Err *err) {
  const CocoImage *want = &d->coco.images[d->image[i]];
  if (d->gray) {
    *im = image_alloc(want->h, want->w);
    dataset_pixels(d, i, im->rgb);
    return true;
  }
  char *path = dataset_path(d, i);
  *im = (Image){0};
  bool ok = is_image_file(path, err) && image_load_as(im, path, d->upright, d->range, err);
  int h, w, orientation;
  if (ok && (im->h != want->h || im->w != want->w)) {
    image_free(im);
    if (image_header(path, true, &h, &w, &orientation, err) && dataset_fits(d, i, path, h, w, orientation, err))
      err_set(err, "%s: the file changed while it was read", path);
    ok = false;
  }
  free(path);
  return ok;
}

Rle dataset_mask(const Dataset *d, int i, const Object *o) {
  Scratch scratch = {0};
  Rle shared = dataset_mask_in(&scratch, d, i, o), mask = rle_copy(&shared);
  scratch_free(&scratch);
  return mask;
}

// ---- what is usable -------------------------------------------------------------------------------------------------

bool dataset_leave_out(Dataset *d, int image, bool strict, const Err *bad, Err *err) {
  if (strict) return err_set(err, "%s", bad->msg);
  bad_images_add(d->bad, &d->coco.images[image], "left out", bad->msg);
  d->left_out[image] = true;
  if (!d->why) d->why = xcalloc((size_t)d->coco.num_images, sizeof *d->why);
  d->why[image] = xstrdup(bad->msg);
  d->bad_images++;
  return true;
}

// ---- categories -----------------------------------------------------------------------------------------------------

CategoryList dataset_categories(const Dataset *d) {
  return (CategoryList){.of = d->coco.path, .item = d->coco.categories, .n = d->coco.num_categories};
}

bool dataset_take_categories(Dataset *d, const CategoryList *known, Err *err) {
  Coco *c = &d->coco;
  const CategoryList own = dataset_categories(d);
  int *objects = xcalloc((size_t)own.n, sizeof *objects), *to = xcalloc((size_t)own.n, sizeof *to);
  for (int a = 0; a < c->num_anns; a++)
    if (c->anns[a].category >= 0) objects[c->anns[a].category]++;
  const bool ok = coco_has_categories(c, err) && categories_match(known, &own, objects, to, &d->notes, err);
  if (ok && !categories_in_place(known, &own, to)) {
    const int background = d->classes - own.n;
    for (int o = 0; o < d->first_object[d->num_images]; o++)
      d->object[o].label = to[d->object[o].label - background] + background;
    coco_take_categories(c, known, to);
    d->classes = known->n + background;
  }
  free(objects);
  free(to);
  return ok;
}

void dataset_tell_bad(const Dataset *d, int i, const char *how, const char *reason) {
  if (!atomic_exchange(&d->reported[i], 1)) bad_images_add(d->bad, &d->coco.images[d->image[i]], how, reason);
}

void dataset_close(Dataset *d) {
  for (int i = 0; d->why && i < d->coco.num_images; i++) free(d->why[i]);
  free(d->why);
  for (int i = 0; d->file && i < d->coco.num_images; i++) free(d->file[i]);
  free(d->file);
  free(d->by_last);
  free(d->another);
  free(d->layout);
  if (d->holdout) holdout_free(d->holdout);
  free(d->holdout);
  bad_images_close(d->bad);
  coco_free(&d->coco);
  notes_free(&d->notes);
  free(d->folder);
  free(d->left_out);
  free(d->absent);
  free(d->file_bytes);
  free(d->image);
  free(d->image_canvas);
  free(d->repeat);
  free(d->object);
  free(d->first_object);
  free(d->reported);
  free(d->shrink);
  free(d->gray);
  *d = (Dataset){0};
}

int dataset_bad_images(const Dataset *d) {
  int bad = d->bad_images;
  for (int i = 0; i < d->num_images; i++) bad += atomic_load(&d->reported[i]);
  return bad;
}

void dataset_print_notes(const Dataset *d, FILE *out) {
  for (int i = 0; i < d->notes.n; i++) line_print(out, "note: %s", d->notes.line[i]);
}

void dataset_print(const Dataset *d, FILE *out) {
  d->type->print(d, out);
  dataset_print_notes(d, out);
}
