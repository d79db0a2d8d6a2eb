#include "data/import/masks.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

Rle mask_placed(const uint8_t *bytes, int rows, int columns, int x, int y, int h, int w) {
  uint8_t *mask = xcalloc((size_t)h * (size_t)w, 1);
  const int64_t first = MAX(0, -(int64_t)x), end = MIN(columns, (int64_t)w - x); // columns that lie inside
  for (int64_t r = MAX(0, -(int64_t)y); first < end && r < MIN(rows, (int64_t)h - y); r++)
    memcpy(mask + (r + y) * w + x + first, bytes + r * columns + first, (size_t)(end - first));
  const Rle rle = rle_from_bytes(mask, h, w);
  free(mask);
  return rle;
}

Rle mask_of_samples(const Samples *s, bool alpha, int x, int y, int h, int w) {
  const size_t pixels = (size_t)s->h * (size_t)s->w;
  const int n = s->channels, colors = n % 2 ? n : n - 1;
  uint8_t *bytes = xmalloc(pixels);
  const uint32_t *v = s->v;
  const bool clears = alpha && s->indexed && memchr(s->clear, true, sizeof s->clear);
  for (size_t i = 0; i < pixels; i++, v += n) {
    uint32_t any = 0;
    for (int k = 0; k < colors; k++) any |= v[k];
    if (alpha && colors < n) any = v[colors];
    if (clears) any = !s->clear[v[0] & 255];
    bytes[i] = any != 0;
  }
  const Rle rle = mask_placed(bytes, s->h, s->w, x, y, h, w);
  free(bytes);
  return rle;
}

uint32_t *values_of_samples(const Samples *s, bool *colours) {
  const size_t pixels = (size_t)s->h * (size_t)s->w;
  const int n = s->channels, down = s->bits > 8 ? s->bits - 8 : 0;
  uint32_t *values = xmalloc(pixels * sizeof *values);
  const uint32_t *v = s->v;
  *colours = false;
  for (size_t i = 0; n >= 3 && i < pixels; i++) {
    const uint32_t *p = v + i * (size_t)n;
    *colours |= p[0] != p[1] || p[1] != p[2];
  }
  for (size_t i = 0; i < pixels; i++, v += n)
    values[i] = *colours ? (v[0] >> down) << 16 | (v[1] >> down) << 8 | v[2] >> down : v[0];
  return values;
}

// ---- pieces ---------------------------------------------------------------------------------------------------------

static uint32_t root_of(uint32_t *parent, uint32_t i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

static void join(uint32_t *parent, uint32_t a, uint32_t b) {
  a = root_of(parent, a);
  b = root_of(parent, b);
  parent[MAX(a, b)] = MIN(a, b);
}

int values_split(uint32_t *v, int h, int w, uint32_t **class_of) {
  const size_t pixels = (size_t)h * (size_t)w;
  uint32_t *parent = xmalloc((pixels + 1) * sizeof *parent);
  for (size_t i = 0; i < pixels; i++) parent[i] = (uint32_t)i;
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      const size_t i = (size_t)y * (size_t)w + (size_t)x;
      if (v[i] == 0) continue;
      if (x > 0 && v[i - 1] == v[i]) join(parent, (uint32_t)i, (uint32_t)i - 1);
      for (int d = -1; y > 0 && d <= 1; d++)
        if (x + d >= 0 && x + d < w && v[i - (size_t)w + (size_t)d] == v[i])
          join(parent, (uint32_t)i, (uint32_t)(i - (size_t)w + (size_t)d));
    }
  int n = 0;
  size_t cap = 0;
  *class_of = NULL;
  array_reserve((void **)class_of, &cap, 1, sizeof **class_of);
  for (size_t i = 0; i < pixels; i++) { // a root is before what it is the root of
    if (v[i] == 0) continue;
    const uint32_t root = root_of(parent, (uint32_t)i);
    if (root == i) {
      array_reserve((void **)class_of, &cap, (size_t)n + 2, sizeof **class_of);
      (*class_of)[++n] = v[i];
      v[i] = (uint32_t)n;
    } else {
      v[i] = v[root];
    }
  }
  free(parent);
  return n;
}

// ---- values ---------------------------------------------------------------------------------------------------------

typedef struct ValueRun {
  uint32_t value, first, length; // column by column
} ValueRun;

static int by_value(const void *a, const void *b) {
  const ValueRun *p = a, *q = b;
  if (p->value != q->value) return p->value < q->value ? -1 : 1;
  return (p->first > q->first) - (p->first < q->first);
}

static Rle rle_of_runs(const ValueRun *run, size_t n, int h, int w) {
  Rle r = {h, w, 0, xmalloc((2 * n + 1) * sizeof(uint32_t))};
  uint32_t at = 0;
  for (size_t i = 0; i < n; i++) {
    if (i > 0 && run[i].first == at) { // of the next column
      r.runs[r.n - 1] += run[i].length;
    } else {
      r.runs[r.n++] = run[i].first - at;
      r.runs[r.n++] = run[i].length;
    }
    at = run[i].first + run[i].length;
  }
  const uint32_t pixels = (uint32_t)h * (uint32_t)w;
  if (at < pixels) r.runs[r.n++] = pixels - at;
  return r;
}

int masks_by_value(const uint32_t *v, int h, int w, ValueMask **masks) {
  ValueRun *run = NULL;
  size_t n = 0, cap = 0, masks_cap = 0;
  int count = 0;
  for (int x = 0; x < w; x++)
    for (int y = 0; y < h;) {
      const uint32_t value = v[(size_t)y * (size_t)w + (size_t)x];
      int end = y + 1;
      while (end < h && v[(size_t)end * (size_t)w + (size_t)x] == value) end++;
      if (value != 0) {
        array_reserve((void **)&run, &cap, n + 1, sizeof *run);
        run[n++] = (ValueRun){value, (uint32_t)x * (uint32_t)h + (uint32_t)y, (uint32_t)(end - y)};
      }
      y = end;
    }
  if (n > 0) qsort(run, n, sizeof *run, by_value);
  *masks = NULL;
  for (size_t i = 0; i < n;) {
    size_t end = i;
    while (end < n && run[end].value == run[i].value) end++;
    array_reserve((void **)masks, &masks_cap, (size_t)count + 1, sizeof **masks);
    (*masks)[count++] = (ValueMask){run[i].value, rle_of_runs(run + i, end - i, h, w)};
    i = end;
  }
  free(run);
  return count;
}
