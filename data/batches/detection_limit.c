#include "data/batches/detection_limit.h"
#include "base/alloc.h"

int detection_limit_for(int objects) {
  enum { STEP = 100 };
  return MIN((objects / STEP + 1) * STEP, MOST_DETECTIONS);
}

static int objects_of(const Dataset *d, int image) { return d->first_object[image + 1] - d->first_object[image]; }

char *detection_limit_data(const Dataset *d, int limit) {
  int images = 0, fullest = 0;
  for (int i = 0; i < d->num_images; i++) {
    images += objects_of(d, i) >= limit;
    if (objects_of(d, i) > objects_of(d, fullest)) fullest = i;
  }
  if (!images) return NULL;
  const int most = objects_of(d, fullest);
  char raise[64] = "";
  if (limit < MOST_DETECTIONS)
    snprintf(raise, sizeof raise, "; raise the limit with --detections %d", detection_limit_for(most));
  return xasprintf("images with at least %d objects (the limit on detections per image): %d; %.80s has the most, %d%s",
                   limit, images, d->coco.images[d->image[fullest]].file_name, most, raise);
}

char *detection_limit_results(int at_limit, int images, int limit, double score) {
  if (!at_limit) return NULL;
  char of[64] = "", raise[64] = "";
  if (score > 0) snprintf(of, sizeof of, " with scores of at least %g", score);
  if (limit < MOST_DETECTIONS) snprintf(raise, sizeof raise, "; raise the limit with --detections N");
  return xasprintf("images at the limit of %d detections%s: %d of %d; objects may be missing%s", limit, of, at_limit,
                   images, raise);
}
