// From decoded bytes to normalised canvases through a map of each image: crop, resize, mirroring, rotation and shear in
// one bilinear sampling, then the colours. Compiled without contraction, so that the pixels are the CPU's.
#include "cuda/quotient.cuh"
extern "C" {
#include "exact/affine.h"
#include "exact/view.h"
}

enum { THREADS = 128, ROWS = 4 };

// y [n, h, w, CHANNELS] from the images' bytes [h, w, 3]. Grid (⌈w / THREADS⌉, ⌈h / ROWS⌉, n), a thread per
// column and ROWS rows of the canvas, which share what follows from the map alone. It stores the eight channels of each
// pixel at once, padding among them. The floor is the stores.
template <class T, int CHANNELS>
__global__ void preprocess_affine_kernel(Preprocess p, const ImageInfo *images, const uint8_t *bytes, Tensor y) {
  const int x = thread_index(), first = blockIdx.y * ROWS, n = blockIdx.z;
  if (x >= y.w || n >= rows_of(y)) return;
  const ImageInfo image = images[n];
  const uint8_t *rgb = bytes + image.offset;
  const Divisor unit = divisor(p.unit), std[3] = {divisor(p.std[0]), divisor(p.std[1]), divisor(p.std[2])};
  auto normalise = [&](float value[3]) {
    if (image.view.coloured) view_colour(&image.view, CHANNELS, value);
    Eight v = {};
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
      v.v[c] = quotient(quotient(p.bgr && CHANNELS == 3 ? value[2 - c] : value[c], unit) - p.mean[c], std[c]);
    return v;
  };
  int across, shift_x, shift_y;
  if (affine_shifts(image.view.map, &across, &shift_x, &shift_y)) {
#pragma unroll
    for (int row = first; row < first + ROWS; row++) {
      if (row >= y.h) break;
      Eight v = {};
      if (row < image.rh && x < image.rw) {
        float value[3];
        affine_texel(rgb, image.h, image.w, row + shift_y, x * across + shift_x, CHANNELS, value);
        v = normalise(value);
      }
      store8(pixel<T>(y, n, row, x), v);
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < min(first + ROWS, y.h); row++) {
    Eight v = {};
    if (row < image.rh && x < image.rw) {
      float value[3];
      affine_pixel(image.view.map, rgb, image.h, image.w, row, x, CHANNELS, p.antialias, value);
      v = normalise(value);
    }
    store8(pixel<T>(y, n, row, x), v);
  }
}

extern "C" void cuda_preprocess_affine(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                                       const Tensor *y) {
  if (dev->measuring) return;
  CHECK((y->c == 3 || y->c == 1) && y->ldc == 8);
  dim3 grid(blocks_for(y->w, THREADS), blocks_for(y->h, ROWS), y->n);
  WITH_TYPE(y->dtype, T, {
    if (y->c == 3)
      preprocess_affine_kernel<T, 3><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, bytes, *y);
    else
      preprocess_affine_kernel<T, 1><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, bytes, *y);
    LAUNCH_CHECK();
  })
}
