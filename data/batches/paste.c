#include "data/batches/paste.h"
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "data/batches/bitmap.h"
#include "data/batches/outline.h"
#include "exact/view.h"

// ---- cutting out ----------------------------------------------------------------------------------------------------

// How the image shows the source: its map is from the image's pixels to the source's.
static ImageView source_view(const Augment *a, uint64_t key, Size from, Size to, double ratio) {
  const Size shown = {MAX((int)rint(from.h * ratio), 1), MAX((int)rint(from.w * ratio), 1)};
  const AugmentMap of = augment_detector(a, key, from, shown);
  // Anywhere on the image or, if it is larger, any part of it.
  const float x = (float)(to.w - shown.w) * rng_uniform(rng_key(key, RNG_PASTE), 0);
  const float y = (float)(to.h - shown.h) * rng_uniform(rng_key(key, RNG_PASTE), 1);
  ImageView v = {.moved = 1};
  memcpy(v.map, of.map, sizeof v.map);
  v.map[2] -= v.map[0] * x + v.map[1] * y;
  v.map[5] -= v.map[3] * x + v.map[4] * y;
  return v;
}

typedef struct RunList { // foreground pixels, added in order
  Rle rle;
  uint32_t end; // of the last run
} RunList;

static void add_pixel(RunList *l, uint32_t at) {
  Rle *r = &l->rle;
  if (r->n == 0 || at != l->end) {
    r->runs[r->n++] = at - l->end;
    r->runs[r->n++] = 0;
  }
  r->runs[r->n - 1]++;
  l->end = at + 1;
}

static Rle finished(RunList *l) {
  const uint32_t all = (uint32_t)l->rle.h * (uint32_t)l->rle.w;
  if (l->end < all) l->rle.runs[l->rle.n++] = all - l->end;
  return l->rle;
}

// The mask as the image of size `to` shows it: of each pixel, the bit under its centre. False: nothing of it is there.
static bool shown_mask(Scratch *scratch, const Rle *mask, const ImageView *v, Size to, Rle *out, double *whole) {
  Outline o = outline_begin(v->map, to.w, to.h);
  outline_mask(&o, mask);
  *whole = o.whole;
  if (!(o.visible > 0)) return false;
  Bitmap window = bitmap_window(mask);
  const int pitch = (window.w + 31) / 32;
  uint32_t *bits = scratch_take(scratch, sizeof *bits * (size_t)bitmap_words(window.h, window.w));
  const int x1 = (int)floor(o.x1), x2 = MIN((int)ceil(o.x2), to.w), y1 = (int)floor(o.y1),
            y2 = MIN((int)ceil(o.y2), to.h);
  RunList list = {.rle = {.h = to.h, .w = to.w}};
  // A run and the gap before it take two pixels at least, but at the top of columns.
  const size_t runs = (size_t)(x2 - x1) * ((size_t)(y2 - y1) / 2 + 1) * 2 + 3;
  list.rle.runs = scratch_take(scratch, sizeof *list.rle.runs * runs);
  if (!bits || !list.rle.runs) return false; // scratch->lacking tells
  bitmap_pack(mask, &window, bits);
  for (int x = x1; x < x2; x++)
    for (int y = y1; y < y2; y++) {
      int row, column;
      if (!view_under(v, mask->h, mask->w, y, x, &row, &column)) continue;
      row -= window.y;
      column -= window.x;
      if (row < 0 || row >= window.h || column < 0 || column >= window.w) continue;
      if (bits[row * pitch + column / 32] >> (column % 32) & 1)
        add_pixel(&list, (uint32_t)x * (uint32_t)to.h + (uint32_t)y);
    }
  *out = finished(&list);
  return list.rle.n > 1;
}

// ---- pasting --------------------------------------------------------------------------------------------------------

static void paste_pixels(const Rle *mask, const ImageView *v, const uint8_t *from, Size from_size, uint8_t *rgb) {
  uint32_t at = 0;
  for (int run = 0; run < mask->n; at += mask->runs[run++])
    for (uint32_t k = 0; run % 2 && k < mask->runs[run]; k++) {
      const int x = (int)((at + k) / (uint32_t)mask->h), y = (int)((at + k) % (uint32_t)mask->h);
      float value[3];
      view_pixel(v, from, from_size.h, from_size.w, y, x, true, value);
      for (int c = 0; c < 3; c++) rgb[((size_t)y * mask->w + x) * 3 + c] = (uint8_t)(value[c] + 0.5f);
    }
}

static Rle complement(Scratch *scratch, const Rle *r) {
  Rle other = {.h = r->h, .w = r->w};
  const bool begins = r->n > 0 && r->runs[0] == 0; // with the foreground
  other.runs = scratch_take(scratch, sizeof *other.runs * ((size_t)r->n + 1));
  if (!other.runs) return other;
  if (!begins) other.runs[other.n++] = 0;
  for (int i = begins; i < r->n; i++) other.runs[other.n++] = r->runs[i];
  return other;
}

// The pasted objects, into `to`; returns their number.
static int paste_all(const Dataset *d, const ImageView *v, uint64_t key, uint8_t *rgb, Size size, int source,
                     const uint8_t *source_rgb, int most, Scratch *scratch, PastedObject *to) {
  const Object *object = d->object + d->first_object[source];
  const int objects = d->first_object[source + 1] - d->first_object[source];
  int n = 0;
  for (int o = 0; o < objects && n < most; o++) {
    if (rng_u32(rng_key(key, RNG_PASTE), (uint64_t)o + 2) & 1 || !dataset_has_mask(d, source, &object[o])) continue;
    PastedObject *p = &to[n];
    *p = (PastedObject){.object = &object[o], .pasted = true, .has_mask = true};
    const Rle mask = dataset_mask_in(scratch, d, source, &object[o]);
    if (!shown_mask(scratch, &mask, v, size, &p->mask, &p->whole)) continue;
    paste_pixels(&p->mask, v, source_rgb, dataset_size(d, source), rgb);
    n++;
  }
  return n;
}

// The image's own objects, without what is covered, into `to`; returns their number.
static int keep_own(const Dataset *d, int i, const Rle *uncovered, Scratch *scratch, PastedObject *to) {
  int n = 0;
  for (const Object *o = d->object + d->first_object[i]; o < d->object + d->first_object[i + 1]; o++) {
    PastedObject *p = &to[n];
    *p = (PastedObject){.object = o, .has_mask = dataset_has_mask(d, i, o)};
    if (p->has_mask) {
      p->mask = dataset_mask_in(scratch, d, i, o);
      p->whole = (double)rle_area(&p->mask);
      if (uncovered) p->mask = rle_merge_in(scratch, (Rle[]){p->mask, *uncovered}, 2, true);
      if (rle_area(&p->mask) == 0) continue;
    }
    n++;
  }
  return n;
}

PastedObject *paste_objects(const Dataset *d, const Augment *a, uint64_t key, int i, uint8_t *rgb, int source,
                            const uint8_t *source_rgb, double ratio, int most, Scratch *scratch, int *n) {
  const Size size = dataset_size(d, i);
  const int own = d->first_object[i + 1] - d->first_object[i];
  const uint64_t k = rng_key(key, RNG_PASTE); // draws of its own, not those of the image
  const ImageView v = source_view(a, k, dataset_size(d, source), size, ratio);
  *n = 0;
  scratch_reset(scratch);
  PastedObject *objects = scratch_take(scratch, sizeof *objects * (size_t)(own + MOST_PASTED));
  PastedObject *pasted = scratch_take(scratch, sizeof *pasted * MOST_PASTED);
  Rle *masks = scratch_take(scratch, sizeof *masks * MOST_PASTED);
  if (!objects || !pasted || !masks) return NULL;
  const int added = paste_all(d, &v, k, rgb, size, source, source_rgb, MIN(most, MOST_PASTED), scratch, pasted);
  for (int o = 0; o < added; o++) masks[o] = pasted[o].mask;
  Rle uncovered = {0};
  if (added) {
    const Rle covered = rle_merge_in(scratch, masks, added, false);
    uncovered = complement(scratch, &covered);
    if (!uncovered.runs) return NULL;
  }
  *n = keep_own(d, i, added ? &uncovered : NULL, scratch, objects);
  memcpy(objects + *n, pasted, sizeof *pasted * (size_t)added);
  *n += added;
  return objects;
}
