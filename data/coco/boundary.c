// Computes boundaries by one separable erosion with (2·distance + 1)² pixels: down the columns by shortening their
// spans, along the rows as an AND of columns of bits.
#include "data/coco/boundary.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/spans.h"

int boundary_distance(int h, int w) {
  const double diagonal = sqrt((double)h * h + (double)w * w);
  return MAX((int)rint(0.02 * diagonal), 1);
}

// The part of an image that contains a mask, as columns of bits: a column has `words` words of 64 rows; row y1 is bit
// 0.
typedef struct Columns {
  PixelRect in;
  int n; // columns
  size_t words;
} Columns;

// Sets the bits `from` … `end` - 1.
static void set_bits(uint64_t *column, int from, int end) {
  const int first = from / 64, last = (end - 1) / 64;
  const uint64_t head = UINT64_MAX << from % 64, tail = UINT64_MAX >> (63 - (end - 1) % 64);
  if (first == last) {
    column[first] |= head & tail;
    return;
  }
  column[first] |= head;
  for (int i = first + 1; i < last; i++) column[i] = UINT64_MAX;
  column[last] |= tail;
}

// Draws the spans, `less` pixels shorter at either end.
static void draw_spans(const Columns *c, const Spans *s, int less, uint64_t *bits) {
  memset(bits, 0, (size_t)c->n * c->words * sizeof *bits);
  for (int i = 0; i < s->n; i++) {
    const Span p = s->items[i];
    const int from = p.y + less - c->in.y1, end = p.end - less - c->in.y1;
    if (from < end) set_bits(bits + (size_t)(p.x - c->in.x1) * c->words, from, end);
  }
}

// ANDs each column with the one `step` to its right: a column that represented n columns, starting with itself, then
// represents n + step; step <= n. Columns past the last one are empty.
static void and_right(const Columns *c, uint64_t *bits, int step) {
  const size_t shift = MIN((size_t)step, (size_t)c->n) * c->words, all = (size_t)c->n * c->words;
  for (size_t i = 0; i + shift < all; i++) bits[i] &= bits[i + shift];
  memset(bits + (all - shift), 0, shift * sizeof *bits);
}

// Removes the erosion from the mask: column x represents the columns from x on, so it gives the erosion `distance` to
// the right of it.
static void remove_inside(const Columns *c, uint64_t *mask, uint64_t *eroded, int distance) {
  const int width = 2 * distance + 1;
  if (c->n < width) return;
  for (int n = 1, step; n < width; n += step) {
    step = MIN(n, width - n);
    and_right(c, eroded, step);
  }
  uint64_t *to = mask + (size_t)distance * c->words;
  for (size_t i = 0; i < (size_t)(c->n - distance) * c->words; i++) to[i] &= ~eroded[i];
}

// Adds the spans of a column of bits.
static void add_spans(const Columns *c, int column, const uint64_t *bits, Spans *to, size_t *cap) {
  bool open = false; // the last span continues
  for (size_t word = 0; word < c->words; word++) {
    const int row = c->in.y1 + 64 * (int)word;
    for (uint64_t changes = open ? ~bits[word] : bits[word]; changes;) {
      const int bit = __builtin_ctzll(changes);
      if (open) {
        to->items[to->n - 1].end = row + bit;
      } else {
        array_reserve((void **)&to->items, cap, (size_t)to->n + 1, sizeof *to->items);
        to->items[to->n++] = (Span){c->in.x1 + column, row + bit, c->in.y2};
      }
      open = !open;
      changes = ~changes & UINT64_MAX << bit;
    }
  }
}

Rle rle_boundary(const Rle *mask, int distance) {
  Spans spans = spans_of(mask, 0, 0), rim = {0};
  Columns c = {.in = spans_extent(&spans)};
  c.n = c.in.x2 - c.in.x1;
  c.words = ((size_t)(c.in.y2 - c.in.y1) + 63) / 64;
  uint64_t *bits = xmalloc(2 * (size_t)c.n * c.words * sizeof *bits), *eroded = bits + (size_t)c.n * c.words;
  draw_spans(&c, &spans, 0, bits);
  draw_spans(&c, &spans, distance, eroded);
  remove_inside(&c, bits, eroded, distance);
  size_t cap = 0;
  for (int x = 0; x < c.n; x++) add_spans(&c, x, bits + (size_t)x * c.words, &rim, &cap);
  const Rle out = spans_rle(&rim, mask->h, mask->w);
  free(bits);
  spans_free(&spans);
  spans_free(&rim);
  return out;
}
