#include "lib/canvases.h"
#include <string.h>

// The least side of a canvas that holds it.
static int round_up(int side) { return (side + CANVAS_MULTIPLE - 1) / CANVAS_MULTIPLE * CANVAS_MULTIPLE; }

static void add(CanvasSet *s, int h, int w) {
  for (int i = 0; i < s->n; i++)
    if (s->canvas[i].h == h && s->canvas[i].w == w) return;
  s->canvas[s->n++] = (Canvas){.h = h, .w = w};
}

// None has a side of more than `longest`, r->size at least.
static CanvasSet canvases_up_to(const Resize *r, int longest) {
  static const int ratios[][2] = {{1, 1}, {3, 4}, {2, 3}}; // height and width
  const int large = 4096;
  CanvasSet s = {.resize = *r};
  for (int upright = 0; upright < 2; upright++) {
    for (int i = 0; i < COUNT(ratios); i++) {
      int h, w;
      resize_shape(r, ratios[i][upright] * large, ratios[i][!upright] * large, &h, &w);
      add(&s, round_up(h), round_up(w));
    }
    const int least = round_up(r->size), most = round_up(MIN(r->max_size, longest));
    add(&s, upright ? most : least, upright ? least : most);
  }
  return s;
}

static CanvasSet of_list(const Resize *r, const Canvas *canvas, int n) {
  CanvasSet s = {.resize = *r, .n = n};
  memcpy(s.canvas, canvas, (size_t)n * sizeof *canvas);
  return s;
}

static CanvasSet one_square(const Resize *r) {
  CanvasSet s = of_list(r, &(Canvas){.h = r->size, .w = r->size}, 1);
  s.square = true;
  return s;
}

CanvasSet canvases_of(const Resize *r, bool square) { return square ? one_square(r) : canvases_up_to(r, r->max_size); }

CanvasSet canvases_of_most(const Resize *r, bool square) {
  return square ? one_square(r) : canvases_up_to(r, MIN(r->max_size, 2 * r->size));
}

CanvasSet canvases_given(const Resize *r, bool square, const Canvas *canvas, int n) {
  return square || !n ? canvases_of(r, square) : of_list(r, canvas, n);
}

CanvasSet canvases_for(const CanvasSet *s, int h, int w) {
  int rh, rw;
  if (s->square) return *s;
  resize_shape(&s->resize, h, w, &rh, &rw);
  return of_list(&s->resize, &(Canvas){.h = round_up(rh), .w = round_up(rw)}, 1);
}

// The index of the smallest that holds h × w; -1: none does.
static int smallest(const CanvasSet *s, int h, int w) {
  int best = -1;
  int64_t least = INT64_MAX;
  for (int i = 0; i < s->n; i++) {
    const Canvas *c = &s->canvas[i];
    const int64_t area = (int64_t)c->h * c->w;
    if (c->h < h || c->w < w || area >= least) continue;
    best = i;
    least = area;
  }
  return best;
}

int canvases_fit(const CanvasSet *s, int h, int w, int *rh, int *rw) {
  const Resize *r = &s->resize;
  if (s->square) {
    *rh = s->canvas[0].h;
    *rw = s->canvas[0].w;
    return 0;
  }
  resize_shape(r, h, w, rh, rw);
  if (smallest(s, *rh, *rw) < 0) {
    *rh = MIN(*rh, r->max_size);
    *rw = MIN(*rw, r->max_size);
  }
  return smallest(s, *rh, *rw);
}
