#include "data/coco/spans.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

PixelRect rect_common(PixelRect a, PixelRect b) {
  return (PixelRect){MAX(a.x1, b.x1), MAX(a.y1, b.y1), MIN(a.x2, b.x2), MIN(a.y2, b.y2)};
}

bool rect_empty(PixelRect r) { return r.x2 <= r.x1 || r.y2 <= r.y1; }

void spans_free(Spans *s) {
  free(s->items);
  *s = (Spans){0};
}

// Spans under construction, in order. A span that begins where the last one ends extends it.
typedef struct Growth {
  Spans spans;
  size_t cap;
} Growth;

static void add(Growth *g, Span s) {
  Span *last = g->spans.n ? &g->spans.items[g->spans.n - 1] : NULL;
  if (last && last->x == s.x && last->end >= s.y) {
    last->end = MAX(last->end, s.end);
    return;
  }
  array_reserve((void **)&g->spans.items, &g->cap, (size_t)g->spans.n + 1, sizeof s);
  g->spans.items[g->spans.n++] = s;
}

Spans spans_of(const Rle *r, int left, int top) {
  Growth g = {0};
  uint32_t at = 0;
  const uint32_t h = (uint32_t)r->h;
  for (int i = 0; i < r->n; at += r->runs[i++]) {
    if (i % 2 == 0) continue;
    for (uint32_t from = at, end = at + r->runs[i]; from < end;) {
      const uint32_t column = from / h, y = from - column * h, length = MIN(end - from, h - y);
      add(&g, (Span){left + (int)column, top + (int)y, top + (int)(y + length)});
      from += length;
    }
  }
  return g.spans;
}

static Span clipped(Span s, PixelRect within) { return (Span){s.x, MAX(s.y, within.y1), MIN(s.end, within.y2)}; }

Rle spans_rle(const Spans *s, int h, int w) {
  Rle out = {.h = h, .w = w, .runs = xmalloc((2 * (size_t)s->n + 1) * sizeof *out.runs)};
  const PixelRect image = {0, 0, w, h};
  uint32_t at = 0; // where the last run ends
  for (int i = 0; i < s->n; i++) {
    const Span part = clipped(s->items[i], image);
    if (part.x < 0 || part.x >= w || part.end <= part.y) continue;
    const uint32_t begin = (uint32_t)part.x * (uint32_t)h + (uint32_t)part.y, length = (uint32_t)(part.end - part.y);
    if (out.n > 0 && begin == at) { // at the top of a column; the last span ends at the bottom of the column before
      out.runs[out.n - 1] += length;
    } else {
      out.runs[out.n++] = begin - at;
      out.runs[out.n++] = length;
    }
    at = begin + length;
  }
  const uint32_t rest = (uint32_t)h * (uint32_t)w - at;
  if (rest > 0 || out.n == 0) out.runs[out.n++] = rest;
  return out;
}

PixelRect spans_extent(const Spans *s) {
  if (s->n == 0) return (PixelRect){0};
  PixelRect r = {s->items[0].x, s->items[0].y, s->items[s->n - 1].x + 1, s->items[0].end};
  for (int i = 1; i < s->n; i++) {
    r.y1 = MIN(r.y1, s->items[i].y);
    r.y2 = MAX(r.y2, s->items[i].end);
  }
  return r;
}

static bool before(Span a, Span b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }

Spans spans_union(const Spans *a, const Spans *b) {
  Growth g = {0};
  for (int i = 0, k = 0; i < a->n || k < b->n;) {
    const bool first = k == b->n || (i < a->n && before(a->items[i], b->items[k]));
    add(&g, first ? a->items[i++] : b->items[k++]);
  }
  return g.spans;
}

int64_t spans_area(const Spans *s, PixelRect within) { return spans_common_area(s, s, within); }

// The first span from column x on.
static int first_from(const Spans *s, int x) {
  int low = 0, high = s->n;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (s->items[middle].x < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

int64_t spans_common_area(const Spans *a, const Spans *b, PixelRect within) {
  int64_t area = 0;
  int i = first_from(a, within.x1), k = first_from(b, within.x1);
  while (i < a->n && k < b->n && MAX(a->items[i].x, b->items[k].x) < within.x2) {
    const Span p = a->items[i], q = b->items[k];
    const Span both = clipped((Span){p.x, MAX(p.y, q.y), MIN(p.end, q.end)}, within);
    if (p.x == q.x) area += MAX(both.end - both.y, 0);
    if (p.x < q.x || (p.x == q.x && p.end <= q.end)) // the one that ends first overlaps nothing further
      i++;
    else
      k++;
  }
  return area;
}

void spans_bytes(const Spans *s, PixelRect within, uint8_t *mask) {
  if (rect_empty(within)) return;
  const size_t w = (size_t)(within.x2 - within.x1);
  memset(mask, 0, w * (size_t)(within.y2 - within.y1));
  for (int i = first_from(s, within.x1); i < s->n && s->items[i].x < within.x2; i++) {
    const Span part = clipped(s->items[i], within);
    uint8_t *pixel = mask + (size_t)(part.x - within.x1);
    for (int y = part.y; y < part.end; y++) pixel[(size_t)(y - within.y1) * w] = 1;
  }
}

// The small pixel that covers pixel `at` of n, of `small`; it begins at small pixel · n / small, rounded down.
static int covering(int at, int n, int small) { return (int)(((int64_t)(at + 1) * small - 1) / n); }
static int begin_of(int cell, int n, int small) { return (int)((int64_t)cell * n / small); }

// Only the mask's own pixels are touched.
Rle rle_shrink(const Rle *mask, int h, int w) {
  CHECK(h <= mask->h && w <= mask->w);
  if (mask->h == h && mask->w == w) return rle_copy(mask);
  Spans spans = spans_of(mask, 0, 0);
  uint32_t *inside = xcalloc((size_t)h * (size_t)w, sizeof *inside); // pixels of the mask in each small pixel
  uint8_t *small = xmalloc((size_t)h * (size_t)w);
  for (const Span *s = spans.items; s < spans.items + spans.n; s++)
    for (int y = s->y, cell = covering(y, mask->h, h); y < s->end; cell++) {
      const int end = MIN(begin_of(cell + 1, mask->h, h), s->end);
      inside[(size_t)cell * (size_t)w + (size_t)covering(s->x, mask->w, w)] += (uint32_t)(end - y);
      y = end;
    }
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      const size_t at = (size_t)y * (size_t)w + (size_t)x;
      const int rows = begin_of(y + 1, mask->h, h) - begin_of(y, mask->h, h);
      const int columns = begin_of(x + 1, mask->w, w) - begin_of(x, mask->w, w);
      small[at] = 2 * (uint64_t)inside[at] >= (uint64_t)rows * (uint64_t)columns;
    }
  Rle out = rle_from_bytes(small, h, w);
  spans_free(&spans);
  free(inside);
  free(small);
  return out;
}
