// Catches images resized or normalised otherwise than by PyTorch and Pillow.
//
// Preprocessing on the GPU against the CPU reference. Both take the same correctly rounded operations one by one (the
// kernel is compiled with -fmad=false), so that F32 is equal to the bit and 16 bits to one rounding.
#include "base/rng.h"
#include "test/harness/gpu.h"

static const DType dtypes[] = {F32, BF16, F16};
static const Preprocess conventions[] = {
    {.unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}}, // torchvision
    {.unit = 1, .mean = {103.53f, 116.28f, 123.675f}, .std = {1, 1, 1}, .bgr = true, .antialias = true},
    {.unit = 1, .mean = {103.53f, 116.28f, 123.675f}, .std = {1, 1, 1}, .bgr = true},
    {.unit = 255, .std = {1, 1, 1}, .antialias = true}};

static const ImageInfo images[] = {
    {0, 9, 13, 9, 13, 0, 0},          // as it is
    {9 * 13 * 3, 9, 13, 9, 13, 1, 0}, // mirrored
    {5, 5, 7, 16, 20, 0, 0},          // upscaled to the whole canvas, from an odd address
    {5, 5, 7, 11, 19, 1, 0},          // and mirrored
    {0, 31, 45, 10, 14, 0, 0},
    {0, 31, 45, 16, 3, 1, 0}, // downscaled
    {0, 1, 1, 8, 5, 0, 0},
    {0, 20, 1, 1, 1, 1, 0}, // a single pixel; to a single pixel
    {0, 0, 0, 0, 0, 0, 0},  // an empty place
    {0, 16, 20, 16, 20, 1, 0},
    {1, 31, 45, 150, 290, 1, 0}, // more than a block wide
};
enum { BYTES = 31 * 45 * 3 + 1 };

static void check_canvases(const Preprocess *p, DType dtype, int n, int h, int w, int rows, const TwinArray *info,
                           const TwinArray *bytes) {
  Twin y = twin_poisoned(dtype, n, h, w, 3);
  if (rows < n) twin_rows(&y, rows);
  for (int gpu = 0; gpu < 2; gpu++) {
    Device *dev = gpu ? gpu_device() : cpu_device();
    dev->ops->preprocess(dev, p, gpu ? info->gpu : info->cpu, gpu ? bytes->gpu : bytes->cpu, twin_side(&y, gpu));
  }
  if (!twin_check(&y, NULL, dtype == F32 ? 0 : 1))
    printf("  dtype %d, %d of %d canvases of %d x %d\n", dtype, rows, n, h, w);
  twin_check_guards(&y, false);
  twin_free(&y);
}

TEST(cuda_preprocess_equals_cpu) {
  if (!gpu_device()) return;
  uint8_t pixels[BYTES];
  for (int i = 0; i < BYTES; i++) pixels[i] = (uint8_t)rng_u32(1, (uint64_t)i);
  TwinArray info = twin_array(COUNT(images), sizeof images[0], images), bytes = twin_array(BYTES, 1, pixels);
  for (int d = 0; d < COUNT(dtypes); d++) {
    for (int r = 0; r < COUNT(conventions); r++) {
      check_canvases(&conventions[r], dtypes[d], COUNT(images), 160, 300, COUNT(images), &info, &bytes);
      check_canvases(&conventions[r], dtypes[d], COUNT(images) - 1, 16, 20, COUNT(images) - 1, &info, &bytes);
      check_canvases(&conventions[r], dtypes[d], 4, 16, 20, 3, &info, &bytes); // rows past the count
    }
  }
  twin_array_check_equal(&info, info.n); // untouched
  twin_array_check_equal(&bytes, bytes.n);
  twin_array_free(&info);
  twin_array_free(&bytes);
}
