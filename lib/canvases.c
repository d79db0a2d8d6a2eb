#include "lib/canvases.h"

int canvases_side(int side) { return (side + CANVAS_MULTIPLE - 1) / CANVAS_MULTIPLE * CANVAS_MULTIPLE; }

static int canvases_add(Canvas *canvas, int n, int h, int w) {
  for (int i = 0; i < n; i++)
    if (canvas[i].h == h && canvas[i].w == w) return n;
  canvas[n] = (Canvas){.h = h, .w = w};
  return n + 1;
}

int canvases_up_to(const Resize *r, int longest, Canvas canvas[MAX_CANVASES]) {
  static const int ratios[][2] = {{1, 1}, {3, 4}, {2, 3}}; // height and width
  const int large = 4096;
  int n = 0;
  for (int upright = 0; upright < 2; upright++) {
    for (int i = 0; i < COUNT(ratios); i++) {
      int h, w;
      resize_shape(r, ratios[i][upright] * large, ratios[i][!upright] * large, &h, &w);
      n = canvases_add(canvas, n, canvases_side(h), canvases_side(w));
    }
    const int least = canvases_side(r->size), most = canvases_side(MIN(r->max_size, longest));
    n = canvases_add(canvas, n, upright ? most : least, upright ? least : most);
  }
  return n;
}

int canvases_of(const Resize *r, Canvas canvas[MAX_CANVASES]) { return canvases_up_to(r, r->max_size, canvas); }

// The place of the smallest that holds h × w; -1: none does.
static int smallest(const Canvas *canvas, int n, int h, int w) {
  int best = -1;
  int64_t least = INT64_MAX;
  for (int i = 0; i < n; i++) {
    const int64_t area = (int64_t)canvas[i].h * canvas[i].w;
    if (canvas[i].h < h || canvas[i].w < w || area >= least) continue;
    best = i;
    least = area;
  }
  return best;
}

int canvases_place(const Resize *r, const Canvas *canvas, int n, int h, int w, int *rh, int *rw) {
  resize_shape(r, h, w, rh, rw);
  if (smallest(canvas, n, *rh, *rw) < 0) {
    *rh = MIN(*rh, r->max_size);
    *rw = MIN(*rw, r->max_size);
  }
  return smallest(canvas, n, *rh, *rw);
}
