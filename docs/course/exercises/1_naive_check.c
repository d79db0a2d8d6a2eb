// Compares with the loops of the definition, for several shapes.
#include "docs/course/exercises/check.h"
#include "docs/course/exercises/conv.h"

static const struct {
  const char *what;
  int images;
  ConvShape conv;
} cases[] = {
    {"1 x 1", 1, {3, 5, 8, 1, 1, 1, 0, 3, 5}},
    {"1 x 1, two images", 2, {2, 3, 8, 1, 1, 1, 0, 2, 3}},
    {"1 x 1, stride 2", 2, {5, 6, 8, 1, 1, 2, 0, 3, 3}},
    {"3 x 3, padding 1", 2, {4, 5, 8, 3, 3, 1, 1, 4, 5}},
    {"3 x 3, no padding", 1, {6, 5, 16, 3, 3, 1, 0, 4, 3}},
    {"3 x 3, padding 1, stride 2", 2, {7, 6, 8, 3, 3, 2, 1, 4, 3}},
    {"1 x 3, padding 1", 1, {3, 4, 8, 1, 3, 1, 1, 5, 4}},
    {"7 x 7, padding 3, stride 2", 1, {9, 10, 8, 7, 7, 2, 3, 5, 5}},
};

static void check_row(const char *what, const ConvShape *c, int row, int image, int i, int j) {
  int k = 0;
  for (int r = 0; r < c->r; r++)
    for (int s = 0; s < c->s; s++)
      for (int channel = 0; channel < c->ldc; channel++, k++) {
        const int y = i * c->stride + r - c->pad, x = j * c->stride + s - c->pad;
        const int inside = y >= 0 && y < c->h && x >= 0 && x < c->w;
        const long want = inside ? ((image * c->h + y) * c->w + x) * c->ldc + channel : -1;
        const long got = im2col_index(c, row, k);
        if (got != want)
          difference(
              "%s: row %d (pixel %d, %d of image %d), k %d (channel %d under tap %d, %d) is element %ld, not %ld", what,
              row, i, j, image, k, channel, r, s, got, want);
      }
}

int main(void) {
  for (int n = 0; n < (int)(sizeof cases / sizeof *cases); n++) {
    int row = 0;
    for (int image = 0; image < cases[n].images; image++)
      for (int i = 0; i < cases[n].conv.p; i++)
        for (int j = 0; j < cases[n].conv.q; j++, row++) check_row(cases[n].what, &cases[n].conv, row, image, i, j);
  }
  return solved();
}
