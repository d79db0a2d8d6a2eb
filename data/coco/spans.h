// Masks as spans, the strips of a mask in single columns. Other than runs they need no image round them: they can be
// moved, compared where two pictures overlap, and joined in the frame of a third.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "data/coco/rle.h"

typedef struct PixelRect {
  int x1, y1, x2, y2; // pixels x1 … x2 - 1, y1 … y2 - 1; empty where x2 <= x1 or y2 <= y1
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
// A mask whose upper left corner comes to (left, top). One that has no pixels makes no spans.
Spans spans_of(const Rle *r, int left, int top);
// Back to runs, in an image of h × w pixels, in the form that rle_from_bytes gives. What lies outside is cut off.
Rle spans_rle(const Spans *s, int h, int w);
PixelRect spans_extent(const Spans *s); // the smallest that holds all; empty without spans
Spans spans_union(const Spans *a, const Spans *b);
int64_t spans_area(const Spans *s, PixelRect within);
int64_t spans_common_area(const Spans *a, const Spans *b, PixelRect within); // pixels that both have
// Row-major bytes of the pixels of `within`, 0 or 1.
void spans_bytes(const Spans *s, PixelRect within, uint8_t *mask);
