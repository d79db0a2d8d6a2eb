#include "data/survey/defects.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/parallel.h"
#include "data/batches/file_key.h"
#include "data/coco/mask_forms.h"
#include "data/survey/shared_files.h"
#include "data/survey/twice.h"

const DefectInfo defect_info[DEFECTS] = {
    [DEFECT_IMAGE_ID] = {"image-id", "images with a duplicate id", "the last one is used", .of = "image"},
    [DEFECT_CATEGORY_ID] = {"category-id", "categories with a duplicate id", "the last one is used", .of = "category"},
    [DEFECT_ANN_ID] = {"annotation-id", "annotations with a duplicate id",
                       "training and its evaluation use all; cocoeval uses the last, as pycocotools does",
                       .of = "annotation"},
    [DEFECT_BROKEN] = {"broken", "annotations with an invalid value", "left out; --strict stops", "left out",
                       "annotation"},
    [DEFECT_NO_IMAGE] = {"no-image", "annotations with an unknown image id", "left out", .of = "annotation"},
    [DEFECT_NO_CATEGORY] = {"no-category", "annotations with an unknown category id", "left out; --strict stops",
                            "left out", "annotation"},
    [DEFECT_CROWD] = {"crowd", "crowd annotations that cover one object each, such as CVAT's brush masks",
                      "treated as objects; --crowd ignore leaves them out", .of = "annotation"},
    [DEFECT_BOX_EMPTY] = {"box-empty", "boxes with no area inside their image", "left out",
                          "scored as objects that no box can match", "annotation"},
    [DEFECT_BOX_BEYOND] = {"box-beyond", "boxes that extend more than a pixel beyond their image",
                           "clipped to the image", "scored without clipping", "annotation"},
    [DEFECT_BOX_APART] = {"box-apart", "boxes that do not match their masks", "both are used unchanged",
                          .of = "annotation"},
    [DEFECT_TWICE] = {"twice", "objects that are annotated twice", "all are used for training",
                      "all are scored, but a detection matches only one", "annotation"},
    [DEFECT_MASK_NONE] = {"mask-none", "objects without a mask", "trained on for their boxes only",
                          "scored for their boxes only; mask AP ignores detections in these boxes", "annotation"},
    [DEFECT_MASK_BAD] =
        {"mask-bad", "masks that are invalid in whole or in part",
         "the valid polygons are used; without any, the object is left out, or only its box is used if its "
         "polygons have fewer than 3 points",
         .of = "annotation"},
    [DEFECT_MASK_ODD] = {"mask-odd", "polygons with an odd number of coordinates", "the last one is ignored",
                         .of = "annotation"},
    [DEFECT_MASK_SIZE] = {"mask-size", "run-length masks whose size differs from their image's", "left out",
                          .of = "annotation"},
    [DEFECT_MASK_EMPTY] = {"mask-empty", "masks that cover no pixel", "the object is trained with an empty mask",
                           "scored as objects that no mask can match", "annotation"},
    [DEFECT_MASK_UNIT] = {"mask-unit", "polygons whose coordinates are all from 0 to 1, as if normalized",
                          "read as pixels, so a mask covers at most one; COCO polygons are x y x y … in pixels",
                          .of = "annotation"},
    [DEFECT_SHARED] = {"shared", "image files that are also in the training split", "used in both splits",
                       "scored too, which makes the scores too high", "image"},
    [DEFECT_TURNED] = {"turned", "images with an EXIF orientation, which no image of the other split has",
                       "read as stored, as if they had none; --exif yes rotates them", .of = "image"},
    [DEFECT_MISSING] = {"missing", "missing image files", "replaced by another image; --strict stops",
                        "left out, with their objects", "image"},
    [DEFECT_FILE] = {"file", "image files that cannot be decoded or whose size differs from the annotations",
                     "replaced by another image; --strict stops", "left out, with their objects", "image"},
};

const char *defect_treatment(Defect defect, bool scored) {
  const DefectInfo *info = &defect_info[defect];
  return scored && info->scored ? info->scored : info->treatment;
}

// ---- one annotation -------------------------------------------------------------------------------------------------

static uint32_t bit(Defect defect, bool found) { return found ? 1u << defect : 0; }

// Checks an annotation's numbers and box. Crowds are not training targets: only whether their masks can be read
// matters. If the image has no size, nothing is known to lie beyond it.
static uint32_t ann_defects(const CocoAnn *a, const CocoImage *im, bool is_object, bool masks) {
  const double *b = a->bbox;
  const bool sized = im->w > 0 && im->h > 0;
  bool beyond = b[0] < -1 || b[1] < -1 || b[0] + b[2] > im->w + 1. || b[1] + b[3] > im->h + 1.;
  bool unit =
      a->type == SEG_POLYGONS && a->extent[0] >= 0 && a->extent[1] >= 0 && a->extent[2] <= 1 && a->extent[3] <= 1;
  bool other_size = a->type == SEG_RLE && (a->rle_h != im->h || a->rle_w != im->w);
  return bit(DEFECT_ANN_ID, a->replaced) | bit(DEFECT_CROWD, a->was_crowd) | bit(DEFECT_NO_CATEGORY, a->category < 0) |
         bit(DEFECT_MASK_BAD, a->bad_segmentation) | bit(DEFECT_MASK_ODD, a->odd_polygon) |
         bit(DEFECT_BOX_BEYOND, is_object && a->has_bbox && beyond && sized) |
         bit(DEFECT_MASK_NONE, masks && is_object && a->type == SEG_NONE && !a->bad_segmentation) |
         bit(DEFECT_MASK_SIZE, is_object && other_size && sized) | bit(DEFECT_MASK_UNIT, is_object && unit) |
         bit(DEFECT_BOX_EMPTY, !is_object && !a->crowd && a->category >= 0);
}

// Whether the IoU of two boxes, x1 y1 x2 y2, is below one half.
static bool apart(const double a[4], const double b[4]) {
  double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  double both = fmax(w, 0) * fmax(h, 0);
  return 2 * both < (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
}

// x1 y1 x2 y2 of the pixels that a mask can cover, in whole pixels and within its image.
static void mask_extent(const Coco *c, const CocoAnn *a, const CocoImage *im, double m[4]) {
  for (int i = 0; i < 4; i++) m[i] = a->extent[i];
  if (a->type == SEG_RLE) {
    const Rle runs = coco_ann_runs(c, a);
    double b[4];
    rle_bbox(&runs, b);
    for (int i = 0; i < 2; i++) {
      m[i] = b[i];
      m[2 + i] = b[i] + b[2 + i];
    }
  }
  for (int i = 0; i < 4; i++) m[i] = fmin(fmax(m[i], 0), i % 2 ? im->h : im->w);
}

// The extent of an object's mask. Below 8 pixels a side, rounding to pixels alone can separate box and mask.
static uint32_t mask_defects(const Coco *c, const CocoAnn *a, const CocoImage *im, const float box[4], bool *corners) {
  double m[4];
  if (!coco_ann_has_mask(a, im->h, im->w)) return 0;
  mask_extent(c, a, im, m);
  if (m[2] <= m[0] || m[3] <= m[1]) return bit(DEFECT_MASK_EMPTY, true);
  if (!a->has_bbox || fmin(m[2] - m[0], m[3] - m[1]) < 8) return 0;
  const double of_box[4] = {box[0], box[1], box[2], box[3]};
  if (!apart(m, of_box)) return 0;
  *corners = a->bbox[2] > a->bbox[0] && a->bbox[3] > a->bbox[1] && !apart(m, a->bbox);
  return bit(DEFECT_BOX_APART, true);
}

// Whether the mask covers no pixel, as a thin polygon can.
static bool covers_no_pixel(const Coco *c, const CocoAnn *a, const CocoImage *im) {
  Scratch scratch = {0};
  Rle mask;
  const bool none = coco_ann_rle_in(&scratch, c, a, im->h, im->w, &mask) && rle_area(&mask) == 0;
  scratch_free(&scratch);
  return none;
}

typedef struct Room { // buffers for the objects of an image
  TwiceObject *object;
  size_t cap;
  bool *is_copy; // [coco.num_anns]
} Room;

static void look_at_annotations(Defects *f, int i, float extra, Room *room) {
  const Coco *c = f->coco;
  const CocoImage *im = &c->images[i];
  int n = 0;
  array_reserve((void **)&room->object, &room->cap, (size_t)im->anns, sizeof *room->object);
  for (int k = im->first_ann; k < im->first_ann + im->anns; k++) {
    const CocoAnn *a = &c->anns[k];
    TwiceObject *o = &room->object[n];
    bool corners = false;
    const bool is_object = !a->crowd && a->category >= 0 && dataset_box(im, a, extra, o->box);
    f->of_ann[k] = ann_defects(a, im, is_object, f->masks);
    if (is_object && !(f->of_ann[k] & bit(DEFECT_MASK_UNIT, true)))
      f->of_ann[k] |= mask_defects(c, a, im, o->box, &corners);
    f->corners += corners;
    o->ann = k;
    o->category = a->category;
    n += is_object;
  }
  twice_mark(c, im, room->object, n, room->is_copy);
  for (int k = im->first_ann; k < im->first_ann + im->anns; k++) f->of_ann[k] |= bit(DEFECT_TWICE, room->is_copy[k]);
}

// ---- all of them ----------------------------------------------------------------------------------------------------

// Per-image results that the pass over files collects.
typedef struct Look {
  double ms;
  int orientation; // of EXIF; 0: the file cannot be read
} Look;

static void look_at_file(Defects *f, const Dataset *d, const Ranges *ranges, int i, Look *look) {
  Err err;
  if (!ranges_try_image(ranges, d, i, &look->ms, &err)) f->reason[d->image[i]] = xstrdup(err.msg);
  char *path = dataset_path(d, i);
  size_t size;
  char *bytes = path_is_file(path) ? file_read(path, &size, NULL) : NULL; // reading a pipe would block
  if (bytes) {
    look->orientation = image_orientation((const uint8_t *)bytes, size);
    f->file_key[i] = file_key(bytes, size);
  }
  free(bytes);
  free(path);
}

// Takes note of the orientation of an image, an index into coco.images; 0: unknown.
static void take_orientation(Defects *f, int image, int orientation) {
  f->orientation[image] = (uint8_t)orientation;
  f->oriented += orientation > 0;
  f->turned += orientation > 1;
}

static int compare_double(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void look_at_files(Defects *f, const Dataset *d, const Ranges *ranges, void (*progress)(int done, int total)) {
  const Coco *c = f->coco;
  const uint32_t known = bit(DEFECT_MASK_UNIT, true) | bit(DEFECT_MASK_EMPTY, true);
  Look *looks = xcalloc((size_t)d->num_images, sizeof *looks);
  int done = 0;
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < d->num_images; i++) {
    look_at_file(f, d, ranges, i, &looks[i]);
    for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++) {
      const int a = d->object[o].ann;
      if (!(f->of_ann[a] & known))
        f->of_ann[a] |= bit(DEFECT_MASK_EMPTY, covers_no_pixel(c, &c->anns[a], &c->images[d->image[i]]));
    }
#pragma omp critical
    if (progress) progress(++done, d->num_images);
  }
  double *ms = xmalloc((size_t)d->num_images * sizeof *ms);
  int decoded = 0;
  for (int i = 0; i < d->num_images; i++) {
    take_orientation(f, d->image[i], looks[i].orientation);
    if (!f->reason[d->image[i]]) ms[decoded++] = looks[i].ms;
  }
  qsort(ms, (size_t)decoded, sizeof *ms, compare_double);
  if (decoded) f->decode_ms = ms[decoded / 2];
  free(ms);
  free(looks);
}

typedef struct Headers {
  const Dataset *d;
  int step;         // between two images that are read
  bool compares;    // with the annotated size
  char **reason;    // [coco.num_images]
  int *orientation; // [num_images]
} Headers;

static void look_at_header(void *of, int k, int thread) {
  (void)thread;
  const Headers *h = of;
  const int i = k * h->step, image = h->d->image[i];
  Err err;
  if (h->d->absent[image] || dataset_header(h->d, i, &h->orientation[i], &err) || !h->compares) return;
  h->reason[image] = xstrdup(err.msg);
}

static void look_at_headers(Defects *f, const Dataset *d, int step, bool compares) {
  const int n = (d->num_images + step - 1) / step;
  Headers h = {d, step, compares, f->reason, xcalloc((size_t)d->num_images, sizeof *h.orientation)};
  parallel_for(n, parallel_threads(n), look_at_header, &h);
  for (int i = 0; i < d->num_images; i += step) take_orientation(f, d->image[i], h.orientation[i]);
  free(h.orientation);
}

static void count(Defects *f, int image, int64_t id, uint32_t defects) {
  f->of_image[image] |= defects;
  for (int k = 0; k < DEFECTS; k++)
    if (defects >> k & 1 && f->of_type[k].count++ == 0) {
      f->of_type[k].id = id;
      f->of_type[k].image = image;
    }
}

static void begin(Defects *f, const Coco *c) {
  *f = (Defects){.coco = c,
                 .masks = mask_forms(c).masks > 0,
                 .of_image = xcalloc((size_t)c->num_images, sizeof *f->of_image),
                 .of_ann = xcalloc((size_t)c->num_anns, sizeof *f->of_ann),
                 .reason = xcalloc((size_t)c->num_images, sizeof *f->reason),
                 .orientation = xcalloc((size_t)c->num_images, sizeof *f->orientation)};
  f->of_type[DEFECT_IMAGE_ID] = (DefectCount){c->duplicate_images, c->duplicate_image, -1};
  f->of_type[DEFECT_CATEGORY_ID] = (DefectCount){c->duplicate_categories, c->duplicate_category, -1};
  const CocoBroken *first = c->broken;
  if (c->num_broken)
    f->of_type[DEFECT_BROKEN] = (DefectCount){c->num_broken, first->id, coco_find_image(c, first->image_id)};
  f->of_type[DEFECT_NO_IMAGE] = (DefectCount){c->unknown_image, c->unknown_image_ann, -1};
}

// Examines the annotations of the first `images` images, except those in left_out, which may be NULL.
static void look_at_all_annotations(Defects *f, int images, const bool *left_out, float extra) {
  Room room = {.is_copy = xcalloc((size_t)f->coco->num_anns, sizeof *room.is_copy)};
  for (int i = 0; i < images; i++)
    if (!left_out || !left_out[i]) look_at_annotations(f, i, extra, &room);
  free(room.object);
  free(room.is_copy);
}

static void count_annotations(Defects *f) {
  const Coco *c = f->coco;
  for (int i = 0; i < c->num_images; i++)
    for (int a = c->images[i].first_ann; a < c->images[i].first_ann + c->images[i].anns; a++)
      count(f, i, c->anns[a].id, f->of_ann[a]);
}

void defects_find(Defects *f, const Dataset *d, DefectDepth depth, const Ranges *ranges,
                  void (*progress)(int done, int total)) {
  const Coco *c = &d->coco;
  begin(f, c);
  f->file_key = xcalloc((size_t)d->num_images, sizeof *f->file_key);
  look_at_all_annotations(f, d->num_listed, d->left_out, d->box_extra);
  if (depth == DEPTH_FILES) look_at_files(f, d, ranges, progress);
  if (depth == DEPTH_HEADERS) look_at_headers(f, d, 1, true);
  for (int i = 0; i < d->num_images; i++)
    count(f, d->image[i], c->images[d->image[i]].id,
          d->absent[d->image[i]] ? bit(DEFECT_MISSING, true) : bit(DEFECT_FILE, f->reason[d->image[i]] != NULL));
  for (int i = 0; i < c->num_images; i++) {
    if (d->left_out[i] && !f->reason[i]) f->reason[i] = xstrdup(d->why[i]);
    count(f, i, c->images[i].id, bit(DEFECT_FILE, d->left_out[i]));
  }
  count_annotations(f);
}

void defects_find_annotations(Defects *f, const Coco *c) {
  begin(f, c);
  look_at_all_annotations(f, c->num_images, NULL, 0);
  count_annotations(f);
}

void defects_find_shared(Defects *f, const Dataset *d, const Dataset *train) {
  bool *shared = xcalloc((size_t)d->num_images, sizeof *shared);
  shared_files_find(d, train, shared);
  for (int i = 0; i < d->num_images; i++)
    count(f, d->image[i], d->coco.images[d->image[i]].id, bit(DEFECT_SHARED, shared[i]));
  free(shared);
}

void defects_find_orientations(Defects *f, const Dataset *d, int most) {
  if (!f->oriented) look_at_headers(f, d, (d->num_images + most - 1) / most, false);
}

void defects_find_turned(Defects *f, const Dataset *d, const Defects *other) {
  enum { SHARE = 10 };
  if (d->upright || other->turned || !other->oriented || !f->turned || SHARE * f->turned < f->oriented) return;
  for (int i = 0; i < d->coco.num_images; i++)
    count(f, i, d->coco.images[i].id, bit(DEFECT_TURNED, f->orientation[i] > 1));
}

void defects_free(Defects *f) {
  for (int i = 0; f->coco && i < f->coco->num_images; i++) free(f->reason[i]);
  free(f->of_image);
  free(f->of_ann);
  free(f->reason);
  free(f->file_key);
  free(f->orientation);
  *f = (Defects){0};
}

// ---- in words -------------------------------------------------------------------------------------------------------

bool defects_any(const Defects *f) {
  int n = 0;
  for (int k = 0; k < DEFECTS; k++) n += f->of_type[k].count > 0;
  return n > 0;
}

// "by category: wedge 4 of 4, plate 2 of 9": the categories of former crowds. Caller frees.
static char *crowds_by_category(const Coco *c) {
  enum { MOST = 8 };
  char *text = xstrdup("by category:");
  int *crowds = xcalloc((size_t)c->num_categories, sizeof *crowds),
      *all = xcalloc((size_t)c->num_categories, sizeof *all);
  for (int i = 0; i < c->num_anns; i++) {
    if (c->anns[i].category < 0) continue;
    all[c->anns[i].category]++;
    crowds[c->anns[i].category] += c->anns[i].was_crowd;
  }
  for (int k = 0, n = 0; k < c->num_categories; k++) {
    if (!crowds[k] || n++ >= MOST) continue;
    char *longer = xasprintf("%s%s %.40s %d of %d", text, n > 1 ? "," : "", c->categories[k].name, crowds[k], all[k]);
    free(text);
    text = longer;
  }
  free(crowds);
  free(all);
  return text;
}

// "ids: 6, 12, 15 and 12 more": of the annotations with a defect. Caller frees; NULL: there is only one, or the ids are
// unknown.
static char *annotation_ids(const Defects *f, Defect defect) {
  enum { MOST = 10 };
  const Coco *c = f->coco;
  const int count = f->of_type[defect].count, all = defect == DEFECT_BROKEN ? c->num_broken : c->num_anns;
  char *text = xstrdup("ids:");
  int n = 0;
  for (int i = 0; i < all && n < MOST; i++) {
    if (defect != DEFECT_BROKEN && !(f->of_ann[i] >> defect & 1)) continue;
    const int64_t id = defect == DEFECT_BROKEN ? c->broken[i].id : c->anns[i].id;
    char *longer = xasprintf("%s%s %lld", text, n++ ? "," : "", (long long)id);
    free(text);
    text = longer;
  }
  char *all_of_them = count > n ? xasprintf("%s and %d more", text, count - n) : xstrdup(text);
  free(text);
  if (count > 1 && n > 0) return all_of_them;
  free(all_of_them);
  return NULL;
}

// Counts boxes that extend beyond images as stored, but not if rotated: Label Studio writes upright points but stored
// sizes.
static int boxes_within_upright(const Defects *f) {
  int n = 0;
  for (int i = 0; i < f->coco->num_images; i++) {
    const CocoImage *im = &f->coco->images[i];
    if (f->orientation[i] < IMAGE_TURNED) continue;
    for (int a = im->first_ann; a < im->first_ann + im->anns; a++) {
      const double *b = f->coco->anns[a].bbox;
      n += f->of_ann[a] >> DEFECT_BOX_BEYOND & 1 && b[0] >= -1 && b[1] >= -1 && b[0] + b[2] <= im->h + 1. &&
           b[1] + b[3] <= im->w + 1.;
    }
  }
  return n;
}

int defects_details(const Defects *f, Defect defect, char *detail[DEFECT_DETAILS]) {
  const DefectCount *found = &f->of_type[defect];
  const char *file = found->image >= 0 ? f->coco->images[found->image].file_name : NULL;
  int n = 0;
  detail[n++] = xasprintf("first: %s %lld%s%s", defect_info[defect].of, (long long)found->id, file ? ", file " : "",
                          file ? file : "");
  const bool is_left_out = defect == DEFECT_BROKEN || defect == DEFECT_NO_CATEGORY || defect == DEFECT_MASK_BAD ||
                           defect == DEFECT_MASK_SIZE;
  char *ids = is_left_out ? annotation_ids(f, defect) : NULL;
  if (ids) detail[n++] = ids;
  if (defect == DEFECT_BROKEN) detail[n++] = xstrdup(coco_faults[f->coco->broken[0].fault]);
  if (defect == DEFECT_BOX_APART && 2 * f->corners > found->count)
    detail[n++] =
        xstrdup("most of these boxes match their masks when read as x1 y1 x2 y2; COCO boxes are x y width height");
  if (defect == DEFECT_BOX_APART) detail[n++] = xstrdup("--boxes mask takes boxes from the masks instead");
  const int upright = defect == DEFECT_BOX_BEYOND ? boxes_within_upright(f) : 0;
  if (2 * upright > found->count)
    detail[n++] = xasprintf("%d would fit if their images were rotated by the EXIF orientation: --exif yes", upright);
  if (defect == DEFECT_CROWD) detail[n++] = crowds_by_category(f->coco);
  if (defect == DEFECT_MASK_BAD) {
    const MaskForms forms = mask_forms(f->coco);
    detail[n++] = xasprintf("most are %s", seg_form_texts[mask_forms_most(&forms)]);
  }
  if (defect == DEFECT_FILE && f->reason[found->image]) detail[n++] = xstrdup(f->reason[found->image]);
  return n;
}

char *defects_line(const Defects *f, Defect defect, bool scored) {
  char *detail[DEFECT_DETAILS];
  char *line =
      xasprintf("%s: %d; %s", defect_info[defect].what, f->of_type[defect].count, defect_treatment(defect, scored));
  const int n = defects_details(f, defect, detail);
  for (int i = 0; i < n; i++) {
    char *longer = xasprintf("%s; %s", line, detail[i]);
    free(line);
    free(detail[i]);
    line = longer;
  }
  return line;
}
