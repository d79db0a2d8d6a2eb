#include "data/batches/bitmap.h"
#include <string.h>

int64_t bitmap_words(int h, int w) { return (int64_t)h * ((w + 31) / 32); }

Bitmap bitmap_window(const Rle *r) {
  double box[4];
  rle_bbox(r, box);
  return (Bitmap){.x = (int)box[0], .y = (int)box[1], .w = (int)box[2], .h = (int)box[3]};
}

void bitmap_pack(const Rle *r, const Bitmap *b, uint32_t *bits) {
  const int pitch = (b->w + 31) / 32;
  memset(bits, 0, (size_t)bitmap_words(b->h, b->w) * sizeof *bits);
  uint32_t at = 0;
  for (int run = 0; run < r->n; at += r->runs[run++]) {
    if (run % 2 == 0) continue;
    // A run goes down a column and may continue at the top of the next; within a column only the word's row changes.
    uint32_t left = r->runs[run];
    int y = (int)(at % (uint32_t)r->h), x = (int)(at / (uint32_t)r->h) - b->x;
    for (; left > 0; x++, y = 0) {
      int end = (int)MIN((uint32_t)(r->h - y), left) + y;
      uint32_t *word = bits + (int64_t)(y - b->y) * pitch + x / 32;
      left -= (uint32_t)(end - y);
      for (; y < end; y++, word += pitch) *word |= 1u << (x % 32);
    }
  }
}
