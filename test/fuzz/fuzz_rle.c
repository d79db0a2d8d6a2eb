// Catches run-length masks that crash the functions on them, or break their contracts.
//
// Fuzzes run-length masks: COCO's strings, run lists, polygons, boxes, and what is computed from them. Seeds:
// test/corpus/rle. The first byte is the file's type: s a string, c a run list, p a polygon, b a box, P and B the same
// near the image; then come h and w, a byte each, and the rest.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/batches/bitmap.h"
#include "data/coco/rle.h"

static uint64_t sum_of(const Rle *r) {
  uint64_t sum = 0;
  for (int i = 0; i < r->n; i++) sum += r->runs[i];
  return sum;
}

static bool same_pixels(const Rle *a, const Rle *b) {
  size_t pixels = (size_t)a->h * (size_t)a->w;
  uint8_t *x = xmalloc(pixels), *y = xmalloc(pixels);
  rle_to_bytes(a, x);
  rle_to_bytes(b, y);
  bool same = !memcmp(x, y, pixels);
  free(x);
  free(y);
  return same;
}

// Bytes, string and bits hold the mask.
static void check_forms(const Rle *r) {
  uint8_t *bytes = xmalloc((size_t)r->h * (size_t)r->w);
  rle_to_bytes(r, bytes);
  Rle back = rle_from_bytes(bytes, r->h, r->w);
  CHECK(rle_area(&back) == rle_area(r) && same_pixels(&back, r));
  rle_free(&back);
  char *s = rle_to_string(r);
  CHECK(rle_from_string(&back, s, strlen(s), r->h, r->w, NULL) && back.n == r->n &&
        !memcmp(back.runs, r->runs, (size_t)r->n * sizeof *r->runs));
  rle_free(&back);
  free(s);
  free(bytes);
}

// The window holds all of the foreground, and nothing of the crop lies outside the image.
static void check_window(const Rle *r) {
  double box[4];
  rle_bbox(r, box);
  CHECK(box[0] >= 0 && box[1] >= 0 && box[0] + box[2] <= r->w && box[1] + box[3] <= r->h);
  CHECK((double)rle_area(r) <= box[2] * box[3]);
  Bitmap b = bitmap_window(r);
  uint32_t *bits = xmalloc((size_t)bitmap_words(b.h, b.w) * sizeof *bits);
  bitmap_pack(r, &b, bits);
  uint64_t set = 0;
  for (int64_t i = 0; i < bitmap_words(b.h, b.w); i++) set += (uint64_t)__builtin_popcount(bits[i]);
  CHECK(set == rle_area(r));
  free(bits);
}

// |A ∪ B| + |A ∩ B| = |A| + |B|, and their IoU follows from these.
static void check_pair(const Rle *a, const Rle *b) {
  Rle pair[2] = {*a, *b}, either = rle_merge(pair, 2, false), both = rle_merge(pair, 2, true);
  CHECK(rle_area(&either) + rle_area(&both) == rle_area(a) + rle_area(b));
  CHECK(sum_of(&either) == sum_of(a) && sum_of(&both) == sum_of(a));
  double iou, want = rle_area(&both) ? (double)rle_area(&both) / (double)rle_area(&either) : 0;
  rle_iou(a, 1, b, 1, NULL, &iou);
  CHECK(iou == want);
  rle_free(&either);
  rle_free(&both);
}

static void check(const Rle *a, const Rle *b) {
  CHECK(sum_of(a) == (uint64_t)a->h * (uint64_t)a->w);
  if (a->h == 0 || a->w == 0) return;
  check_forms(a);
  check_window(a);
  check_pair(a, b);
}

static Rle frame_of(int h, int w) { return rle_from_bbox((double[]){1, 1, w - 2, h - 2}, h, w); }

// The rest as numbers: doubles as they stand, which may be anything, or, with `small`, pairs of bytes as −64 … 448.
static double *numbers_of(const uint8_t *bytes, size_t size, bool small, int *n) {
  size_t each = small ? 2 : sizeof(double);
  *n = (int)(size / each);
  double *out = xmalloc((size_t)*n * sizeof *out);
  for (int i = 0; i < *n; i++) {
    if (small)
      out[i] = (bytes[2 * i] | bytes[2 * i + 1] << 8) / 128. - 64;
    else
      memcpy(&out[i], bytes + (size_t)i * each, each);
  }
  return out;
}

static Rle from_counts(const uint8_t *bytes, size_t size, int h, int w) {
  Rle r = {0};
  uint32_t *counts = xmalloc(size);
  memcpy(counts, bytes, size / 4 * 4);
  rle_from_counts(&r, counts, (int)(size / 4), h, w, NULL);
  free(counts);
  return r;
}

static Rle from_numbers(bool box, const uint8_t *bytes, size_t size, bool small, int h, int w) {
  int n;
  double *numbers = numbers_of(bytes, size, small, &n);
  Rle r = {0};
  if (!box)
    r = rle_from_polygon(numbers, n / 2, h, w);
  else if (n >= 4)
    r = rle_from_bbox(numbers, h, w);
  free(numbers);
  return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  enum { MAX_W = 32, MAX_BYTES = 512 }; // what is larger takes longer, nothing else
  if (size < 3 || size > MAX_BYTES) return 0;
  int h = bytes[1], w = bytes[2] % (MAX_W + 1);
  char form = (char)(bytes[0] | 0x20); // lower case
  bool small = form != (char)bytes[0];
  bytes += 3;
  size -= 3;
  Rle r = {0};
  if (form == 's')
    rle_from_string(&r, (const char *)bytes, size, h, w, NULL);
  else if (form == 'c')
    r = from_counts(bytes, size, h, w);
  else if (form == 'p' || form == 'b')
    r = from_numbers(form == 'b', bytes, size, small, h, w);
  if (r.runs) {
    Rle frame = frame_of(h, w);
    check(&r, &frame);
    rle_free(&frame);
  }
  rle_free(&r);
  return 0;
}
