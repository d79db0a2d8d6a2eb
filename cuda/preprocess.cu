// From decoded bytes to normalised canvases, torchvision's GeneralizedRCNNTransform in one kernel: resize (PyTorch's
// F.interpolate(mode="bilinear", align_corners=False), or Pillow's), normalisation, mirroring, padding. Compiled
// without contraction, so that the pixels are the CPU's.
#include "cuda/common.cuh"
extern "C" {
#include "exact/resample.h"
#include "exact/tap.h"
}

enum { THREADS = 128 };

// The three channels of pixel (y, x) of the resized image, [0, 255]: bilinear.
static __device__ __forceinline__ void interpolate(const ImageInfo &image, const uint8_t *rgb, int y, int x,
                                                   float value[3]) {
  Tap ty = tap_resized(y, image.h, image.rh), tx = tap_resized(x, image.w, image.rw);
  const uint8_t *above = rgb + (size_t)ty.low * image.w * 3, *below = rgb + (size_t)ty.high * image.w * 3;
#pragma unroll
  for (int c = 0; c < 3; c++) {
    int left = tx.low * 3 + c, right = tx.high * 3 + c;
    value[c] = tap_blend(ty, tx, above[left], above[right], below[left], below[right]);
  }
}

// The same as Pillow's antialiased resize makes it.
static __device__ __forceinline__ void resample(const ImageInfo &image, const uint8_t *rgb, int y, int x,
                                                float value[3]) {
  Resample ry = resample_at(y, image.h, image.rh), rx = resample_at(x, image.w, image.rw);
  int bytes[3];
  resample_pixel(&ry, &rx, rgb, image.w, bytes);
  for (int c = 0; c < 3; c++) value[c] = (float)bytes[c];
}

// y [n, h, w, 3] from the images' bytes [h, w, 3]. Grid (⌈w / THREADS⌉, h, n), a thread per canvas pixel, which stores
// the pixel's eight channels at once, padding among them. Neighbours read neighbouring bytes. The floor is the stores,
// 30 % of the time it takes (results/profile-b4-h200.txt); with ANTIALIAS the filter's weights, in double, come on top.
template <class T, bool ANTIALIAS>
__global__ void preprocess_kernel(Preprocess p, const ImageInfo *images, const uint8_t *bytes, Tensor y) {
  int x = thread_index(), row = blockIdx.y, n = blockIdx.z;
  if (x >= y.w || n >= rows_of(y)) return;
  Eight v = {};
  ImageInfo image = images[n];
  if (row < image.rh && x < image.rw) {
    float value[3];
    int from = image.flip ? image.rw - 1 - x : x;
    if constexpr (ANTIALIAS)
      resample(image, bytes + image.offset, row, from, value);
    else
      interpolate(image, bytes + image.offset, row, from, value);
#pragma unroll
    for (int c = 0; c < 3; c++) v.v[c] = ((p.bgr ? value[2 - c] : value[c]) / p.unit - p.mean[c]) / p.std[c];
  }
  store8(pixel<T>(y, n, row, x), v);
}

extern "C" void cuda_preprocess(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                                const Tensor *y) {
  if (dev->measuring) return;
  CHECK(y->c == 3 && y->ldc == 8);
  dim3 grid(blocks_for(y->w, THREADS), y->h, y->n);
  WITH_TYPE(y->dtype, T, {
    if (p->antialias)
      preprocess_kernel<T, true><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, bytes, *y);
    else
      preprocess_kernel<T, false><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, bytes, *y);
    LAUNCH_CHECK();
  })
}
