// From decoded bytes to normalised canvases through a map of each image: crop, resize, mirroring, rotation and shear in
// one bilinear sampling, then the colours. Rows in parallel.
#include <string.h>
#include "cpu/reference.h"
#include "exact/affine.h"
#include "exact/view.h"

static void sample_row(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, const Tensor *to,
                       real *row) {
  for (int x = 0; x < image->rw; x++) {
    real value[3];
    affine_pixel(image->view.map, rgb, image->h, image->w, y, x, to->c, p->antialias, value);
    if (image->view.coloured) view_colour(&image->view, to->c, value);
    for (int c = 0; c < to->c; c++)
      row[(size_t)x * to->ldc + c] = (value[p->bgr && to->c == 3 ? 2 - c : c] / p->unit - p->mean[c]) / p->std[c];
  }
}

void OP(preprocess_affine)(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                           const Tensor *y) {
  if (dev->measuring) return;
  CHECK(y->c == 3 || y->c == 1);
  int n_images = rows(y);
#pragma omp parallel for collapse(2) schedule(static)
  for (int n = 0; n < n_images; n++)
    for (int row = 0; row < y->h; row++) {
      const ImageInfo *image = &images[n];
      memset(at(y, n, row, 0), 0, (size_t)y->w * y->ldc * sizeof(real));
      if (row < image->rh) sample_row(p, image, bytes + image->offset, row, y, at(y, n, row, 0));
    }
}
