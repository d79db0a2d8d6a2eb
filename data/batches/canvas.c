#include "data/batches/canvas.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// All in double, as in Python, where 800 / 289 · 289 truncates to 799.

static Size size_torchvision(const Resize *r, int h, int w) {
  double scale = MIN((double)r->size / MIN(h, w), (double)r->max_size / MAX(h, w));
  return (Size){(int)(h * scale), (int)(w * scale)};
}

static Size size_detectron2(const Resize *r, int h, int w) {
  double scale = (double)r->size / MIN(h, w);
  double rh = h < w ? r->size : scale * h, rw = h < w ? scale * w : r->size, longer = MAX(rh, rw);
  if (longer > r->max_size) {
    scale = r->max_size / longer;
    rh *= scale;
    rw *= scale;
  }
  return (Size){(int)(rh + 0.5), (int)(rw + 0.5)};
}

static Size size_benchmark(const Resize *r, int h, int w) {
  int size = r->size;
  double shorter = MIN(h, w), longer = MAX(h, w);
  if (longer / shorter * size > r->max_size) size = (int)rint(r->max_size * shorter / longer); // half to even
  if (w < h) return (Size){(int)((double)size * h / w), size};
  return (Size){size, (int)((double)size * w / h)};
}

void resize_shape(const Resize *r, int h, int w, int *rh, int *rw) {
  static Size (*const rules[])(const Resize *, int, int) = {size_torchvision, size_detectron2, size_benchmark};
  Size size = rules[r->rule](r, h, w);
  *rh = MAX(1, size.h);
  *rw = MAX(1, size.w);
}

bool sizes_parse(Sizes *s, const char *text, Err *err) {
  *s = (Sizes){0};
  for (const char *at = text; s->n < MAX_SIZES; at++) {
    char *end = NULL;
    long side = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
    if (side < 1 || side > MAX_SHORTER_SIDE || (*end != ',' && *end != '\0'))
      return err_set(err, "'%s': expected numbers from 1 to %d separated by commas, such as 640,672,704", text,
                     MAX_SHORTER_SIDE);
    s->side[s->n++] = (int)side;
    at = end;
    if (*at == '\0') return true;
  }
  return err_set(err, "'%s': more than %d numbers", text, MAX_SIZES);
}

int sizes_largest(const Sizes *s) {
  int largest = 0;
  for (int i = 0; i < s->n; i++) largest = MAX(largest, s->side[i]);
  return largest;
}

static int64_t area(Canvas c) { return (int64_t)c.h * c.w; }

static Canvas canvas_union(Canvas a, Canvas b) { return (Canvas){MAX(a.h, b.h), MAX(a.w, b.w), a.images + b.images}; }

static int64_t added_padding(Canvas a, Canvas b) {
  Canvas both = canvas_union(a, b);
  return both.images * area(both) - a.images * area(a) - b.images * area(b);
}

static int compare_canvas(const void *a, const void *b) {
  const Canvas *p = a, *q = b;
  return p->h != q->h ? (p->h > q->h) - (p->h < q->h) : (p->w > q->w) - (p->w < q->w);
}

static int round_up(int pixels) { return (pixels + CANVAS_MULTIPLE - 1) / CANVAS_MULTIPLE * CANVAS_MULTIPLE; }

// The distinct sizes, rounded up, with the number of images of each; ascending.
static int rounded_sizes(Canvas *canvas, const Size *size, int n) {
  for (int i = 0; i < n; i++) canvas[i] = (Canvas){round_up(size[i].h), round_up(size[i].w), 1};
  qsort(canvas, (size_t)n, sizeof *canvas, compare_canvas);
  int count = 0;
  for (int i = 0; i < n; i++) {
    if (count > 0 && compare_canvas(&canvas[count - 1], &canvas[i]) == 0)
      canvas[count - 1].images++;
    else
      canvas[count++] = canvas[i];
  }
  return count;
}

static int smallest_that_holds(const Canvas *canvas, int count, Size size) {
  int best = -1;
  for (int i = 0; i < count; i++)
    if (canvas[i].h >= size.h && canvas[i].w >= size.w && (best < 0 || area(canvas[i]) < area(canvas[best]))) best = i;
  return best;
}

// Assigns a canvas to each image and counts the images of each canvas.
static void assign_canvases(Canvas *canvas, int count, const Size *size, int n, uint8_t *canvas_of) {
  for (int i = 0; i < count; i++) canvas[i].images = 0;
  for (int i = 0; i < n; i++) {
    canvas_of[i] = (uint8_t)smallest_that_holds(canvas, count, size[i]);
    canvas[canvas_of[i]].images++;
  }
}

int canvas_choose(Canvas *canvas, int max, const Size *size, int n, uint8_t *canvas_of) {
  CHECK(max >= 1 && max <= MAX_CANVASES);
  Canvas *all = xmalloc((size_t)n * sizeof *all);
  int count = rounded_sizes(all, size, n);
  while (count > max) {
    int a = 0, b = 1;
    int64_t least = INT64_MAX;
    for (int i = 0; i < count; i++)
      for (int j = i + 1; j < count; j++) {
        int64_t added = added_padding(all[i], all[j]);
        if (added < least) {
          least = added;
          a = i;
          b = j;
        }
      }
    all[a] = canvas_union(all[a], all[b]);
    memmove(&all[b], &all[b + 1], (size_t)(count - b - 1) * sizeof *all);
    count--;
  }
  qsort(all, (size_t)count, sizeof *all, compare_canvas);
  assign_canvases(all, count, size, n, canvas_of);
  // A merged canvas loses the images that fit into smaller ones.
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (all[i].images > 0) canvas[kept++] = all[i];
  assign_canvases(canvas, kept, size, n, canvas_of);
  free(all);
  return kept;
}
