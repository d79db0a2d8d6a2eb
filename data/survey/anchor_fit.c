#include "data/survey/anchor_fit.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

enum { STEPS = 40, MOST_OBJECTS = 20000 }; // eighths of an octave, 4 to 128 pixels

typedef struct Sides {
  float w, h;
} Sides;

static Sides *sides_of(const Dataset *d) {
  Sides *s = xmalloc((size_t)d->first_object[d->num_images] * sizeof *s);
  for (int i = 0; i < d->num_images; i++) {
    int rh, rw;
    const CocoImage *im = &d->coco.images[d->image[i]];
    resize_shape(&d->resize, im->h, im->w, &rh, &rw);
    for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++) {
      const float *b = d->object[k].box;
      s[k] = (Sides){(b[2] - b[0]) * (float)rw / (float)im->w, (b[3] - b[1]) * (float)rh / (float)im->h};
    }
  }
  return s;
}

// Mean over n objects of the IoU with the best anchor around the same center, and the largest.
static double mean_iou(const Sides *s, int n, const float *size, const float *ratio, double *most) {
  const int count = MIN(n, MOST_OBJECTS);
  double sum = 0;
  *most = 0;
  for (int i = 0; i < count; i++) {
    const Sides *o = &s[(int64_t)i * n / count];
    float best = 0;
    for (int l = 0; l < FIT_LEVELS; l++)
      for (int r = 0; r < ANCHOR_RATIOS; r++) {
        const float h = size[l] * sqrtf(ratio[r]), w = size[l] / sqrtf(ratio[r]);
        const float both = fminf(o->w, w) * fminf(o->h, h);
        best = fmaxf(best, both / (o->w * o->h + w * h - both));
      }
    sum += (double)best;
    *most = fmax(*most, (double)best);
  }
  return sum / count;
}

bool anchor_fit(AnchorFit *fit, const Dataset *d, const float before[FIT_LEVELS], const float ratio[ANCHOR_RATIOS]) {
  const int n = d->first_object[d->num_images];
  *fit = (AnchorFit){0};
  memcpy(fit->size, before, sizeof fit->size);
  if (!n) return false;
  Sides *s = sides_of(d);
  double most;
  fit->iou_before = mean_iou(s, n, before, ratio, &fit->most_before);
  for (int i = 0; i <= STEPS; i++) {
    float size[FIT_LEVELS];
    for (int l = 0; l < FIT_LEVELS; l++) size[l] = roundf(4 * exp2f((float)i / 8)) * (float)(1 << l);
    const double iou = mean_iou(s, n, size, ratio, &most);
    if (iou <= fit->iou) continue;
    fit->iou = iou;
    memcpy(fit->size, size, sizeof size);
  }
  free(s);
  return true;
}
