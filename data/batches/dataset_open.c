// Opens a split with COCO annotations as a Dataset.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "data/batches/bitmap.h"
#include "data/batches/dataset.h"
#include "data/batches/dataset_holdout.h"
#include "data/batches/image_files.h"
#include "data/batches/objects.h"
#include "data/batches/paste.h"
#include "data/batches/upright.h"
#include "data/coco/choice.h"
#include "data/coco/coco_index.h"
#include "data/coco/mask_forms.h"

static float clip(float v, float high) { return v < 0 ? 0 : v > high ? high : v; } // NaN stays NaN

bool dataset_box(const CocoImage *im, const CocoAnn *a, float extra, float box[4]) {
  // x + w in float32, as in the reference
  float x = (float)a->bbox[0], y = (float)a->bbox[1], w = (float)a->bbox[2], h = (float)a->bbox[3];
  float right = im->w > 0 ? (float)im->w - extra : INFINITY, bottom = im->h > 0 ? (float)im->h - extra : INFINITY;
  box[0] = clip(x, right);
  box[1] = clip(y, bottom);
  box[2] = clip(x + fmaxf(w - extra, 0), right);
  box[3] = clip(y + fmaxf(h - extra, 0), bottom);
  return box[2] > box[0] && box[3] > box[1]; // false for NaN
}

// Makes the annotation an object. False, counted by reason, if it is no training target.
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
  if (a->left_out) {
    d->bad_masks++;
    return false;
  }
  *o = (Object){.ann = ann, .label = a->category + 1};
  if (!dataset_box(im, a, d->box_extra, o->box)) {
    d->dropped_boxes++;
    return false;
  }
  return true;
}

// Whether an annotation has a mask that cannot be used: training on its box as if that were the mask, or on a part of
// the mask, would be wrong. A polygon of fewer than three points is no mask at all.
static bool has_invalid_mask(const CocoAnn *a, const CocoImage *im) {
  if (a->type == SEG_NONE) return a->bad_segmentation && a->form != FORM_FEW;
  return a->type == SEG_RLE && (a->rle_h != im->h || a->rle_w != im->w);
}

typedef struct Extent {
  double x1, y1, x2, y2;
} Extent;

static void extend(Extent *e, double x, double y) {
  *e = (Extent){fmin(e->x1, x), fmin(e->y1, y), fmax(e->x2, x), fmax(e->y2, y)};
}

// Words of polygons: the number of points of each, then their coordinates.
static int64_t polygon_words(const Coco *c, const CocoAnn *a) {
  int64_t words = 0;
  for (int p = a->first_part; p < a->first_part + a->parts; p++) words += 1 + 2 * (int64_t)c->part_points[p];
  return words;
}

// Upper bound of the words of an object's bitmap. Rasterising every mask of a large data set before the first step
// would take minutes; the extent of the polygons, and of the box that may replace them, is known at once.
static int64_t most_words(const Coco *c, const CocoImage *im, const Object *o) {
  const CocoAnn *a = &c->anns[o->ann];
  Extent e = {o->box[0], o->box[1], o->box[2], o->box[3]};
  if (a->type == SEG_RLE) {
    double b[4];
    Rle runs = coco_ann_runs(c, a);
    rle_bbox(&runs, b);
    extend(&e, b[0], b[1]);
    extend(&e, b[0] + b[2], b[1] + b[3]);
  }
  if (a->type == SEG_POLYGONS) {
    extend(&e, a->extent[0], a->extent[1]);
    extend(&e, a->extent[2], a->extent[3]);
  }
  // One pixel more on every side, because polygons are rounded to fifths of a pixel; clipped to the image.
  int x1 = (int)fmax(floor(e.x1) - 1, 0), x2 = (int)fmin(ceil(e.x2) + 1, im->w);
  int y1 = (int)fmax(floor(e.y1) - 1, 0), y2 = (int)fmin(ceil(e.y2) + 1, im->h);
  return bitmap_words(y2 - y1, x2 - x1);
}

// Ensures that the image's size is known, from the file if the annotations lack it.
static bool find_size(const Dataset *d, CocoImage *im, Err *err) {
  if (im->h <= 0 || im->w <= 0) {
    const char *found = d->file ? d->file[im - d->coco.images] : NULL;
    char *path = found ? xstrdup(found) : xasprintf("%s/%s", d->folder, im->file_name);
    bool ok = image_info(path, d->upright, &im->h, &im->w, err);
    free(path);
    if (!ok) return false;
  }
  if ((int64_t)im->h * im->w > IMAGE_MAX_PIXELS)
    return err_set(
        err,
        "%s: image %lld (%s) has %d x %d pixels, but at most %d in all are supported; correct its width and height",
        d->coco.path, (long long)im->id, im->file_name, im->w, im->h, IMAGE_MAX_PIXELS);
  return true;
}

// False, with a message, for more annotations than an image can have. Where most of the file's are one image's, its
// writer probably gave them all the same image_id.
static bool check_annotations(const Dataset *d, const CocoImage *im, Err *err) {
  const Coco *c = &d->coco;
  if (im->anns <= MOST_ANNOTATIONS) return true;
  const bool most = c->num_images > 1 && im->anns > c->num_anns / 2;
  return err_set(err, "%s: image %lld (%s) has %d of the %d annotations; at most %d per image are supported: %s",
                 c->path, (long long)im->id, im->file_name, im->anns, c->num_anns, MOST_ANNOTATIONS,
                 most ? "check their image_id" : "split the image into tiles");
}

static bool nothing_usable(const Dataset *d, Err *err) {
  const Coco *c = &d->coco;
  if (!coco_has_categories(c, err)) return false;
  if (c->num_images == 0) return err_set(err, "%s: no images; its list \"images\" is missing or empty", c->path);
  if (c->num_anns == 0 && c->unknown_image > 0)
    return err_set(err, "%s: all annotations (%d) have an image_id that no image has, first annotation %lld", c->path,
                   c->unknown_image, (long long)c->unknown_image_ann);
  if (c->num_anns == 0 && d->other_classes > 0)
    return err_set(err, "%s: no object is of --classes: all %d annotations are of other classes; doctor lists these",
                   c->path, d->other_classes);
  if (c->num_anns == 0 && c->num_broken == 0 && d->bad_images == 0)
    return err_set(err, "%s: no annotations; its list \"annotations\" is missing or empty", c->path);
  if (d->bad_masks > 0 && !mask_forms_check(c, err)) return false;
  return err_set(err,
                 "%s: none of the %d images is usable; %d images are invalid; of %d annotations, %d are crowds%s, %d "
                 "have an empty box, %d an unknown category, %d an invalid mask or value",
                 c->path, c->num_images, d->bad_images, c->num_anns, d->crowds,
                 d->crowds ? " (set iscrowd to 0 if they are objects)" : "", d->dropped_boxes, d->unlabelled,
                 d->bad_masks + c->num_broken);
}

// Decides which crowds are objects, by the whole file.
static void judge_crowds(Dataset *d, const DatasetOptions *options) {
  if (options->crowd == CROWD_OBJECT) d->former_crowds = crowds_become_objects(&d->coco, options->train);
  if (d->former_crowds) coco_digest_labels(&d->coco);
}

// Lists the usable images with their objects.
static bool list_images(Dataset *d, const DatasetOptions *options, Err *err) {
  const Coco *c = &d->coco;
  const bool takes_masks = options->boxes == MEASURE_MASK || options->areas == MEASURE_MASK;
  if (takes_masks) coco_take_all_from_masks(&d->coco, options->boxes == MEASURE_MASK, options->areas == MEASURE_MASK);
  d->image = xmalloc((size_t)c->num_images * sizeof *d->image);
  d->first_object = xmalloc(((size_t)c->num_images + 1) * sizeof *d->first_object);
  d->object = xmalloc((size_t)c->num_anns * sizeof *d->object);
  d->left_out = xcalloc((size_t)c->num_images, sizeof *d->left_out);
  d->first_object[0] = 0;
  for (int i = 0, objects = 0; i < c->num_images && !(options->limit > 0 && d->num_images == options->limit); i++) {
    CocoImage *im = &c->images[i];
    d->num_listed = i + 1;
    if (!im->file_name) return err_set(err, "%s: image %lld has no file_name", c->path, (long long)im->id);
    if (!check_annotations(d, im, err)) return false;
    Err bad;
    const bool was_sized = im->h > 0 && im->w > 0;
    if (!find_size(d, im, &bad)) {
      if (!dataset_leave_out(d, i, options->strict, &bad, err)) return false;
      continue;
    }
    if (!was_sized && takes_masks)
      coco_take_from_masks(&d->coco, im, options->boxes == MEASURE_MASK, options->areas == MEASURE_MASK);
    const int before = objects;
    for (int a = im->first_ann; a < im->first_ann + im->anns; a++)
      d->coco.anns[a].left_out = has_invalid_mask(&d->coco.anns[a], im);
    for (int a = im->first_ann; a < im->first_ann + im->anns; a++) objects += object_of(d, im, a, &d->object[objects]);
    d->without_objects += objects == before;
    if (objects == before && !options->keep_empty) continue;
    d->image[d->num_images++] = i;
    d->first_object[d->num_images] = objects;
  }
  return d->num_images > 0 || nothing_usable(d, err);
}

// For --strict: false if an annotation is left out because of its values.
static bool check_complete(const Dataset *d, Err *err) {
  const Coco *c = &d->coco;
  const int n = c->num_broken + d->bad_masks + d->unlabelled;
  int64_t first = c->num_broken ? c->broken[0].id : 0;
  const char *why = c->num_broken ? coco_faults[c->broken[0].fault] : NULL;
  for (int i = 0; !why && i < c->num_anns; i++) {
    if (!c->anns[i].left_out && c->anns[i].category >= 0) continue;
    first = c->anns[i].id;
    why = c->anns[i].left_out ? "its mask is invalid" : "its category is not in the file";
  }
  if (n == 0) return true;
  return err_set(err, "%s: annotation %lld: %s; without --strict it is left out%s", c->path, (long long)first, why,
                 n > 1 ? ", like the others of this kind" : "");
}

// A few missing files are bad images like others; if most are missing, the copy was interrupted or this is the wrong
// folder, which must be reported before the first step.
static bool check_files(Dataset *d, const char *split, bool strict, Err *err) {
  int first = d->num_images;
  for (int i = d->num_images - 1; i >= 0; i--) {
    if (!d->absent[d->image[i]]) continue;
    d->missing++;
    first = i;
  }
  if (strict ? d->missing == 0 : d->missing <= d->num_images / 2) return true;
  char *path = dataset_path(d, first);
  const char *why = access(path, F_OK) == 0 ? "not a regular file" : errno == ENOENT ? "no such file" : strerror(errno);
  char *options = coco_layout_options(split, d->coco.path);
  char *more = d->another                    ? xasprintf("; %s is not taken for it: it is another split's", d->another)
               : d->missing == d->num_images ? xasprintf("; if they are elsewhere, give %s", options)
                                             : xstrdup("");
  err_set(err, "%s: %s; %d of %d images of %s are missing%s", path, why, d->missing, d->num_images, d->coco.path, more);
  free(more);
  free(options);
  free(path);
  return false;
}

typedef struct Claim { // size according to the annotations
  int64_t pixels;
  int image; // usable image
} Claim;

static int compare_claim(const void *a, const void *b) { // larger sizes first
  const Claim *p = a, *q = b;
  return p->pixels != q->pixels ? (p->pixels < q->pixels) - (p->pixels > q->pixels) : compare_int(&p->image, &q->image);
}

// False, with a message, if the file's image is smaller than annotated. The loader reports files that cannot be read.
static bool claim_holds(const Dataset *d, const Claim *claim, Err *err) {
  const CocoImage *im = &d->coco.images[d->image[claim->image]];
  char *path = dataset_path(d, claim->image);
  int h, w;
  bool holds = !image_info(path, d->upright, &h, &w, err) || (int64_t)h * w >= claim->pixels;
  if (!holds)
    err_set(err, "%s: the image has %d x %d pixels, but %d x %d in %s%s", path, w, h, im->w, im->h, d->coco.path,
            dataset_is_resized(im, h, w) ? "; it was resized after annotation" : "");
  free(path);
  return holds;
}

// Removes images that were left out since from the list of usable images, with their objects.
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

// Every slot of a batch has memory for the largest image, so one annotation with an exaggerated size would cost memory
// in every slot: the largest sizes are checked against their files until one is correct.
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

// Room for pasted objects; data/batches/paste.h leaves out those for which it is not enough.
static void add_room(Dataset *d) {
  int64_t bits = 0, largest = 0;
  for (int i = 0; i < d->num_images; i++) {
    const CocoImage *im = &d->coco.images[d->image[i]];
    int64_t words = 0; // even of polygons: a mask that is partly covered is no polygon
    for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++) words += most_words(&d->coco, im, &d->object[o]);
    bits = MAX(bits, words);
    largest = MAX(largest, bitmap_words(im->h, im->w));
  }
  d->max_objects += MIN(d->max_objects, MOST_PASTED);
  d->max_words = MAX(d->max_words, 2 * bits + largest);
  d->max_whole = MAX(d->max_whole, 2 * d->max_bytes); // a decoder thread keeps the source beside the image
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

// Areas of objects with masks that no object has, where they are more than a few.
static void note_empty_areas(Dataset *d) {
  int masks = 0, empty = 0;
  for (int i = 0; i < d->coco.num_anns; i++) {
    const CocoAnn *a = &d->coco.anns[i];
    masks += a->type != SEG_NONE;
    empty += a->type != SEG_NONE && !(a->area > 0);
  }
  if (10 * (int64_t)empty <= masks) return;
  d->box_areas = true;
  notes_add(&d->notes,
            "%s: the areas of %d of %d annotations with masks are not above 0; AP of small, medium and large objects "
            "depends on them: --areas mask recomputes them",
            d->coco.path, empty, masks);
}

static void note_areas(Dataset *d) {
  int of_boxes, compared;
  d->box_areas = coco_areas_are_of_boxes(&d->coco, &of_boxes, &compared);
  if (d->box_areas)
    notes_add(
        &d->notes,
        "%s: the areas are those of the boxes, not of the masks (%d of %d compared); AP of small, medium and large "
        "objects depends on them: --areas mask recomputes them",
        d->coco.path, of_boxes, compared);
}

static bool find_files(Dataset *d, const CocoLayout *layout, const char *split, const DatasetOptions *options,
                       Err *err) {
  char *note = coco_layout_note(layout, split);
  if (note) notes_add(&d->notes, "%s", note);
  free(note);
  image_files_find(d, layout);
  d->named = options->images != NULL;
  d->layout = xasprintf("%s: %s, images in %s", layout->name, layout->annotations, d->folder);
  if (options->areas == MEASURE_FILE) {
    note_areas(d);
    note_empty_areas(d);
  }
  return upright_settle(d, options->exif, options->upright_otherwise, err);
}

// Marks the categories that a list names.
static bool named(const Coco *c, const char *list, bool *keep, Err *err) {
  ResultClass *item = xmalloc((size_t)c->num_categories * sizeof *item);
  const ResultClasses classes = {item, c->num_categories};
  ResultChoice choice = {0};
  for (int i = 0; i < c->num_categories; i++) item[i] = (ResultClass){c->categories[i].id, c->categories[i].name};
  Err why;
  const bool ok = choice_open(&choice, list, 0, 0, &classes, &why) || err_set(err, "--classes: %s", why.msg);
  for (int i = 0; ok && i < c->num_categories; i++) keep[i] = choice.chosen[i];
  choice_close(&choice);
  free(item);
  return ok;
}

// Marks the categories that are in another list, too.
static bool known(const Dataset *d, const CategoryList *only, bool *keep, Err *err) {
  const CategoryList own = dataset_categories(d);
  const size_t n = (size_t)own.n;
  int *objects = xcalloc(n, sizeof *objects), *to = xmalloc(n * sizeof *to);
  Notes notes = {0};
  const bool ok = categories_match(only, &own, objects, to, &notes, err);
  for (int i = 0; ok && i < own.n; i++) keep[i] = to[i] >= 0;
  notes_free(&notes);
  free(objects);
  free(to);
  return ok;
}

static bool choose_categories(Dataset *d, const DatasetOptions *options, Err *err) {
  Coco *c = &d->coco;
  const int categories = c->num_categories, anns = c->num_anns;
  if ((!options->classes && !options->only) || !categories) return true;
  bool *keep = xcalloc((size_t)categories, sizeof *keep);
  const bool ok = options->classes ? named(c, options->classes, keep, err) : known(d, options->only, keep, err);
  if (ok) coco_keep_categories(c, keep);
  d->other_classes = anns - c->num_anns;
  if (ok && c->num_categories < categories)
    notes_add(&d->notes, "%s: %d of %d categories are used; %d of %d annotations, of the others, are left out", c->path,
              c->num_categories, categories, anns - c->num_anns, anns);
  free(keep);
  return ok;
}

bool dataset_open(Dataset *d, const char *dir, const char *split, const DatasetOptions *options, Err *err) {
  *d = (Dataset){.type = &objects_with_masks,
                 .bad = bad_images_open(),
                 .resize = options->resize,
                 .box_extra = options->box_extra,
                 .polygons = options->polygons,
                 .moved_boxes = options->moved_boxes,
                 .paste = options->paste,
                 .patience = options->patience};
  CocoLayout layout;
  bool ok = coco_layout_find(&layout, dir, split, options->json, options->images, err) &&
            coco_open(&d->coco, layout.annotations, options->index, err) && choose_categories(d, options, err) &&
            find_files(d, &layout, split, options, err);
  if (ok) judge_crowds(d, options);
  ok = ok && dataset_hold_out(d, options, split, err) && list_images(d, options, err) &&
       check_files(d, split, options->strict, err) && check_largest(d, options->strict, err) &&
       (!options->strict || check_complete(d, err));
  coco_layout_free(&layout);
  if (!ok) {
    dataset_close(d);
    return false;
  }
  const CategoryList categories = dataset_categories(d);
  categories_examine(&categories, &d->notes);
  d->classes = d->coco.num_categories + 1;
  measure(d);
  if (d->paste) add_room(d);
  choose_canvases(d, options->max_canvases);
  d->reported = xcalloc((size_t)d->num_images, sizeof *d->reported);
  return true;
}
