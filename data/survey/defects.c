#include "data/survey/defects.h"
#include <math.h>
#include <stdlib.h>
#include <zlib.h>
#include "base/alloc.h"
#include "base/clock.h"

const DefectInfo defect_info[DEFECTS] = {
    [DEFECT_IMAGE_ID] = {"image-id", "images whose id comes again", "the last one counts", "image"},
    [DEFECT_CATEGORY_ID] = {"category-id", "categories whose id comes again", "the last one counts", "category"},
    [DEFECT_ANN_ID] = {"annotation-id", "annotations whose id comes again",
                       "all count in training and its scores; cocoeval takes the last, as pycocotools does",
                       "annotation"},
    [DEFECT_NO_IMAGE] = {"no-image", "annotations of an image that is not in the file", "left out", "annotation"},
    [DEFECT_NO_CATEGORY] = {"no-category", "annotations of a category that is not in the file", "left out",
                            "annotation"},
    [DEFECT_BOX_EMPTY] = {"box-empty", "boxes without area inside their image", "left out", "annotation"},
    [DEFECT_BOX_BEYOND] = {"box-beyond", "boxes that reach more than a pixel beyond their image",
                           "clipped to the image", "annotation"},
    [DEFECT_BOX_APART] = {"box-apart", "boxes that lie elsewhere than their masks", "both are taken as they are",
                          "annotation"},
    [DEFECT_MASK_NONE] = {"mask-none", "objects without a mask", "their box stands in", "annotation"},
    [DEFECT_MASK_BAD] = {"mask-bad", "masks that cannot be used in whole or in part",
                         "the polygons that can be used are, else the box stands in", "annotation"},
    [DEFECT_MASK_ODD] = {"mask-odd", "polygons that end with an x without its y", "that x is ignored", "annotation"},
    [DEFECT_MASK_SIZE] = {"mask-size", "run-length masks of another size than their image", "their box stands in",
                          "annotation"},
    [DEFECT_MASK_EMPTY] = {"mask-empty", "masks that cover no pixel of their image",
                           "the box is learnt, with an empty mask", "annotation"},
    [DEFECT_MASK_UNIT] = {"mask-unit", "polygons whose coordinates are all from 0 to 1, as of bitmaps or fractions",
                          "taken as pixels: the mask is at most one; COCO's polygons are x y x y … in pixels",
                          "annotation"},
    [DEFECT_MISSING] = {"missing", "image files that are not there",
                        "replaced by another image in training, left out in evaluation; --strict stops", "image"},
    [DEFECT_FILE] = {"file", "image files that cannot be decoded or have another size than the annotations say",
                     "replaced by another image in training, left out in evaluation; --strict stops", "image"},
};

// ---- one annotation -------------------------------------------------------------------------------------------------

static uint32_t bit(Defect kind, bool found) { return found ? 1u << kind : 0; }

// What shows without rasterising. Crowds are no training targets: only whether their masks can be read matters.
static uint32_t ann_defects(const CocoAnn *a, const CocoImage *im, bool is_object) {
  const double *b = a->bbox;
  bool beyond = b[0] < -1 || b[1] < -1 || b[0] + b[2] > im->w + 1. || b[1] + b[3] > im->h + 1.;
  bool unit =
      a->kind == SEG_POLYGONS && a->extent[0] >= 0 && a->extent[1] >= 0 && a->extent[2] <= 1 && a->extent[3] <= 1;
  bool other_size = a->kind == SEG_RLE && (a->rle_h != im->h || a->rle_w != im->w);
  return bit(DEFECT_ANN_ID, a->replaced) | bit(DEFECT_NO_CATEGORY, a->category < 0) |
         bit(DEFECT_MASK_BAD, a->bad_segmentation) | bit(DEFECT_MASK_ODD, a->odd_polygon) |
         bit(DEFECT_BOX_BEYOND, is_object && a->has_bbox && beyond) |
         bit(DEFECT_MASK_NONE, is_object && a->kind == SEG_NONE && !a->bad_segmentation) |
         bit(DEFECT_MASK_SIZE, is_object && other_size) | bit(DEFECT_MASK_UNIT, is_object && unit) |
         bit(DEFECT_BOX_EMPTY, !is_object && !a->crowd && a->category >= 0);
}

// Whether the two boxes, x1 y1 x2 y2, overlap by less than half of what both cover.
static bool apart(const double a[4], const double b[4]) {
  double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  double both = fmax(w, 0) * fmax(h, 0);
  return 2 * both < (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
}

// What the mask's pixels tell. Below 8 pixels a side, rounding to pixels alone can set box and mask apart.
static uint32_t mask_defects(const Dataset *d, int i, const Object *o, bool *corners) {
  const CocoImage *im = &d->coco.images[d->image[i]];
  const CocoAnn *a = &d->coco.anns[o->ann];
  Rle mask;
  if (!coco_ann_rle(&d->coco, a, im->h, im->w, &mask)) return 0;
  double m[4];
  rle_bbox(&mask, m);
  rle_free(&mask);
  if (m[2] == 0) return bit(DEFECT_MASK_EMPTY, true);
  if (!a->has_bbox || fmin(m[2], m[3]) < 8) return 0;
  const double of_mask[4] = {m[0], m[1], m[0] + m[2], m[1] + m[3]};
  const double of_box[4] = {o->box[0], o->box[1], o->box[2], o->box[3]};
  if (!apart(of_mask, of_box)) return 0;
  *corners = a->bbox[2] > a->bbox[0] && a->bbox[3] > a->bbox[1] && !apart(of_mask, a->bbox);
  return bit(DEFECT_BOX_APART, true);
}

// ---- all of them ----------------------------------------------------------------------------------------------------

// What the pass over files and masks keeps of one image until all are through.
typedef struct Look {
  double ms;
  int corners;
  bool turned;
} Look;

static void look_at_file(Defects *f, const Dataset *d, int i, Look *look) {
  Image im;
  Err err;
  double start = now_seconds();
  if (dataset_image(d, i, &im, &err)) {
    look->ms = 1e3 * (now_seconds() - start);
    image_free(&im);
  } else {
    f->reason[i] = xstrdup(err.msg);
  }
  char *path = dataset_path(d, i);
  size_t size;
  char *bytes = path_is_file(path) ? file_read(path, &size, NULL) : NULL; // a pipe would be waited for
  if (bytes) {
    look->turned = image_orientation((const uint8_t *)bytes, size) > 1;
    f->file_key[i] = (uint64_t)size << 32 | crc32_z(0, (const uint8_t *)bytes, size);
  }
  free(bytes);
  free(path);
}

static int compare_double(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void look_at_images(Defects *f, const Dataset *d, uint32_t *of_ann, void (*progress)(int done, int total)) {
  Look *looks = xcalloc((size_t)d->num_images, sizeof *looks);
  int done = 0;
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < d->num_images; i++) {
    look_at_file(f, d, i, &looks[i]);
    for (int o = d->first_object[i]; o < d->first_object[i + 1]; o++) {
      bool corners = false;
      if (of_ann[d->object[o].ann] & bit(DEFECT_MASK_UNIT, true)) continue;
      of_ann[d->object[o].ann] |= mask_defects(d, i, &d->object[o], &corners);
      looks[i].corners += corners;
    }
#pragma omp critical
    if (progress) progress(++done, d->num_images);
  }
  double *ms = xmalloc((size_t)d->num_images * sizeof *ms);
  int decoded = 0;
  for (int i = 0; i < d->num_images; i++) {
    f->corners += looks[i].corners;
    f->turned += looks[i].turned;
    if (!f->reason[i]) ms[decoded++] = looks[i].ms;
  }
  qsort(ms, (size_t)decoded, sizeof *ms, compare_double);
  if (decoded) f->decode_ms = ms[decoded / 2];
  free(ms);
  free(looks);
}

static void count(Defects *f, int image, int64_t id, uint32_t defects) {
  f->of_image[image] |= defects;
  for (int k = 0; k < DEFECTS; k++)
    if (defects >> k & 1 && f->found[k].count++ == 0) {
      f->found[k].id = id;
      f->found[k].image = image;
    }
}

void defects_find(Defects *f, const Dataset *d, bool files, void (*progress)(int done, int total)) {
  const Coco *c = &d->coco;
  *f = (Defects){.of_image = xcalloc((size_t)c->num_images, sizeof *f->of_image),
                 .reason = xcalloc((size_t)d->num_images, sizeof *f->reason),
                 .file_key = xcalloc((size_t)d->num_images, sizeof *f->file_key)};
  f->found[DEFECT_IMAGE_ID] = (Finding){c->duplicate_images, c->duplicate_image, -1};
  f->found[DEFECT_CATEGORY_ID] = (Finding){c->duplicate_categories, c->duplicate_category, -1};
  f->found[DEFECT_NO_IMAGE] = (Finding){c->unknown_image, c->unknown_image_ann, -1};
  uint32_t *of_ann = xcalloc((size_t)c->num_anns, sizeof *of_ann);
  uint8_t *is_object = xcalloc((size_t)c->num_anns, sizeof *is_object);
  for (int o = 0; o < d->first_object[d->num_images]; o++) is_object[d->object[o].ann] = 1;
  for (int i = 0; i < c->num_images; i++)
    for (int a = c->images[i].first_ann; a < c->images[i].first_ann + c->images[i].anns; a++)
      if (!d->left_out[i]) of_ann[a] = ann_defects(&c->anns[a], &c->images[i], is_object[a]);
  if (files) look_at_images(f, d, of_ann, progress);
  for (int i = 0; i < d->num_images; i++)
    count(f, d->image[i], c->images[d->image[i]].id,
          d->absent[d->image[i]] ? bit(DEFECT_MISSING, true) : bit(DEFECT_FILE, f->reason[i] != NULL));
  for (int i = 0; i < c->num_images; i++) count(f, i, c->images[i].id, bit(DEFECT_FILE, d->left_out[i]));
  for (int i = 0; i < c->num_images; i++)
    for (int a = c->images[i].first_ann; a < c->images[i].first_ann + c->images[i].anns; a++)
      count(f, i, c->anns[a].id, of_ann[a]);
  free(of_ann);
  free(is_object);
}

void defects_free(Defects *f, const Dataset *d) {
  for (int i = 0; i < d->num_images; i++) free(f->reason[i]);
  free(f->of_image);
  free(f->reason);
  free(f->file_key);
  *f = (Defects){0};
}
