// From decoded bytes to normalised canvases: PyTorch's F.interpolate(mode="bilinear", align_corners=False) per image.
#include <string.h>
#include "nn/real.h"

typedef struct Tap { // value = (1 - share) · v[first] + share · v[second]
  int first, second;
  real share;
} Tap;

// Where output position i of `to` reads an axis of `from` positions; pixels are centred at half-integers, and what lies
// outside repeats the edge.
static Tap tap(int i, int from, int to) {
  real scale = (real)from / (real)to;
  real position = scale * ((real)i + (real)0.5) - (real)0.5;
  if (position < 0) position = 0;
  int first = (int)position; // ≤ from - 1, since i + 1/2 < to
  return (Tap){first, MIN(first + 1, from - 1), position - (real)first};
}

static void preprocess_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, real *row, int ldc) {
  Tap ty = tap(y, image->h, image->rh);
  const uint8_t *above = rgb + (size_t)ty.first * image->w * 3, *below = rgb + (size_t)ty.second * image->w * 3;
  for (int x = 0; x < image->rw; x++) {
    Tap tx = tap(x, image->w, image->rw);
    real *out = row + (size_t)(image->flip ? image->rw - 1 - x : x) * ldc;
    for (int c = 0; c < 3; c++) {
      int left = tx.first * 3 + c, right = tx.second * 3 + c;
      real top = (1 - tx.share) * above[left] + tx.share * above[right];
      real bottom = (1 - tx.share) * below[left] + tx.share * below[right];
      real v = (1 - ty.share) * top + ty.share * bottom;
      out[c] = (v / 255 - p->mean[c]) / p->std[c];
    }
  }
}

void OP(preprocess)(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes, const Tensor *y) {
  if (dev->measuring) return;
  int n_images = rows(y);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < n_images; n++)
    for (int row = 0; row < y->h; row++) {
      const ImageInfo *image = &images[n];
      memset(at(y, n, row, 0), 0, (size_t)y->w * y->ldc * sizeof(real));
      if (row < image->rh) preprocess_row(p, image, bytes + image->offset, row, at(y, n, row, 0), y->ldc);
    }
}
