#include "data/batches/objects.h"
#include <stdlib.h>
#include <string.h>
#include "base/output.h"
#include "base/text.h"
#include "base/wrap.h"
#include "data/batches/bitmap.h"

static void box_to_canvas(const float box[4], const ImageInfo *info, float extra, float out[4]) {
  // as torchvision's resize_boxes: float32 ratios of the integer sizes
  float ratio_w = (float)info->rw / (float)info->w, ratio_h = (float)info->rh / (float)info->h;
  float x1 = box[0] * ratio_w, x2 = box[2] * ratio_w;
  out[0] = info->flip ? (float)info->rw - x2 - extra : x1;
  out[1] = box[1] * ratio_h;
  out[2] = info->flip ? (float)info->rw - x1 - extra : x2;
  out[3] = box[3] * ratio_h;
}

// Writes polygons in the form of Bitmap; returns the number of words.
static int64_t write_polygons(const Dataset *d, const Object *o, const ImageInfo *info, uint32_t *words, int64_t room) {
  const Coco *c = &d->coco;
  const CocoAnn *a = &c->anns[o->ann];
  double ratio_w = (double)info->rw / info->w, ratio_h = (double)info->rh / info->h;
  int64_t n = 0;
  for (int p = a->first_part; p < a->first_part + a->parts; p++) {
    const double *xy = c->xy + c->part_first[p];
    CHECK(n + 1 + 2 * (int64_t)c->part_points[p] <= room);
    words[n++] = (uint32_t)c->part_points[p];
    for (int k = 0; k < c->part_points[p]; k++, n += 2) {
      double x = xy[2 * k] * ratio_w;
      float at[2] = {(float)(info->flip ? info->rw - x - d->box_extra : x), (float)(xy[2 * k + 1] * ratio_h)};
      memcpy(words + n, at, sizeof at);
    }
  }
  return n;
}

static int64_t write_bitmap(const Dataset *d, int i, const Object *o, Scratch *scratch, Bitmap *window, uint32_t *words,
                            int64_t room) {
  scratch_reset(scratch);
  Rle mask = dataset_mask_in(scratch, d, i, o);
  *window = bitmap_window(&mask);
  CHECK(bitmap_words(window->h, window->w) <= room);
  bitmap_pack(&mask, window, words);
  return bitmap_words(window->h, window->w);
}

static int64_t write_objects(const Dataset *d, const ImageSlot *p) {
  Batch *b = p->batch;
  const int i = p->image, position = p->position;
  ImageInfo *info = &b->info[position];
  resize_shape(&p->resize, info->h, info->w, &info->rh, &info->rw);
  CHECK(info->rh <= p->canvas_h && info->rw <= p->canvas_w);
  const Object *object = d->object + d->first_object[i];
  const int64_t first = (int64_t)position * b->capacity;
  int64_t words = 0;
  b->count[position] = d->first_object[i + 1] - d->first_object[i];
  for (int o = 0; o < b->count[position]; o++) {
    box_to_canvas(object[o].box, info, d->box_extra, b->box + 4 * (first + o));
    b->label[first + o] = object[o].label;
    if (!p->masks) continue;
    Bitmap *mask = &b->bitmap[first + o];
    uint32_t *to = b->bits + position * d->max_words + words;
    int64_t room = d->max_words - words;
    if (!dataset_has_mask(d, i, &object[o])) {
      *mask = (Bitmap){.parts = NO_MASK};
      continue;
    }
    int parts = dataset_polygons(d, &object[o]);
    int64_t used = parts ? write_polygons(d, &object[o], info, to, room)
                         : write_bitmap(d, i, &object[o], p->scratch, mask, to, room);
    mask->offset = words;
    mask->parts = parts;
    words += used;
  }
  return words;
}

static void print_set(const Dataset *d, FILE *out) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fprintf(f, "data: %d training images, %d categories, at most %d objects per image", d->num_images, d->classes - 1,
          d->max_objects);
  const struct {
    int n;
    const char *what;
  } odd[] = {
      {d->bad_images, "unusable images left out"},
      {d->without_objects, "images without objects"},
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
