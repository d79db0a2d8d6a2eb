// From decoded bytes to normalised canvases, torchvision's GeneralizedRCNNTransform in one pass: resize (PyTorch's
// F.interpolate(mode="bilinear", align_corners=False), or Pillow's), normalisation, mirroring, padding. Augmented
// images are shown through their map, and their colours changed, in the same pass. Rows in parallel.
#include <string.h>
#include "cpu/reference.h"
#include "exact/resample.h"
#include "exact/tap.h"
#include "exact/view.h"

// A pixel of the canvas: (v / unit - mean) / std, of its changed colours.
static void write_pixel(const Preprocess *p, const ImageInfo *image, real rgb[3], real *out) {
  if (image->view.coloured) view_colour(&image->view, 3, rgb);
  for (int c = 0; c < 3; c++) out[c] = (rgb[p->bgr ? 2 - c : c] / p->unit - p->mean[c]) / p->std[c];
}

// Pixel x of a row, mirrored where the image is.
static real *canvas_pixel(const ImageInfo *image, real *row, int x, int ldc) {
  return row + (size_t)(image->flip ? image->rw - 1 - x : x) * ldc;
}

static void interpolate_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, real *row,
                            int ldc) {
  Tap ty = tap_resized(y, image->h, image->rh);
  const uint8_t *above = rgb + (size_t)ty.low * image->w * 3, *below = rgb + (size_t)ty.high * image->w * 3;
  for (int x = 0; x < image->rw; x++) {
    Tap tx = tap_resized(x, image->w, image->rw);
    real value[3];
    for (int c = 0; c < 3; c++) {
      int left = tx.low * 3 + c, right = tx.high * 3 + c;
      value[c] = tap_blend(ty, tx, above[left], above[right], below[left], below[right]);
    }
    write_pixel(p, image, value, canvas_pixel(image, row, x, ldc));
  }
}

static void resample_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, real *row, int ldc) {
  Resample ry = resample_at(y, image->h, image->rh);
  for (int x = 0; x < image->rw; x++) {
    Resample rx = resample_at(x, image->w, image->rw);
    int bytes[3];
    resample_pixel(&ry, &rx, rgb, image->w, bytes);
    write_pixel(p, image, (real[]){(real)bytes[0], (real)bytes[1], (real)bytes[2]}, canvas_pixel(image, row, x, ldc));
  }
}

// Outside the image a moved one is like the canvas's padding: zero, which is the mean colour.
static void view_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, real *row, int ldc) {
  for (int x = 0; x < image->rw; x++) {
    real value[3], *out = row + (size_t)x * ldc;
    const real inside = view_pixel(&image->view, rgb, image->h, image->w, y, x, p->antialias, value);
    if (!(inside > 0)) continue;
    write_pixel(p, image, value, out);
    for (int c = 0; c < 3; c++) out[c] *= inside;
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
      (image->view.moved ? view_row
       : p->antialias    ? resample_row
                         : interpolate_row)(p, image, bytes + image->offset, row, at(y, n, row, 0), y->ldc);
    }
}
