#include "data/batches/repeat.h"
#include <math.h>
#include <stdlib.h>
#include "base/alloc.h"

// Of object k: its label, from which a background is left out.
static int category_of(const Dataset *d, int k) { return d->object[k].label - (d->classes > d->coco.num_categories); }

// Of each category, the factor of the images that it is in.
static double *factors_of(const Dataset *d, double threshold) {
  const int n = d->coco.num_categories;
  double *factor = xcalloc((size_t)n, sizeof *factor);
  int *last = xmalloc((size_t)n * sizeof *last);
  for (int c = 0; c < n; c++) last[c] = -1;
  for (int i = 0; i < d->num_images; i++)
    for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++) {
      const int c = category_of(d, k);
      factor[c] += last[c] != i; // images first
      last[c] = i;
    }
  for (int c = 0; c < n; c++) factor[c] = factor[c] > 0 ? fmax(1, sqrt(threshold * d->num_images / factor[c])) : 1;
  free(last);
  return factor;
}

void repeat_images(Dataset *d, double threshold) {
  double *factor = factors_of(d, threshold), items = 0;
  int most = 0;
  for (int c = 0; c < d->coco.num_categories; c++)
    if (factor[c] > factor[most]) most = c;
  if (d->coco.num_categories && factor[most] > 1) {
    d->repeat = xmalloc((size_t)d->num_images * sizeof *d->repeat);
    for (int i = 0; i < d->num_images; i++) {
      double repeat = 1;
      for (int k = d->first_object[i]; k < d->first_object[i + 1]; k++)
        repeat = fmax(repeat, factor[category_of(d, k)]);
      d->repeat[i] = (float)repeat;
      items += (double)d->repeat[i];
    }
    notes_add(&d->notes,
              "an epoch has %.0f images instead of %d: those with rare categories are repeated, those with %s "
              "%.1f times",
              items, d->num_images, d->coco.categories[most].name, factor[most]);
  }
  free(factor);
}
