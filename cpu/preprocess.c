// From decoded bytes to normalised canvases: PyTorch's F.interpolate(mode="bilinear", align_corners=False) per image,
// or Pillow's resize.
#include <string.h>
#include "cpu/reference.h"
#include "exact/resample.h"

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

static void write_pixel(const Preprocess *p, const real rgb[3], real *out) {
  for (int c = 0; c < 3; c++) out[c] = (rgb[p->bgr ? 2 - c : c] / p->unit - p->mean[c]) / p->std[c];
}

static real *canvas_pixel(const ImageInfo *image, real *row, int x, int ldc) {
  return row + (size_t)(image->flip ? image->rw - 1 - x : x) * ldc;
}

static void interpolate_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, real *row,
                            int ldc) {
  Tap ty = tap(y, image->h, image->rh);
  const uint8_t *above = rgb + (size_t)ty.first * image->w * 3, *below = rgb + (size_t)ty.second * image->w * 3;
  for (int x = 0; x < image->rw; x++) {
    Tap tx = tap(x, image->w, image->rw);
    real value[3];
    for (int c = 0; c < 3; c++) {
      int left = tx.first * 3 + c, right = tx.second * 3 + c;
      real top = (1 - tx.share) * above[left] + tx.share * above[right];
      real bottom = (1 - tx.share) * below[left] + tx.share * below[right];
      value[c] = (1 - ty.share) * top + ty.share * bottom;
    }
    write_pixel(p, value, canvas_pixel(image, row, x, ldc));
  }
}

static void resample_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, real *row, int ldc) {
  Resample ry = resample_at(y, image->h, image->rh);
  for (int x = 0; x < image->rw; x++) {
    Resample rx = resample_at(x, image->w, image->rw);
    int bytes[3];
    resample_pixel(&ry, &rx, rgb, image->w, bytes);
    write_pixel(p, (real[]){(real)bytes[0], (real)bytes[1], (real)bytes[2]}, canvas_pixel(image, row, x, ldc));
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
      if (row >= image->rh) continue;
      (p->antialias ? resample_row : interpolate_row)(p, image, bytes + image->offset, row, at(y, n, row, 0), y->ldc);
    }
}
