#include "inference/pixel_pool.h"
#include <stdlib.h>
#include "base/basics.h"

static void forget(PixelPool *p, int i) {
  p->bytes -= p->spare[i].room;
  p->n--;
  for (; i < p->n; i++) p->spare[i] = p->spare[i + 1];
}

static void free_oldest(PixelPool *p) {
  free(p->spare[0].rgb);
  forget(p, 0);
}

uint8_t *pixel_pool_take(PixelPool *p, size_t bytes, size_t *room) {
  int best = -1;
  for (int i = 0; i < p->n; i++) {
    const size_t has = p->spare[i].room;
    if (has >= bytes && has - bytes <= bytes / 8 && (best < 0 || has < p->spare[best].room)) best = i;
  }
  *room = best < 0 ? bytes : p->spare[best].room;
  uint8_t *rgb = best < 0 ? malloc(bytes) : p->spare[best].rgb;
  if (best >= 0) forget(p, best);
  if (rgb) return rgb;
  pixel_pool_shrink(p, 0);
  return malloc(bytes);
}

void pixel_pool_give(PixelPool *p, uint8_t *rgb, size_t room) {
  if (!rgb) return;
  if (p->n == COUNT(p->spare)) free_oldest(p);
  p->spare[p->n].rgb = rgb;
  p->spare[p->n++].room = room;
  p->bytes += room;
}

void pixel_pool_shrink(PixelPool *p, size_t bytes) {
  while (p->n && p->bytes > bytes) free_oldest(p);
}
