// From decoded bytes to normalised canvases: PyTorch's F.interpolate(mode="bilinear", align_corners=False) per image,
// or Pillow's resize, normalisation, mirroring and padding in one pass, a thread for every pixel of the canvas.
// Compiled without contraction, so that the pixels are the CPU's.
#include "cuda/common.cuh"
extern "C" {
#include "exact/resample.h"
}

enum { THREADS = 128 };

struct Tap { // value = (1 - share) · v[first] + share · v[second]
  int first, second;
  float share;
};

// Where output position i of `to` reads an axis of `from` positions; pixels are centred at half-integers, and what lies
// outside repeats the edge.
__device__ __forceinline__ Tap tap(int i, int from, int to) {
  float scale = (float)from / (float)to;
  float position = fmaxf(scale * ((float)i + 0.5f) - 0.5f, 0);
  int first = (int)position; // ≤ from - 1, since i + 1/2 < to
  return {first, min(first + 1, from - 1), position - (float)first};
}

__device__ __forceinline__ void interpolate(const ImageInfo &image, const uint8_t *rgb, int y, int x, float value[3]) {
  Tap ty = tap(y, image.h, image.rh), tx = tap(x, image.w, image.rw);
  const uint8_t *above = rgb + (size_t)ty.first * image.w * 3, *below = rgb + (size_t)ty.second * image.w * 3;
#pragma unroll
  for (int c = 0; c < 3; c++) {
    int left = tx.first * 3 + c, right = tx.second * 3 + c;
    float top = (1 - tx.share) * above[left] + tx.share * above[right];
    float bottom = (1 - tx.share) * below[left] + tx.share * below[right];
    value[c] = (1 - ty.share) * top + ty.share * bottom;
  }
}

__device__ __forceinline__ void resample(const ImageInfo &image, const uint8_t *rgb, int y, int x, float value[3]) {
  Resample ry = resample_at(y, image.h, image.rh), rx = resample_at(x, image.w, image.rw);
  int bytes[3];
  resample_pixel(&ry, &rx, rgb, image.w, bytes);
  for (int c = 0; c < 3; c++) value[c] = (float)bytes[c];
}

// Grid (⌈w / THREADS⌉, h, n).
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
