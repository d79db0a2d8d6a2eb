// From decoded bytes to normalised canvases through a map of each image: crop, resize, mirroring, rotation and shear in
// one bilinear sampling. Compiled without contraction, so that the pixels are the CPU's.
#include "cuda/common.cuh"
extern "C" {
#include "exact/affine.h"
}

enum { THREADS = 128 };

// y [n, h, w, CHANNELS] from the images' bytes [h, w, 3], map [n, 6]. Grid (⌈w / THREADS⌉, h, n), a thread per canvas
// pixel, which stores the pixel's eight channels at once, padding among them.
template <class T, int CHANNELS>
__global__ void preprocess_affine_kernel(Preprocess p, const ImageInfo *images, const float *map, const uint8_t *bytes,
                                         Tensor y) {
  int x = thread_index(), row = blockIdx.y, n = blockIdx.z;
  if (x >= y.w || n >= rows_of(y)) return;
  Eight v = {};
  ImageInfo image = images[n];
  if (row < image.rh && x < image.rw) {
    float value[3];
    affine_pixel(map + 6 * n, bytes + image.offset, image.h, image.w, row, x, CHANNELS, p.antialias, value);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
      v.v[c] = ((p.bgr && CHANNELS == 3 ? value[2 - c] : value[c]) / p.unit - p.mean[c]) / p.std[c];
  }
  store8(pixel<T>(y, n, row, x), v);
}

extern "C" void cuda_preprocess_affine(Device *dev, const Preprocess *p, const ImageInfo *images, const void *map,
                                       const uint8_t *bytes, const Tensor *y) {
  if (dev->measuring) return;
  CHECK((y->c == 3 || y->c == 1) && y->ldc == 8);
  dim3 grid(blocks_for(y->w, THREADS), y->h, y->n);
  WITH_TYPE(y->dtype, T, {
    if (y->c == 3)
      preprocess_affine_kernel<T, 3><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, (const float *)map, bytes, *y);
    else
      preprocess_affine_kernel<T, 1><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, (const float *)map, bytes, *y);
    LAUNCH_CHECK();
  })
}
