#include "data/batches/augment.h"
#include <math.h>
#include "base/rng.h"

// The random quantities: each has its own number, so that removing one does not change the others.
enum { DRAW_ROTATE, DRAW_SHIFT_X, DRAW_SHIFT_Y, DRAW_SHEAR, DRAW_ZOOM_X, DRAW_ZOOM_Y, DRAW_CROPS };

static const double degree = 3.14159265358979323846 / 180;

typedef struct Window { // of the image, pixels
  double x, y, w, h;
} Window;

static Window centred(Size size, double w, double h) { return (Window){(size.w - w) / 2, (size.h - h) / 2, w, h}; }

static Window view_window(float view, Size size, Size canvas) {
  const double scale = fmin((double)size.w / canvas.w, (double)size.h / canvas.h) * (double)view;
  return centred(size, scale * canvas.w, scale * canvas.h);
}

static double draw(uint64_t key, uint64_t i, double low, double high) {
  return low + (high - low) * (double)rng_uniform(key, i);
}

static int draw_int(uint64_t key, uint64_t i, int n) { return (int)(rng_u32(key, i) % (uint32_t)n); }

static Window crop_window(float smallest, uint64_t key, Size size) {
  enum { TRIES = 10, DRAWS = 4 };
  static const double least = 3.0 / 4, most = 4.0 / 3;
  const double area = (double)size.h * size.w, shape = (double)size.w / size.h;
  for (int i = 0; i < TRIES; i++) {
    const uint64_t at = DRAW_CROPS + (uint64_t)i * DRAWS;
    const double part = area * draw(key, at, (double)smallest, 1);
    const double aspect = exp(draw(key, at + 1, log(least), log(most)));
    const int w = (int)rint(sqrt(part * aspect)), h = (int)rint(sqrt(part / aspect));
    if (w < 1 || h < 1 || w > size.w || h > size.h) continue;
    return (Window){draw_int(key, at + 2, size.w - w + 1), draw_int(key, at + 3, size.h - h + 1), w, h};
  }
  const double aspect = fmin(fmax(shape, least), most);
  return shape < aspect ? centred(size, size.w, rint(size.w / aspect)) : centred(size, rint(size.h * aspect), size.h);
}

// Both maps are about the canvas's centre: first m, then the crop window's position and scale.
void augment_map(const Augment *a, float view, uint64_t key, bool flip, Size size, Size canvas, float map[6]) {
  const Augment none = {0};
  if (!a) a = &none;
  const uint64_t k = rng_key(key, RNG_AUGMENT);
  const Window window = a->crop > 0 ? crop_window(a->crop, k, size) : view_window(view, size, canvas);
  const double angle = degree * draw(k, DRAW_ROTATE, -a->rotate, a->rotate);
  const double shear = tan(degree * draw(k, DRAW_SHEAR, -a->shear, a->shear));
  const double zoom_x = 1 / draw(k, DRAW_ZOOM_X, 1 - a->zoom, 1 + a->zoom) * (flip ? -1 : 1);
  const double zoom_y = 1 / draw(k, DRAW_ZOOM_Y, 1 - a->zoom, 1 + a->zoom);
  const double cosine = cos(angle), sine = sin(angle);
  // Rotation · shear · zoom.
  const double m[2][2] = {{cosine * zoom_x, (cosine * shear - sine) * zoom_y},
                          {sine * zoom_x, (sine * shear + cosine) * zoom_y}};
  const double middle[2] = {canvas.w / 2.0, canvas.h / 2.0};
  const double shift[2] = {draw(k, DRAW_SHIFT_X, -a->shift, a->shift) * canvas.w,
                           draw(k, DRAW_SHIFT_Y, -a->shift, a->shift) * canvas.h};
  const double scale[2] = {window.w / canvas.w, window.h / canvas.h}, from[2] = {window.x, window.y};
  for (int i = 0; i < 2; i++) {
    const double about = m[i][0] * middle[0] + m[i][1] * middle[1];
    map[3 * i] = (float)(scale[i] * m[i][0]);
    map[3 * i + 1] = (float)(scale[i] * m[i][1]);
    map[3 * i + 2] = (float)(from[i] + scale[i] * (middle[i] + shift[i] - about));
  }
}
