#include "data/batches/objects.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/output.h"
#include "base/text.h"
#include "base/wrap.h"
#include "data/batches/bitmap.h"
#include "data/batches/outline.h"
#include "data/batches/paste.h"

static void box_to_canvas(const float box[4], const ImageInfo *info, float extra, float out[4]) {
  // as torchvision's resize_boxes: float32 ratios of the integer sizes
  float ratio_w = (float)info->rw / (float)info->w, ratio_h = (float)info->rh / (float)info->h;
  float x1 = box[0] * ratio_w, x2 = box[2] * ratio_w;
  out[0] = info->flip ? (float)info->rw - x2 - extra : x1;
  out[1] = box[1] * ratio_h;
  out[2] = info->flip ? (float)info->rw - x1 - extra : x2;
  out[3] = box[3] * ratio_h;
}

// An object of a moved image is left out if less than a pixel of its box is to be seen in either direction, as by
// torchvision's SanitizeBoundingBoxes(min_size=1), or less than a tenth of its area, as by Ultralytics' box_candidates
// (area_thr=0.1). What shows of it is background.
static const double least_side = 1, least_share = 0.1;

// The box of what is seen. False: the object is left out.
static bool seen_box(const Outline *o, float extra, float out[4]) {
  if (!(o->x2 - o->x1 >= least_side && o->y2 - o->y1 >= least_side && o->visible >= least_share * o->whole))
    return false;
  out[0] = (float)o->x1;
  out[1] = (float)o->y1;
  out[2] = (float)o->x2 - extra;
  out[3] = (float)o->y2 - extra;
  return true;
}

// The corners of the object's box, cut off at the canvas.
static void outline_box(Outline *of, const float box[4], float extra) {
  const double x1 = (double)box[0], y1 = (double)box[1], x2 = (double)(box[2] + extra), y2 = (double)(box[3] + extra);
  outline_polygon(of, (double[]){x1, y1, x2, y1, x2, y2, x1, y2}, 4);
  of->x1 = fmax(of->left, 0);
  of->y1 = fmax(of->top, 0);
  of->x2 = fmin(of->right, of->w);
  of->y2 = fmin(of->bottom, of->h);
}

// The box of an object whose image was moved. False: it is left out.
static bool moved_box(const Dataset *d, int i, const Object *o, const ImageInfo *info, Scratch *scratch, float out[4]) {
  const CocoAnn *a = &d->coco.anns[o->ann];
  const bool has_mask = dataset_has_mask(d, i, o);
  Outline of = outline_begin(info->view.map, info->rw, info->rh);
  if (!has_mask || d->moved_boxes == MOVED_BOX) {
    outline_box(&of, o->box, d->box_extra);
  } else if (d->moved_boxes == MOVED_POLYGON && a->type == SEG_POLYGONS) {
    for (int p = a->first_part; p < a->first_part + a->parts; p++)
      outline_polygon(&of, d->coco.xy + d->coco.part_first[p], d->coco.part_points[p]);
  } else {
    scratch_reset(scratch);
    const Rle mask = dataset_mask_in(scratch, d, i, o);
    outline_mask(&of, &mask);
  }
  return seen_box(&of, d->box_extra, out);
}

// Where a polygon's point is on the canvas.
static void point_to_canvas(const Dataset *d, const ImageInfo *info, const Outline *moved, const double xy[2],
                            float out[2]) {
  const double ratio_w = (double)info->rw / info->w, ratio_h = (double)info->rh / info->h;
  double at[2] = {xy[0] * ratio_w, xy[1] * ratio_h};
  if (info->view.moved)
    outline_point(moved, xy, at);
  else if (info->flip)
    at[0] = info->rw - at[0] - d->box_extra;
  out[0] = (float)at[0];
  out[1] = (float)at[1];
}

// Writes polygons in the form of Bitmap; returns the number of words.
static int64_t write_polygons(const Dataset *d, const Object *o, const ImageInfo *info, uint32_t *words, int64_t room) {
  const Coco *c = &d->coco;
  const CocoAnn *a = &c->anns[o->ann];
  const Outline moved = outline_begin(info->view.map, info->rw, info->rh);
  int64_t n = 0;
  for (int p = a->first_part; p < a->first_part + a->parts; p++) {
    const double *xy = c->xy + c->part_first[p];
    CHECK(n + 1 + 2 * (int64_t)c->part_points[p] <= room);
    words[n++] = (uint32_t)c->part_points[p];
    for (int k = 0; k < c->part_points[p]; k++, n += 2) {
      float at[2];
      point_to_canvas(d, info, &moved, xy + 2 * k, at);
      memcpy(words + n, at, sizeof at);
    }
  }
  return n;
}

static int64_t pack_mask(const Rle *mask, Bitmap *window, uint32_t *words) {
  *window = bitmap_window(mask);
  bitmap_pack(mask, window, words);
  return bitmap_words(window->h, window->w);
}

static int64_t write_bitmap(const Dataset *d, int i, const Object *o, Scratch *scratch, Bitmap *window, uint32_t *words,
                            int64_t room) {
  scratch_reset(scratch);
  const Rle mask = dataset_mask_in(scratch, d, i, o);
  const Bitmap needs = bitmap_window(&mask);
  CHECK(bitmap_words(needs.h, needs.w) <= room);
  return pack_mask(&mask, window, words);
}

// Draws how the image is shown.
static void draw_view(const ImageSlot *p, ImageInfo *info) {
  const Size size = {info->h, info->w};
  const AugmentMap drawn = augment_detector(p->augment, info->key, size, (Size){info->rh, info->rw});
  info->view.moved = drawn.moved || p->pasted; // boxes of covered objects are those of what is seen
  info->flip = drawn.flip && !info->view.moved;
  if (info->view.moved) memcpy(info->view.map, drawn.map, sizeof drawn.map);
}

// Writes the mask of the object in row `row`, to words[room]; returns the number of words.
static int64_t write_mask(const Dataset *d, const ImageSlot *p, const Object *o, int64_t row, uint32_t *words,
                          int64_t room) {
  Bitmap *mask = &p->batch->bitmap[row];
  if (!dataset_has_mask(d, p->image, o)) {
    *mask = (Bitmap){.parts = NO_MASK};
    return 0;
  }
  const int parts = dataset_polygons(d, o);
  const int64_t used = parts ? write_polygons(d, o, &p->batch->info[p->position], words, room)
                             : write_bitmap(d, p->image, o, p->scratch, mask, words, room);
  mask->parts = parts;
  return used;
}

// Network pixels per pixel of an image, as it is resized without augmentation.
static double resize_factor(const Resize *r, Size size) {
  int h, w;
  resize_shape(r, size.h, size.w, &h, &w);
  return sqrt((double)h * w / ((double)size.h * size.w));
}

// Pastes objects of another image over it, and writes all that are left. As masks are no polygons once they are
// partly covered, all have bits, and boxes are those of the masks, whatever moved_boxes says.
static int64_t write_pasted(const Dataset *d, const ImageSlot *p) {
  Batch *b = p->batch;
  ImageInfo *info = &b->info[p->position];
  const double ratio =
      resize_factor(&p->resize, dataset_size(d, p->source)) / resize_factor(&p->resize, (Size){info->h, info->w});
  const int own = d->first_object[p->image + 1] - d->first_object[p->image];
  const int64_t first = (int64_t)p->position * b->capacity;
  uint32_t *words = b->bits + p->position * d->max_words;
  int objects, n = 0;
  int64_t used = 0;
  const PastedObject *object = paste_objects(d, p->augment, info->key, p->image, b->bytes + info->offset, p->source,
                                             p->pasted, ratio, b->capacity - own, p->scratch, &objects);
  for (int o = 0; o < objects; o++) {
    const PastedObject *q = &object[o];
    const int64_t row = first + n;
    Outline of = outline_begin(info->view.map, info->rw, info->rh);
    if (q->has_mask) {
      outline_mask(&of, &q->mask);
      of.whole = q->whole * outline_scale(&of);
    } else {
      outline_box(&of, q->object->box, d->box_extra);
    }
    const Bitmap window = q->has_mask ? bitmap_window(&q->mask) : (Bitmap){.parts = NO_MASK};
    if (p->masks && bitmap_words(window.h, window.w) > d->max_words - used) continue;
    if (!seen_box(&of, d->box_extra, b->box + 4 * row)) continue;
    b->label[row] = q->object->label;
    n++;
    if (!p->masks) continue;
    if (q->has_mask)
      used += pack_mask(&q->mask, &b->bitmap[row], words + used);
    else
      b->bitmap[row] = window;
    b->bitmap[row].offset = used - bitmap_words(window.h, window.w);
  }
  b->count[p->position] = n;
  return used;
}

static int64_t write_objects(const Dataset *d, const ImageSlot *p) {
  Batch *b = p->batch;
  const int i = p->image, position = p->position;
  ImageInfo *info = &b->info[position];
  resize_shape(&p->resize, info->h, info->w, &info->rh, &info->rw);
  CHECK(info->rh <= p->canvas_h && info->rw <= p->canvas_w);
  if (p->augment) draw_view(p, info);
  const int64_t pasted = p->pasted ? write_pasted(d, p) : 0;
  if (p->augment)
    augment_colours(p->augment, info->key, b->bytes + info->offset, (Size){info->h, info->w}, &info->view);
  if (p->pasted) return pasted;
  const int64_t first = (int64_t)position * b->capacity;
  int64_t words = 0;
  int n = 0;
  for (const Object *o = d->object + d->first_object[i]; o < d->object + d->first_object[i + 1]; o++) {
    const int64_t row = first + n;
    float *box = b->box + 4 * row;
    if (!info->view.moved)
      box_to_canvas(o->box, info, d->box_extra, box);
    else if (!moved_box(d, i, o, info, p->scratch, box))
      continue;
    b->label[row] = o->label;
    n++;
    if (!p->masks) continue;
    const int64_t used = write_mask(d, p, o, row, b->bits + position * d->max_words + words, d->max_words - words);
    b->bitmap[row].offset = words;
    words += used;
  }
  b->count[position] = n;
  return words;
}

static void print_set(const Dataset *d, FILE *out) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fprintf(f, "data: %d training images, %d categories, at most %d objects per image", d->num_images, d->classes - 1,
          d->max_objects);
  const int left_out = dataset_empty_left_out(d);
  const struct {
    int n;
    const char *what;
  } odd[] = {
      {d->bad_images, "unusable images left out"},
      {left_out, "without objects left out (--keep-empty uses them)"},
      {d->without_objects - left_out, "of them without objects"},
      {d->crowds, "crowd annotations left out"},
  };
  for (int i = 0; i < COUNT(odd); i++)
    if (odd[i].n) fprintf(f, "; %d %s", odd[i].n, odd[i].what);
  text_close(f);
  wrap_print(out, text, 0, 2, wrap_columns(out));
  free(text);
  if (d->coco.origin) line_print(out, "annotations: %s", d->coco.origin);
  for (int i = 0; i < d->num_canvases; i++) fprintf(out, "canvas %d x %d (h x w)\n", d->canvas[i].h, d->canvas[i].w);
}

const ObjectType objects_with_masks = {.write = write_objects, .print = print_set};
