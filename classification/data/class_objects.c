#include "classification/data/class_objects.h"
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "base/wrap.h"

// The image's class, and the map from the canvas, which the image fills.
static int64_t write_class(const Dataset *d, const ImageSlot *p) {
  Batch *b = p->batch;
  ImageInfo *info = &b->info[p->position];
  const Size canvas = {p->canvas_h, p->canvas_w};
  info->rh = canvas.h;
  info->rw = canvas.w;
  const AugmentMap drawn = augment_classifier(p->augment, d->view, info->key, (Size){info->h, info->w}, canvas);
  info->flip = drawn.flip;
  if (p->augment)
    augment_colours(p->augment, info->key, b->bytes + info->offset, (Size){info->h, info->w}, &info->view);
  info->view.moved = 1;
  memcpy(info->view.map, drawn.map, sizeof drawn.map);
  b->count[p->position] = 1;
  b->label[(int64_t)p->position * b->capacity] = d->object[p->image].label;
  return 0;
}

static void print_set(const Dataset *d, FILE *out) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  fprintf(f, "data: %d training images, %d classes, input %d x %d (h x w)", d->num_images, d->classes, d->canvas[0].h,
          d->canvas[0].w);
  if (d->bad_images) fprintf(f, "; %d unusable images left out", d->bad_images);
  if (d->others) fprintf(f, "; %d files ignored: not named .jpg, .jpeg or .png", d->others);
  text_close(f);
  wrap_print(out, text, 0, 2, wrap_columns(out));
  free(text);
}

// Class 0 is an ordinary class: without an image the label is -1.
const ObjectType objects_of_classes = {.mapped = true, .no_label = -1, .write = write_class, .print = print_set};
