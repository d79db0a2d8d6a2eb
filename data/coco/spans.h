// Masks as spans: strips of a mask in single columns. Unlike runs they do not depend on an image's size: they can be
// moved, compared where two images overlap, and joined in the coordinates of a third.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/coco/rle.h"

typedef struct PixelRect {
  int x1, y1, x2, y2; // pixels x1 … x2 - 1, y1 … y2 - 1; empty if x2 <= x1 or y2 <= y1
} PixelRect;
PixelRect rect_common(PixelRect a, PixelRect b);
bool rect_empty(PixelRect r);

typedef struct Span {
  int x, y, end; // pixels (x, y) … (x, end - 1)
} Span;
typedef struct Spans {
  int n;
  Span *items; // ascending by x, then y; no two overlap. Owned
} Spans;

void spans_free(Spans *s);
// The spans of a mask whose upper left corner is at (left, top). A mask without pixels has no spans.
Spans spans_of(const Rle *r, int left, int top);
// Converts back to runs, in an image of h × w pixels, in the form that rle_from_bytes gives. Clips to the image.
Rle spans_rle(const Spans *s, int h, int w);
PixelRect spans_extent(const Spans *s); // the smallest that holds all; empty without spans
Spans spans_union(const Spans *a, const Spans *b);
int64_t spans_area(const Spans *s, PixelRect within);
int64_t spans_common_area(const Spans *a, const Spans *b, PixelRect within); // pixels that both have
// Row-major bytes of the pixels of `within`, 0 or 1.
void spans_bytes(const Spans *s, PixelRect within, uint8_t *mask);
// The mask in an image of h × w pixels, no larger than its own: a pixel belongs to it where at least half of what the
// pixel covers does. Caller frees.
Rle rle_shrink(const Rle *mask, int h, int w);
