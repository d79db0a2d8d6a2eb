#include "data/survey/histograms.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"

enum { BINS_A_THREEFOLD = 4 };

double size_limit(int bin) { return 32 * pow(3, (double)(bin - SIZE_SMALL_BINS) / BINS_A_THREEFOLD); }

int size_bin(double size) {
  int bin = 0;
  while (bin + 1 < SIZE_BINS && size >= size_limit(bin + 1)) bin++;
  return bin;
}

// Sorts the values and counts each.
static Tally tally(int *value, int n) {
  Tally t = {.value = xmalloc((size_t)n * sizeof *t.value), .count = xmalloc((size_t)n * sizeof *t.count)};
  qsort(value, (size_t)n, sizeof *value, compare_int);
  for (int i = 0; i < n; i++) {
    if (i == 0 || value[i] != value[i - 1]) {
      t.value[t.n] = value[i];
      t.count[t.n++] = 0;
    }
    t.count[t.n - 1]++;
  }
  return t;
}

static const CocoImage *image_of(const Dataset *d, int i) { return &d->coco.images[d->image[i]]; }

static void take_sizes(Histograms *h, const Dataset *d, int i) {
  int rh, rw;
  const CocoImage *im = image_of(d, i);
  resize_shape(&d->resize, im->h, im->w, &rh, &rw);
  for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++) {
    const Object *o = &d->object[k];
    const double area = d->coco.anns[o->ann].area; // 0 in some files
    const double bw = (double)o->box[2] - (double)o->box[0], bh = (double)o->box[3] - (double)o->box[1];
    h->stored[size_bin(sqrt(area > 0 ? area : bw * bh))]++;
    h->resized[size_bin(sqrt(bw * rw / im->w * bh * rh / im->h))]++;
  }
}

void histograms_take(Histograms *h, const Dataset *d, bool objects) {
  *h = (Histograms){.objects = objects};
  const int left_out = objects ? d->without_objects : 0;
  int *value = xmalloc(((size_t)d->num_images + (size_t)left_out) * sizeof *value), n = 0;
  for (int i = 0; i < d->num_images; i++) value[i] = (int)lround(sqrt((double)image_of(d, i)->h * image_of(d, i)->w));
  h->image = tally(value, d->num_images);
  for (int i = 0; objects && i < d->num_images; i++) {
    const int count = d->first_object[i + 1] - d->first_object[i];
    take_sizes(h, d, i);
    if (count) value[n++] = count;
  }
  // Left_out counts all images without objects, even if they are kept.
  for (int i = 0; i < left_out; i++) value[n++] = 0;
  if (objects) h->per_image = tally(value, n);
  free(value);
}

void histograms_free(Histograms *h) {
  free(h->per_image.value);
  free(h->per_image.count);
  free(h->image.value);
  free(h->image.count);
  *h = (Histograms){0};
}
