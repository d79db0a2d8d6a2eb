// Visits pixels in the order of TMA: from the load's first one across, down and to the next image, within the bounding
// box given by the corners. Compares each with the definition of a convolution.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

enum { PIXELS = 64, CHANNELS = 64 };

typedef struct Pixel {
  int n, y, x;
} Pixel;

static Pixel next(const LoadConv *c, const Im2colLoad *load, Pixel at) {
  at.x += c->stride;
  if (at.x <= c->w - 1 + load->upper_x) return at;
  at.x = load->lower_x;
  at.y += c->stride;
  if (at.y <= c->h - 1 + load->upper_y) return at;
  at.y = load->lower_y;
  at.n++;
  return at;
}

static void check(const char *what, const LoadConv *c, int row, int tap) {
  const Im2colLoad load = im2col_load(c, row, tap, PIXELS, CHANNELS);
  Pixel at = {load.n, load.y, load.x};
  for (int i = 0; i < PIXELS && row + i < c->n * c->p * c->q; i++, at = next(c, &load, at)) {
    const int m = row + i, area = c->p * c->q;
    const Pixel want = {m / area, m % area / c->q * c->stride - c->pad + tap / c->taps,
                        m % c->q * c->stride - c->pad + tap % c->taps};
    const Pixel got = {at.n, at.y + load.tap_y, at.x + load.tap_x};
    if (got.n != want.n || got.y != want.y || got.x != want.x)
      difference("%s, row %d, tap %d: pixel %d of the load is (%d, %d) of image %d, not (%d, %d) of image %d", what,
                 row, tap, i, got.y, got.x, got.n, want.y, want.x, want.n);
  }
  if (load.tap_y < 0 || load.tap_x < 0)
    difference("%s, tap %d: a tap's offset is unsigned, not (%d, %d)", what, tap, load.tap_y, load.tap_x);
  if (load.bytes != PIXELS * CHANNELS * 2)
    difference("%s, row %d, tap %d: %d bytes arrive, and the barrier expects %d", what, row, tap, PIXELS * CHANNELS * 2,
               load.bytes);
}

int main(void) {
  static const struct {
    const char *what;
    LoadConv conv;
  } cases[] = {
      {"1 x 1", {2, 6, 9, 6, 9, 1, 1, 0}},
      {"3 x 3, padding 1", {2, 7, 10, 7, 10, 3, 1, 1}},
      {"3 x 3 without padding", {3, 7, 10, 5, 8, 3, 1, 0}},
      {"3 x 3, stride 2, padding 1", {3, 9, 13, 5, 7, 3, 2, 1}},
      {"3 x 3, stride 2, padding 1, even sizes", {3, 8, 14, 4, 7, 3, 2, 1}},
      {"1 x 1, stride 2", {2, 9, 12, 5, 6, 1, 2, 0}},
      {"7 x 7, stride 2, padding 3", {1, 20, 24, 10, 12, 7, 2, 3}},
      {"one pixel", {5, 1, 1, 1, 1, 3, 1, 1}},
  };
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    const LoadConv *c = &cases[i].conv;
    for (int row = 0; row < c->n * c->p * c->q; row += 5)
      for (int tap = 0; tap < c->taps * c->taps; tap++) check(cases[i].what, c, row, tap);
  }
  return solved();
}
