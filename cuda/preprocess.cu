// From decoded bytes to normalised canvases, torchvision's GeneralizedRCNNTransform in one kernel: resize (PyTorch's
// F.interpolate(mode="bilinear", align_corners=False), or Pillow's), normalisation, mirroring, padding. Augmented
// images are shown through their map, and their colours changed, in the same pass. Compiled without contraction, so
// that the pixels are the CPU's.
#include "cuda/quotient.cuh"
extern "C" {
#include "exact/resample.h"
#include "exact/tap.h"
#include "exact/view.h"
}

enum { THREADS = 128, ROWS = 4 };

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

// (v / unit - mean) / std of the three channels, of their changed colours.
struct Normalise {
  Divisor unit, std[3];
  __device__ Normalise(const Preprocess &p)
      : unit(divisor(p.unit)), std{divisor(p.std[0]), divisor(p.std[1]), divisor(p.std[2])} {}
  __device__ __forceinline__ Eight operator()(const Preprocess &p, const ImageView &view, float value[3]) const {
    if (view.coloured) view_colour(&view, 3, value);
    Eight v = {};
#pragma unroll
    for (int c = 0; c < 3; c++) v.v[c] = quotient(quotient(p.bgr ? value[2 - c] : value[c], unit) - p.mean[c], std[c]);
    return v;
  }
};

// y [n, h, w, 3] from the images' bytes [h, w, 3]. Grid (⌈w / THREADS⌉, ⌈h / ROWS⌉, n), a thread per column and ROWS
// rows of the canvas, which have their place along x in common; it stores each pixel's eight channels at once, padding
// among them. Neighbours read neighbouring bytes, except of an image that is turned. The floor is the stores; with
// ANTIALIAS the filter's weights, in double, come on top. All threads of a block have one image, so none diverge.
template <class T, bool ANTIALIAS>
__global__ void preprocess_kernel(Preprocess p, const ImageInfo *images, const uint8_t *bytes, Tensor y) {
  int x = thread_index(), first = blockIdx.y * ROWS, n = blockIdx.z;
  if (x >= y.w || n >= rows_of(y)) return;
  const ImageInfo image = images[n];
  const uint8_t *rgb = bytes + image.offset;
  const Normalise normalise(p);
  if (image.view.moved) {
#pragma unroll 1
    for (int row = first; row < min(first + ROWS, y.h); row++) {
      Eight v = {};
      if (row < image.rh && x < image.rw) {
        float value[3];
        const float inside = view_pixel(&image.view, rgb, image.h, image.w, row, x, ANTIALIAS, value);
        if (inside > 0) v = normalise(p, image.view, value);
        for (int c = 0; inside > 0 && c < 3; c++) v.v[c] *= inside;
      }
      store8(pixel<T>(y, n, row, x), v);
    }
    return;
  }
  int from = image.flip ? image.rw - 1 - x : x;
#pragma unroll ANTIALIAS ? 1 : ROWS
  for (int row = first; row < first + ROWS; row++) {
    if (row >= y.h) break;
    Eight v = {};
    if (row < image.rh && x < image.rw) {
      float value[3];
      if constexpr (ANTIALIAS)
        resample(image, rgb, row, from, value);
      else
        interpolate(image, rgb, row, from, value);
      v = normalise(p, image.view, value);
    }
    store8(pixel<T>(y, n, row, x), v);
  }
}

extern "C" void cuda_preprocess(Device *dev, const Preprocess *p, const ImageInfo *images, const uint8_t *bytes,
                                const Tensor *y) {
  if (dev->measuring) return;
  CHECK(y->c == 3 && y->ldc == 8);
  dim3 grid(blocks_for(y->w, THREADS), blocks_for(y->h, ROWS), y->n);
  WITH_TYPE(y->dtype, T, {
    if (p->antialias)
      preprocess_kernel<T, true><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, bytes, *y);
    else
      preprocess_kernel<T, false><<<grid, THREADS, 0, stream_of(dev)>>>(*p, images, bytes, *y);
    LAUNCH_CHECK();
  })
}
