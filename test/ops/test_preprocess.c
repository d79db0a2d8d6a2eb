// Catches images resized or normalised otherwise than by PyTorch and Pillow.
//
// Against a plain bilinear interpolation in double as PyTorch defines it, and on the GPU against the CPU. Both take the
// same correctly rounded operations one by one (the kernel is compiled with -fmad=false), so that F32 is equal to the
// bit and 16 bits to one rounding.
#include <omp.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "test/harness/gpu.h"
#include "test/harness/op.h"

static const Preprocess p = {
    .unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}}; // ImageNet

// Pixel centres are at half-integers; positions before the first centre are clamped to it, neighbours to the last.
static double source(int i, int from, int to) { return fmax(0, (i + 0.5) * from / to - 0.5); }

// The value of channel c of the resized image at (y, x).
static double resized(const ImageInfo *image, const uint8_t *rgb, int y, int x, int c) {
  double sy = source(y, image->h, image->rh), sx = source(x, image->w, image->rw), sum = 0;
  for (int row = 0; row < 2; row++)
    for (int column = 0; column < 2; column++) {
      int py = MIN((int)sy + row, image->h - 1), px = MIN((int)sx + column, image->w - 1);
      double wy = row ? sy - (int)sy : 1 - (sy - (int)sy), wx = column ? sx - (int)sx : 1 - (sx - (int)sx);
      sum += wy * wx * rgb[((size_t)py * image->w + px) * 3 + c];
    }
  return (sum / 255 - p.mean[c]) / p.std[c];
}

static void check_canvases(Device *dev, const ImageInfo *images, int n, const uint8_t *bytes, int h, int w) {
  Tensor y = test_tensor(dev->real, n, h, w, 3);
  dev->ops->preprocess(dev, &p, images, bytes, &y);
  double u = unit_roundoff(dev->real);
  for (int i = 0; i < n; i++)
    for (int row = 0; row < h; row++)
      for (int x = 0; x < w; x++)
        for (int c = 0; c < 3; c++) {
          const ImageInfo *m = &images[i];
          double got = get(&y, i, row, x, c);
          if (row >= m->rh || x >= m->rw) {
            EXPECT(got == 0);
            continue;
          }
          // A position is off by three roundings of a number ≤ the image's size, and moves the value by at most 255 a
          // pixel (it may also fall on the other side of a pixel, where the interpolation is continuous); the value
          // itself takes ten operations on numbers ≤ 1 / std.
          double bound = (3 * u * (m->h + m->w) + 10 * u) / p.std[c];
          EXPECT_NEAR(got, resized(m, bytes + m->offset, row, m->flip ? m->rw - 1 - x : x, c), bound);
        }
  expect_padding_zero(&y);
  test_tensor_free(&y);
}

static uint8_t *random_bytes(size_t n, uint64_t key) {
  uint8_t *b = xmalloc(n);
  for (size_t i = 0; i < n; i++) b[i] = (uint8_t)rng_u32(key, i);
  return b;
}

TEST(preprocess_equals_bilinear_interpolation) {
  const ImageInfo images[] = {
      {0, 9, 13, 9, 13, 0, 0},          // as it is
      {9 * 13 * 3, 9, 13, 9, 13, 1, 0}, // mirrored
      {5, 5, 7, 16, 20, 0, 0},          // upscaled to the whole canvas
      {5, 5, 7, 11, 19, 1, 0},          // and mirrored
      {0, 31, 45, 10, 14, 0, 0},
      {0, 31, 45, 16, 3, 1, 0}, // downscaled
      {0, 1, 1, 8, 5, 0, 0},
      {0, 20, 1, 1, 1, 1, 0}, // a single pixel; to a single pixel
      {0, 0, 0, 0, 0, 0, 0},  // an empty place
      {0, 16, 20, 16, 20, 1, 0},
  };
  uint8_t *bytes = random_bytes(31 * 45 * 3, 1);
  int threads = omp_get_max_threads();
  for (int d = 0; d < 2; d++) {
    Device *dev = device_open(d ? "cpu64" : "cpu", NULL);
    omp_set_num_threads(1 + d);
    check_canvases(dev, images, COUNT(images), bytes, 16, 20);
    device_close(dev);
  }
  omp_set_num_threads(threads);
  free(bytes);
}

TEST(preprocess_of_same_size_takes_the_pixels) {
  Device *dev = device_open("cpu64", NULL);
  uint8_t *bytes = random_bytes(6 * 5 * 3, 2);
  const ImageInfo image = {0, 6, 5, 6, 5, 0, 0};
  Tensor y = test_tensor(F64, 1, 8, 8, 3);
  dev->ops->preprocess(dev, &p, &image, bytes, &y);
  for (int i = 0; i < 6 * 5 * 3; i++)
    EXPECT(get(&y, 0, i / 15, i / 3 % 5, i % 3) == (bytes[i] / 255.0 - p.mean[i % 3]) / p.std[i % 3]);
  test_tensor_free(&y);
  free(bytes);
  device_close(dev);
}

// What F.interpolate(mode="bilinear", align_corners=False) of PyTorch 2 makes of 0 10 30: by hand from its definition.
TEST(preprocess_known_values) {
  Device *dev = device_open("cpu64", NULL);
  const Preprocess plain = {.unit = 255, .std = {1.0f, 1.0f, 1.0f}};
  const uint8_t bytes[] = {0, 0, 0, 10, 10, 10, 30, 30, 30};
  const ImageInfo image = {0, 1, 3, 1, 6, 0, 0};
  const double want[] = {0, 2.5, 7.5, 15, 25, 30};
  Tensor y = test_tensor(F64, 1, 1, 6, 3);
  dev->ops->preprocess(dev, &plain, &image, bytes, &y);
  for (int x = 0; x < 6; x++) EXPECT_NEAR(get(&y, 0, 0, x, 1) * 255, want[x], 1e-13);
  test_tensor_free(&y);
  device_close(dev);
}

// Pillow's triangle by hand: 0 100 200 40 shrunk to two pixels. The first has its centre at 1 and reaches from -1 to 3:
// weights 0.75 0.75 0.25 of 1.75, so 125 / 1.75 = 71.4; the second likewise 205 / 1.75 = 117.1. Bytes stay as they are
// but for the mean, blue first.
TEST(preprocess_antialias_by_hand) {
  Device *dev = device_open("cpu64", NULL);
  const Preprocess pillow = {.unit = 1, .mean = {1, 2, 3}, .std = {1, 1, 1}, .bgr = true, .antialias = true};
  const uint8_t bytes[] = {0, 10, 20, 100, 10, 20, 200, 10, 20, 40, 10, 20};
  const double want[] = {71, 117};
  for (int flip = 0; flip < 2; flip++) {
    const ImageInfo image = {0, 1, 4, 1, 2, flip, 0};
    Tensor y = test_tensor(F64, 1, 1, 2, 3);
    dev->ops->preprocess(dev, &pillow, &image, bytes, &y);
    for (int x = 0; x < 2; x++) {
      EXPECT_NEAR(get(&y, 0, 0, x, 0), 20 - 1, 0);
      EXPECT_NEAR(get(&y, 0, 0, x, 1), 10 - 2, 0);
      EXPECT_NEAR(get(&y, 0, 0, x, 2), want[flip ? 1 - x : x] - 3, 0);
    }
    test_tensor_free(&y);
  }
  device_close(dev);
}

// What Pillow 10.4 makes of an image of 5 × 7 pixels, (37 i + 11 i²) mod 256 for byte i: Image.resize(…, BILINEAR).
TEST(preprocess_equals_pillow) {
  static const uint8_t smaller[] = {122, 114, 134, 105, 123, 180, 179, 111, 163, 201, 82,  102,
                                    176, 152, 153, 125, 137, 158, 90,  175, 165, 169, 175, 58,
                                    150, 137, 120, 82,  165, 194, 134, 77,  205, 166, 141, 155};
  static const uint8_t larger[] = {
      0,   48,  118, 140, 61,  175, 164, 51,  216, 127, 66,  225, 200, 190, 202, 228, 70,  134, 224, 60,  175,
      187, 75,  156, 134, 66,  20,  189, 200, 40,  126, 138, 150, 84,  125, 168, 66,  159, 132, 52,  196, 171,
      141, 138, 164, 199, 83,  161, 225, 75,  118, 224, 119, 35,  235, 203, 87,  145, 158, 157, 129, 127, 165,
      132, 132, 130, 21,  188, 120, 63,  198, 182, 157, 177, 129, 201, 159, 61,  160, 162, 37,  199, 126, 182,
      168, 139, 168, 173, 130, 174, 162, 120, 183, 37,  162, 160, 65,  158, 207, 144, 182, 140, 174, 197, 57,
      120, 188, 21,  146, 95,  195, 174, 125, 140, 153, 162, 165, 92,  174, 228, 35,  119, 224, 132, 67,  225,
      161, 91,  192, 165, 146, 129, 171, 196, 52,  84,  188, 58,  165, 143, 57,  121, 178, 143, 15,  209, 226,
      20,  66,  134, 179, 77,  196, 163, 56,  226, 143, 87,  224, 202, 190, 200};
  const Preprocess bytes_alone = {.unit = 1, .std = {1, 1, 1}, .antialias = true};
  uint8_t bytes[5 * 7 * 3];
  for (int i = 0; i < COUNT(bytes); i++) bytes[i] = (uint8_t)(37 * i + 11 * i * i);
  for (int d = 0; d < 2; d++)
    for (int k = 0; k < 2; k++) {
      Device *dev = device_open(d ? "cpu64" : "cpu", NULL);
      const ImageInfo image = {0, 5, 7, k ? 6 : 3, k ? 9 : 4, 0, 0};
      const uint8_t *want = k ? larger : smaller;
      Tensor y = test_tensor(dev->real, 1, image.rh, image.rw, 3);
      dev->ops->preprocess(dev, &bytes_alone, &image, bytes, &y);
      for (int i = 0; i < image.rh * image.rw * 3; i++)
        EXPECT_NEAR(get(&y, 0, i / 3 / image.rw, i / 3 % image.rw, i % 3), want[i], 0);
      test_tensor_free(&y);
      device_close(dev);
    }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

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

static void gpu_check_canvases(const Preprocess *p, DType dtype, int n, int h, int w, int rows, const TwinArray *info,
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
      gpu_check_canvases(&conventions[r], dtypes[d], COUNT(images), 160, 300, COUNT(images), &info, &bytes);
      gpu_check_canvases(&conventions[r], dtypes[d], COUNT(images) - 1, 16, 20, COUNT(images) - 1, &info, &bytes);
      gpu_check_canvases(&conventions[r], dtypes[d], 4, 16, 20, 3, &info, &bytes); // rows past the count
    }
  }
  twin_array_check_equal(&info, info.n); // untouched
  twin_array_check_equal(&bytes, bytes.n);
  twin_array_free(&info);
  twin_array_free(&bytes);
}
