#include "data/batches/dataset.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/output.h"
#include "base/parallel.h"
#include "data/batches/bitmap.h"
#include "data/coco/coco_index.h"

static float clip(float v, float high) { return v < 0 ? 0 : v > high ? high : v; } // NaN stays NaN

static void box_of_mask(const Coco *c, const CocoAnn *a, const CocoImage *im, double bbox[4]) {
  Rle mask;
  bbox[0] = bbox[1] = bbox[2] = bbox[3] = 0;
  if (!coco_ann_rle(c, a, im->h, im->w, &mask)) return;
  rle_bbox(&mask, bbox);
  rle_free(&mask);
}

// The annotation as an object, or false, counted, when it is no training target.
static bool object_of(Dataset *d, const CocoImage *im, int ann, Object *o) {
  const CocoAnn *a = &d->coco.anns[ann];
  if (a->crowd) {
    d->crowds++;
    return false;
  }
  if (a->category < 0) {
    d->unlabelled++;
    return false;
  }
  double bbox[4] = {a->bbox[0], a->bbox[1], a->bbox[2], a->bbox[3]};
  if (!a->has_bbox) box_of_mask(&d->coco, a, im, bbox);
  // x + w in float32, as the reference adds them
  float x = (float)bbox[0], y = (float)bbox[1], w = (float)bbox[2], h = (float)bbox[3];
  float right = (float)im->w - d->box_extra, bottom = (float)im->h - d->box_extra;
  float x1 = clip(x, right), x2 = clip(x + fmaxf(w - d->box_extra, 0), right);
  float y1 = clip(y, bottom), y2 = clip(y + fmaxf(h - d->box_extra, 0), bottom);
  if (!(x2 > x1 && y2 > y1)) { // negated so that NaN is dropped too
    d->dropped_boxes++;
    return false;
  }
  *o = (Object){ann, a->category + 1, {x1, y1, x2, y2}};
  d->box_masks += !coco_ann_has_mask(a, im->h, im->w);
  return true;
}

size_t dataset_path_size(const Dataset *d, int i) {
  return strlen(d->folder) + strlen(d->coco.images[d->image[i]].file_name) + sizeof "/";
}

char *dataset_path_to(const Dataset *d, int i, char *path) {
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

int dataset_polygons(const Dataset *d, const Object *o) {
  const CocoAnn *a = &d->coco.anns[o->ann];
  return d->polygons && a->kind == SEG_POLYGONS ? a->parts : 0;
}

Size dataset_size(const Dataset *d, int i) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  const int by = d->shrink ? d->shrink[d->image[i]] : 1;
  return (Size){im->h / by, im->w / by};
}

void dataset_pixels(const Dataset *d, int i, uint8_t *rgb) {
  const size_t pixels = (size_t)d->idx.h * d->idx.w;
  const uint8_t *gray = d->idx.bytes + (size_t)d->image[i] * pixels;
  for (size_t p = 0; p < pixels; p++, rgb += 3) rgb[0] = rgb[1] = rgb[2] = gray[p];
}

bool dataset_image(const Dataset *d, int i, Image *im, Err *err) {
  const CocoImage *want = &d->coco.images[d->image[i]];
  if (d->idx.n > 0) {
    *im = image_alloc(want->h, want->w);
    dataset_pixels(d, i, im->rgb);
    return true;
  }
  char *path = dataset_path(d, i);
  *im = (Image){0};
  bool ok = path_is_file(path) ? d->upright ? image_load_upright(im, path, err) : image_load(im, path, err)
                               : err_set(err, "%s: no such file, or not a regular one", path);
  if (ok && (im->h != want->h || im->w != want->w)) {
    ok = err_set(err, "%s: %d x %d pixels, but %d x %d in %s", path, im->w, im->h, want->w, want->h, d->coco.path);
    image_free(im);
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

typedef struct Extent {
  double x1, y1, x2, y2;
} Extent;

static void extend(Extent *e, double x, double y) {
  *e = (Extent){fmin(e->x1, x), fmin(e->y1, y), fmax(e->x2, x), fmax(e->y2, y)};
}

// Of polygons: of each the number of points, then their coordinates.
static int64_t polygon_words(const Coco *c, const CocoAnn *a) {
  int64_t words = 0;
  for (int p = a->first_part; p < a->first_part + a->parts; p++) words += 1 + 2 * (int64_t)c->part_points[p];
  return words;
}

// Upper bound of the words of an object's bitmap. Rasterising every mask of a large data set before the first step
// would take minutes; the extent of the polygons, and of the box that may have to stand in for them, is known at once.
static int64_t most_words(const Coco *c, const CocoImage *im, const Object *o) {
  const CocoAnn *a = &c->anns[o->ann];
  Extent e = {o->box[0], o->box[1], o->box[2], o->box[3]};
  if (a->kind == SEG_RLE) {
    double b[4];
    Rle runs = coco_ann_runs(c, a);
    rle_bbox(&runs, b);
    extend(&e, b[0], b[1]);
    extend(&e, b[0] + b[2], b[1] + b[3]);
  }
  if (a->kind == SEG_POLYGONS) {
    extend(&e, a->extent[0], a->extent[1]);
    extend(&e, a->extent[2], a->extent[3]);
  }
  // A pixel on every side for the rounding of polygons to fifths of a pixel. Outside the image there is no mask.
  int x1 = (int)fmax(floor(e.x1) - 1, 0), x2 = (int)fmin(ceil(e.x2) + 1, im->w);
  int y1 = (int)fmax(floor(e.y1) - 1, 0), y2 = (int)fmin(ceil(e.y2) + 1, im->h);
  return bitmap_words(y2 - y1, x2 - x1);
}

// Makes sure of the image's size, which comes from the file where the annotations lack it.
static bool find_size(const Dataset *d, CocoImage *im, Err *err) {
  if (im->h <= 0 || im->w <= 0) {
    char *path = xasprintf("%s/%s", d->folder, im->file_name);
    bool ok = image_info(path, d->upright, &im->h, &im->w, err);
    free(path);
    if (!ok) return false;
  }
  if ((int64_t)im->h * im->w > IMAGE_MAX_PIXELS)
    return err_set(err, "%s: image %lld (%s) cannot be %d x %d pixels, at most %d in all; correct its width and height",
                   d->coco.path, (long long)im->id, im->file_name, im->w, im->h, IMAGE_MAX_PIXELS);
  return true;
}

static bool nothing_usable(const Dataset *d, Err *err) {
  const Coco *c = &d->coco;
  return err_set(
      err,
      "%s: no usable image among %d, %d bad; of %d annotations %d are crowds, %d have a box without area, %d "
      "an unknown category",
      c->path, c->num_images, d->bad_images, c->num_anns, d->crowds, d->dropped_boxes, d->unlabelled);
}

bool dataset_leave_out(Dataset *d, int image, bool strict, const Err *bad, Err *err) {
  if (strict) return err_set(err, "%s", bad->msg);
  fprintf(stderr, "bad image left out: %s\n", bad->msg);
  d->left_out[image] = true;
  d->bad_images++;
  return true;
}

// Lists the usable images with their objects.
static bool list_images(Dataset *d, const DatasetOptions *options, Err *err) {
  const Coco *c = &d->coco;
  d->image = xmalloc((size_t)c->num_images * sizeof *d->image);
  d->first_object = xmalloc(((size_t)c->num_images + 1) * sizeof *d->first_object);
  d->object = xmalloc((size_t)c->num_anns * sizeof *d->object);
  d->left_out = xcalloc((size_t)c->num_images, sizeof *d->left_out);
  d->absent = xcalloc((size_t)c->num_images, sizeof *d->absent);
  d->first_object[0] = 0;
  for (int i = 0, objects = 0; i < c->num_images && !(options->limit > 0 && d->num_images == options->limit); i++) {
    CocoImage *im = &c->images[i];
    if (!im->file_name) return err_set(err, "%s: image %lld has no file_name", c->path, (long long)im->id);
    Err bad;
    if (!find_size(d, im, &bad)) {
      if (!dataset_leave_out(d, i, options->strict, &bad, err)) return false;
      continue;
    }
    const int before = objects;
    for (int a = im->first_ann; a < im->first_ann + im->anns; a++) objects += object_of(d, im, a, &d->object[objects]);
    d->without_objects += objects == before;
    if (objects == before && !options->keep_empty) continue;
    d->image[d->num_images++] = i;
    d->first_object[d->num_images] = objects;
  }
  return d->num_images > 0 || nothing_usable(d, err);
}

static void look_for_file(void *of, int i, int thread) {
  (void)thread;
  Dataset *d = of;
  char *path = dataset_path(d, i);
  d->absent[d->image[i]] = !path_is_file(path);
  free(path);
}

// Of a file_name with folders, the name alone where the split's folder holds a file of that name; NULL: it does not.
static const char *bare_name(const Dataset *d, int i) {
  const char *name = d->coco.images[d->image[i]].file_name, *at = name + strlen(name);
  while (at > name && at[-1] != '/' && at[-1] != '\\') at--; // Windows' too
  char *path = xasprintf("%s/%s", d->folder, at);
  const bool there = at > name && path_is_file(path);
  free(path);
  return there ? at : NULL;
}

// A few files that are not there are bad images like others; where most are, the copy broke off or this is another
// folder, which should show before the first step.
static bool check_files(Dataset *d, bool strict, Err *err) {
  int first = d->num_images;
  parallel_for(d->num_images, parallel_threads(d->num_images), look_for_file, d);
  for (int i = d->num_images - 1; i >= 0; i--) {
    if (!d->absent[d->image[i]]) continue;
    d->missing++;
    first = i;
  }
  if (strict ? d->missing == 0 : d->missing <= d->num_images / 2) return true;
  char *path = dataset_path(d, first);
  const char *why = access(path, F_OK) == 0 ? "not a regular file" : errno == ENOENT ? "no such file" : strerror(errno);
  const char *bare = bare_name(d, first);
  char *hint = bare ? xasprintf("; %s/%s is there: leave the folders out of file_name", d->folder, bare) : xstrdup("");
  err_set(err, "%s: %s; %d of %d images of %s are missing%s", path, why, d->missing, d->num_images, d->coco.path, hint);
  free(hint);
  free(path);
  return false;
}

typedef struct Claim { // of the annotations
  int64_t pixels;
  int image; // usable image
} Claim;

static int compare_claim(const void *a, const void *b) { // larger ones first
  const Claim *p = a, *q = b;
  return p->pixels != q->pixels ? (p->pixels < q->pixels) - (p->pixels > q->pixels) : compare_int(&p->image, &q->image);
}

// False, saying so, where the file is smaller than it is annotated. What cannot be read is for the loader to say.
static bool claim_holds(const Dataset *d, const Claim *claim, Err *err) {
  const CocoImage *im = &d->coco.images[d->image[claim->image]];
  char *path = dataset_path(d, claim->image);
  int h, w;
  bool holds = !image_info(path, d->upright, &h, &w, err) || (int64_t)h * w >= claim->pixels;
  if (!holds) err_set(err, "%s: %d x %d pixels, but %d x %d in %s", path, w, h, im->w, im->h, d->coco.path);
  free(path);
  return holds;
}

// Takes what was left out since off the list of usable images, with its objects.
static void unlist(Dataset *d) {
  int images = 0, objects = 0;
  for (int i = 0; i < d->num_images; i++) {
    const int first = d->first_object[i], n = d->first_object[i + 1] - first;
    if (d->left_out[d->image[i]]) continue;
    memmove(d->object + objects, d->object + first, (size_t)n * sizeof *d->object);
    d->first_object[images] = objects;
    d->image[images++] = d->image[i];
    objects += n;
  }
  d->first_object[images] = objects;
  d->num_images = images;
}

// A place of a batch has room for the largest image, so that one annotated as far larger than it is would cost memory
// in every place: the largest sizes are held against their files until one is true.
static bool check_largest(Dataset *d, bool strict, Err *err) {
  Claim *claim = xmalloc((size_t)d->num_images * sizeof *claim);
  bool ok = true;
  for (int i = 0; i < d->num_images; i++) {
    const CocoImage *im = &d->coco.images[d->image[i]];
    claim[i] = (Claim){(int64_t)im->h * im->w, i};
  }
  qsort(claim, (size_t)d->num_images, sizeof *claim, compare_claim);
  Err bad;
  for (int k = 0; ok && k < d->num_images && !claim_holds(d, &claim[k], &bad); k++)
    ok = dataset_leave_out(d, d->image[claim[k].image], strict, &bad, err);
  unlist(d);
  free(claim);
  return ok && (d->num_images > 0 || nothing_usable(d, err));
}

static void measure(Dataset *d) {
  d->max_objects = 1;
  for (int i = 0; i < d->num_images; i++) {
    const CocoImage *im = &d->coco.images[d->image[i]];
    int64_t words = 0;
    for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++)
      words += dataset_polygons(d, &d->object[o]) > 0 ? polygon_words(&d->coco, &d->coco.anns[d->object[o].ann])
                                                      : most_words(&d->coco, im, &d->object[o]);
    d->max_words = MAX(d->max_words, words);
    d->max_bytes = MAX(d->max_bytes, (int64_t)im->h * im->w * 3);
    d->max_objects = MAX(d->max_objects, d->first_object[i + 1] - d->first_object[i]);
  }
}

static void choose_canvases(Dataset *d, int max) {
  Size *size = xmalloc((size_t)d->num_images * sizeof *size);
  for (int i = 0; i < d->num_images; i++) {
    const CocoImage *im = &d->coco.images[d->image[i]];
    resize_shape(&d->resize, im->h, im->w, &size[i].h, &size[i].w);
  }
  d->image_canvas = xmalloc((size_t)d->num_images);
  d->num_canvases = canvas_choose(d->canvas, max, size, d->num_images, d->image_canvas);
  free(size);
}

bool dataset_open(Dataset *d, const char *dir, const char *split, const DatasetOptions *options, Err *err) {
  *d = (Dataset){.resize = options->resize,
                 .sizes = options->sizes,
                 .upright = options->upright,
                 .box_extra = options->box_extra,
                 .polygons = options->polygons,
                 .patience = options->patience};
  if (d->sizes.n > 0) d->resize.size = sizes_largest(&d->sizes);
  char *annotations = NULL;
  bool ok = coco_find_split(dir, split, &annotations, &d->folder, err) &&
            coco_open(&d->coco, annotations, options->index, err) && list_images(d, options, err) &&
            check_files(d, options->strict, err) && check_largest(d, options->strict, err);
  free(annotations);
  if (!ok) {
    dataset_close(d);
    return false;
  }
  d->classes = d->coco.num_categories + 1;
  measure(d);
  choose_canvases(d, options->max_canvases);
  d->reported = xcalloc((size_t)d->num_images, sizeof *d->reported);
  return true;
}

void dataset_close(Dataset *d) {
  coco_free(&d->coco);
  free(d->folder);
  free(d->left_out);
  free(d->absent);
  free(d->image);
  free(d->image_canvas);
  free(d->object);
  free(d->first_object);
  free(d->reported);
  free(d->shrink);
  idx_free(&d->idx);
  *d = (Dataset){0};
}

int dataset_bad_images(const Dataset *d) {
  int bad = d->bad_images;
  for (int i = 0; i < d->num_images; i++) bad += atomic_load(&d->reported[i]);
  return bad;
}

static uint64_t add_bytes(uint64_t key, const void *p, size_t bytes) {
  for (const uint8_t *at = p, *end = at + bytes; at < end; at++) key = (key ^ *at) * 0x100000001b3u; // FNV-1a
  return key;
}

static uint64_t add_image(uint64_t key, const Dataset *d, int i) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  const int32_t size[] = {im->h, im->w};
  key = add_bytes(key, &im->id, sizeof im->id);
  key = add_bytes(key, size, sizeof size);
  key = add_bytes(key, im->file_name, strlen(im->file_name) + 1);
  for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++) {
    key = add_bytes(key, &d->object[o].label, sizeof d->object[o].label);
    key = add_bytes(key, d->object[o].box, sizeof d->object[o].box);
  }
  return key;
}

uint64_t dataset_key(const Dataset *d) {
  uint64_t key = 0xcbf29ce484222325u;
  for (int i = 0; i < d->coco.num_categories; i++)
    key = add_bytes(key, &d->coco.categories[i].id, sizeof d->coco.categories[i].id);
  for (int i = 0; i < d->num_images; i++) key = add_image(key, d, i);
  return key;
}

static void print_classes(const Dataset *d, FILE *out) {
  fprintf(out, "data: %d images of %d classes on a canvas of %d x %d (h x w)", d->num_images, d->classes,
          d->canvas[0].h, d->canvas[0].w);
  if (d->bad_images) fprintf(out, "; %d bad images left out", d->bad_images);
  if (d->others) fprintf(out, "; %d files are not called .jpg, .jpeg or .png and not read", d->others);
  fprintf(out, "\n");
}

void dataset_print(const Dataset *d, FILE *out) {
  if (d->of_classes) {
    print_classes(d, out);
    return;
  }
  fprintf(out, "data: %d images to train on, %d categories, at most %d objects an image", d->num_images, d->classes - 1,
          d->max_objects);
  const struct {
    int n;
    const char *what;
  } odd[] = {{d->bad_images, "bad images left out"},
             {d->missing, "image files missing"},
             {d->without_objects, "images without an object"},
             {d->crowds, "crowd annotations left out"},
             {d->dropped_boxes, "boxes without area left out"},
             {d->unlabelled, "annotations of an unknown category left out"},
             {d->coco.unknown_image, "annotations of an unknown image left out"},
             {d->coco.duplicate_images, "images whose id comes again left out"},
             {d->coco.duplicate_categories, "categories whose id comes again left out"},
             {d->coco.bad_segmentation, "masks that cannot be used in whole or in part"},
             {d->box_masks, "objects without a usable mask: their box stands in"}};
  for (int i = 0; i < COUNT(odd); i++)
    if (odd[i].n) fprintf(out, "; %d %s", odd[i].n, odd[i].what);
  fprintf(out, "\n");
  if (d->coco.origin) line_print(out, "annotations: %s", d->coco.origin);
  for (int i = 0; i < d->num_canvases; i++) fprintf(out, "canvas %d x %d (h x w)\n", d->canvas[i].h, d->canvas[i].w);
}
