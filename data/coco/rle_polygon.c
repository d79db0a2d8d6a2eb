// Polygons to run-length masks, by the arithmetic of exact/polygon.h. Column-major order makes "from there down" a
// toggle of the runs: two crossings of a column cancel below the lower one.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "data/coco/rle.h"
#include "data/coco/run_builder.h"
#include "exact/polygon.h"

typedef struct Polygon {
  const double *xy;
  int points, h, w; // of the picture
} Polygon;

static PolygonEdge edge_of(const Polygon *p, int i) {
  const double *a = p->xy + 2 * (size_t)i, *b = i + 1 < p->points ? a + 2 : p->xy;
  return polygon_edge(polygon_fine(a[0]), polygon_fine(a[1]), polygon_fine(b[0]), polygon_fine(b[1]), p->w);
}

static void *take_zeroed(Scratch *scratch, size_t items, size_t bytes) {
  void *memory = scratch ? scratch_take(scratch, items * bytes) : xcalloc(items, bytes);
  if (!memory) die_of_memory(items * bytes, HERE);
  return memory;
}

// ---- few crossings: sorted ------------------------------------------------------------------------------------------

// Shellsort with Tokuda's gaps, which shrink by 9/4. The C library's qsort may allocate.
static void sort(uint32_t *v, size_t n) {
  size_t gap = 1;
  while (gap < n / 3) gap = gap * 9 / 4 + 1;
  for (; gap > 0; gap = gap * 4 / 9)
    for (size_t i = gap; i < n; i++) {
      uint32_t x = v[i];
      size_t at = i;
      for (; at >= gap && v[at - gap] > x; at -= gap) v[at] = v[at - gap];
      v[at] = x;
    }
}

// Pixels from which on a column toggles.
typedef struct Toggles {
  uint32_t *list;
  size_t n, cap;
} Toggles;

// False if there are more than `most`.
static bool list_toggles(Toggles *t, Scratch *scratch, const Polygon *p, size_t most) {
  for (int i = 0; i < p->points; i++) {
    const PolygonEdge e = edge_of(p, i);
    const size_t crossed = (size_t)MAX(e.end - e.first, 0);
    if (crossed > most - t->n) return false;
    run_reserve(scratch, &t->list, &t->cap, t->n + crossed);
    for (int x = e.first; x < e.end; x++)
      t->list[t->n++] = (uint32_t)x * (uint32_t)p->h + (uint32_t)polygon_crossing(&e, x, p->h);
  }
  return true;
}

// Ends a run at each pixel that is toggled an odd number of times; returns the last.
static uint32_t push_toggles(RunBuilder *mask, const Toggles *t, uint32_t pixels) {
  uint32_t begin = 0;
  for (size_t i = 0, same; i < t->n && t->list[i] < pixels; i += same) {
    for (same = 1; i + same < t->n && t->list[i + same] == t->list[i];) same++;
    if (same % 2 == 0) continue;
    push_run(mask, t->list[i] - begin);
    begin = t->list[i];
  }
  return begin;
}

// ---- many crossings: a tile of columns at a time --------------------------------------------------------------------

// An edge that crosses several columns in the same row toggles them at once. So a polygon takes time in proportion to
// its edges, each with as many tiles and rows as it passes, and to its pixels: not to edges times columns.
enum { WORD = 64, TILE_WORDS = 1 << 15 };

typedef struct FillTile {
  const Polygon *polygon;
  int words;       // of a row, each of 64 columns
  int column, end; // column … end - 1
  uint64_t *flips; // [h + 1, words] bits of the columns from which on the row is toggled, or not any more
  bool before;     // whether row h of the column before this tile is toggled
  char *touched;   // [h + 1] whether a row has flips
  uint32_t *row;   // [rows] that have, in order
  int rows;
  uint64_t *bits; // [h + 1] of a word: those of its rows that toggle any column, and
  uint32_t *at;   // [h + 1] which these are
} FillTile;

static uint64_t *word_of(FillTile *t, uint32_t y, int word) {
  return &t->flips[(size_t)y * (size_t)t->words + (size_t)word];
}

static void flip(FillTile *t, int y, int x) {
  const int bit = x - t->column;
  if (x < t->end) *word_of(t, (uint32_t)y, bit / WORD) ^= UINT64_C(1) << bit % WORD;
}

static void toggle_columns(FillTile *t, int y, int from, int to) { // to: the last
  flip(t, y, from);
  flip(t, y, to + 1);
  t->touched[y] = true;
}

// Columns from … to, which the edge crosses in rows y_from … y_to: these are monotone.
static void toggle_edge(FillTile *t, const PolygonEdge *e, int from, int y_from, int to, int y_to) {
  const int h = t->polygon->h;
  if (y_from == y_to) {
    toggle_columns(t, y_from, from, to);
  } else if (2 * abs(y_to - y_from) > to - from) { // nearly as many rows as columns
    toggle_columns(t, y_from, from, from);
    toggle_columns(t, y_to, to, to);
    for (int x = from + 1; x < to; x++) toggle_columns(t, polygon_crossing(e, x, h), x, x);
  } else {
    const int middle = (from + to) / 2;
    toggle_edge(t, e, from, y_from, middle, polygon_crossing(e, middle, h));
    toggle_edge(t, e, middle + 1, polygon_crossing(e, middle + 1, h), to, y_to);
  }
}

// Turns the flips of a row into its toggles: bit i becomes the exclusive or of bits 0 … i.
static void sum_flips(uint64_t *word, int words) {
  uint64_t last = 0;
  for (int i = 0; i < words; i++) {
    uint64_t sum = word[i];
    for (int shift = 1; sum && shift < WORD; shift *= 2) sum ^= sum << shift;
    word[i] = sum ^ last;
    last = -(word[i] >> (WORD - 1));
  }
}

static void end_run(RunBuilder *mask, uint32_t at, uint32_t *begin) {
  push_run(mask, at - *begin);
  *begin = at;
}

// The rows that toggle any of the 64 columns of a word, and in row 0 those that row h of the column before toggles:
// "down from row h" is down from the next column's first pixel. Clears the word.
static int gather_rows(FillTile *t, int word, int columns) {
  uint64_t *of_h = word_of(t, (uint32_t)t->polygon->h, word);
  int n = 0;
  *word_of(t, 0, word) ^= *of_h << 1 | (uint64_t)t->before;
  t->before = *of_h >> (columns - 1) & 1;
  *of_h = 0;
  for (int i = 0; i < t->rows; i++) {
    uint64_t *bits = word_of(t, t->row[i], word);
    if (!*bits) continue;
    t->bits[n] = *bits;
    t->at[n++] = t->row[i];
    *bits = 0;
  }
  return n;
}

static void sum_rows(FillTile *t) {
  const uint32_t h = (uint32_t)t->polygon->h;
  t->touched[0] = true; // by row h, perhaps
  t->rows = 0;
  for (char *at = t->touched; (at = memchr(at, true, (size_t)(t->touched + h + 1 - at))); at++) {
    const uint32_t y = (uint32_t)(at - t->touched);
    *at = false;
    t->row[t->rows++] = y;
    sum_flips(word_of(t, y, 0), t->words);
  }
}

// Column by column, ends a run at each toggled pixel, and clears the tile.
static void push_tile(RunBuilder *mask, FillTile *t, uint32_t *begin) {
  const uint32_t h = (uint32_t)t->polygon->h;
  sum_rows(t);
  for (int word = 0; t->column + word * WORD < t->end; word++) {
    const int first = t->column + word * WORD, columns = MIN(t->end - first, WORD);
    const int rows = gather_rows(t, word, columns);
    for (int c = 0; c < columns; c++)
      for (int i = 0; i < rows; i++)
        if (t->bits[i] >> c & 1) end_run(mask, (uint32_t)(first + c) * h + t->at[i], begin);
  }
}

// Edges by the tile in which they begin: those of tile i are order[first[i]] … order[first[i + 1] - 1]. first: zeroed.
static void sort_edges(const Polygon *p, int left, int columns, int tiles, uint32_t *first, uint32_t *order) {
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < p->points; i++) {
      const PolygonEdge e = edge_of(p, i);
      if (e.first >= e.end) continue;
      uint32_t *of = &first[(e.first - left) / columns];
      if (pass == 0)
        ++*of;
      else
        order[--*of] = (uint32_t)i;
    }
    for (int k = 0; pass == 0 && k < tiles; k++) first[k + 1] += first[k];
  }
}

// Columns left … right - 1 are crossed; returns the last pixel that is toggled.
static uint32_t push_tiles(RunBuilder *mask, const Polygon *p, int left, int right) {
  const size_t edges = (size_t)p->points, rows = (size_t)p->h + 1;
  const int words = (int)MIN(MAX(TILE_WORDS / rows, 1), (size_t)(right - left + WORD - 1) / WORD);
  const int columns = words * WORD, tiles = (right - left + columns - 1) / columns;
  Scratch *scratch = mask->scratch;
  uint32_t *first = take_zeroed(scratch, (size_t)tiles + 1, sizeof *first), begin = 0;
  uint32_t *order = take_zeroed(scratch, edges, sizeof *order), *active = take_zeroed(scratch, edges, sizeof *active);
  FillTile t = {.polygon = p,
                .words = words,
                .flips = take_zeroed(scratch, rows * (size_t)words, sizeof *t.flips),
                .touched = take_zeroed(scratch, rows, sizeof *t.touched),
                .row = take_zeroed(scratch, rows, sizeof *t.row),
                .bits = take_zeroed(scratch, rows, sizeof *t.bits),
                .at = take_zeroed(scratch, rows, sizeof *t.at)};
  size_t n = 0;
  sort_edges(p, left, columns, tiles, first, order);
  for (int i = 0; i < tiles; i++) {
    size_t kept = 0;
    t.column = left + i * columns;
    t.end = MIN(t.column + columns, right);
    for (uint32_t k = first[i]; k < first[i + 1]; k++) active[n++] = order[k];
    for (size_t k = 0; k < n; k++) {
      const PolygonEdge e = edge_of(p, (int)active[k]);
      const int from = MAX(e.first, t.column), to = MIN(e.end, t.end) - 1;
      toggle_edge(&t, &e, from, polygon_crossing(&e, from, p->h), to, polygon_crossing(&e, to, p->h));
      if (e.end > t.end) active[kept++] = active[k];
    }
    n = kept;
    push_tile(mask, &t, &begin);
  }
  if (t.before && right < p->w) end_run(mask, (uint32_t)right * (uint32_t)p->h, &begin);
  if (!scratch) {
    free(first);
    free(order);
    free(active);
    free(t.flips);
    free(t.touched);
    free(t.row);
    free(t.bits);
    free(t.at);
  }
  return begin;
}

// ---- polygons -------------------------------------------------------------------------------------------------------

static void crossed_columns(const Polygon *p, int *left, int *right) {
  *left = p->w;
  *right = 0;
  for (int i = 0; i < p->points; i++) {
    const PolygonEdge e = edge_of(p, i);
    if (e.first >= e.end) continue;
    *left = MIN(*left, e.first);
    *right = MAX(*right, e.end);
  }
}

Rle rle_from_polygon_in(Scratch *scratch, const double *xy, int points, int h, int w) {
  enum { FEW = 1 << 14, NARROW = 16 };
  const Polygon p = {xy, points, h, w};
  const uint32_t pixels = (uint32_t)h * (uint32_t)w;
  RunBuilder mask = {.scratch = scratch};
  Toggles t = {0};
  uint32_t last;
  bool listed = list_toggles(&t, scratch, &p, FEW);
  int left = 0, right = 0;
  if (!listed) crossed_columns(&p, &left, &right);
  if (!listed && right - left < NARROW) { // a tile would be larger than the picture
    t.n = 0;
    listed = list_toggles(&t, scratch, &p, SIZE_MAX);
  }
  if (listed) {
    sort(t.list, t.n);
    last = push_toggles(&mask, &t, pixels);
  } else {
    last = push_tiles(&mask, &p, left, right);
  }
  push_run(&mask, pixels - last);
  if (!scratch) free(t.list);
  return (Rle){h, w, mask.n, mask.run};
}

Rle rle_from_polygon(const double *xy, int points, int h, int w) { return rle_from_polygon_in(NULL, xy, points, h, w); }

Rle rle_from_bbox_in(Scratch *scratch, const double bbox[4], int h, int w) {
  double x0 = bbox[0], y0 = bbox[1], x1 = x0 + bbox[2], y1 = y0 + bbox[3];
  return rle_from_polygon_in(scratch, (double[]){x0, y0, x0, y1, x1, y1, x1, y0}, 4, h, w);
}

Rle rle_from_bbox(const double bbox[4], int h, int w) { return rle_from_bbox_in(NULL, bbox, h, w); }
