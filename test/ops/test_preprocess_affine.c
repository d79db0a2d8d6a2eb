// Catches images mapped, cropped or brightened differently from what augmentation asks for.
//
// Compares with a plain bilinear interpolation in double, with the resize where both do the same, and the GPU with the
// CPU. Both use the same correctly rounded operations one by one (the kernel is compiled with -fmad=false), so that F32
// is equal to the bit and 16 bits to one rounding.
#include "base/alloc.h"
#include "base/rng.h"
#include "data/batches/augment.h"
#include "test/harness/gpu.h"
#include "test/harness/op.h"

static const Preprocess p = {
    .unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}}; // ImageNet

typedef struct AffineCase {
  ImageInfo image;
  double map[6]; // numbers that float holds
  int samples;   // along each axis with antialias
} AffineCase;

static const AffineCase cases[] = {
    {{0, 9, 13, 16, 20, 0, 0, {0}}, {1, 0, 0, 0, 1, 0}, 1},            // as it is, black to the right and below
    {{9 * 13 * 3, 9, 13, 16, 20, 1, 0, {0}}, {-1, 0, 13, 0, 1, 0}, 1}, // mirrored by the map, whatever flip says
    {{3, 16, 20, 16, 20, 0, 0, {0}}, {-1, 0, 15, 0, 1, -3}, 1},        // mirrored and shifted by whole pixels
    {{1, 9, 13, 16, 20, 0, 0, {0}}, {1, 0, -2.5, 0, 1, 4}, 1},         // shifted by half a pixel
    {{5, 5, 7, 16, 20, 0, 0, {0}},
     {0.25, 0.0625, -0.5, -0.125, 0.375, 0.75},
     1},                                                               // upscaled and turned, from an odd address
    {{0, 31, 45, 10, 14, 0, 0, {0}}, {3, 0.5, 0.25, -0.5, 3, 1.5}, 3}, // downscaled and turned
    {{0, 31, 45, 16, 20, 0, 0, {0}}, {40, 0, -300, 0, 40, -250}, 16},  // as far as samples go
    {{0, 1, 1, 8, 5, 0, 0, {0}}, {0.5, 0, -0.5, 0, 0.5, -0.5}, 1},     // a single pixel
    {{0, 20, 1, 3, 1, 0, 0, {0}}, {0, 0, 0.5, 0, 0, 7.25}, 1},         // the same point everywhere
    {{0, 0, 0, 0, 0, 0, 0, {0}}, {1, 0, 0, 0, 1, 0}, 1},               // an empty place
    {{0, 16, 20, 16, 20, 0, 0, {0}}, {1, 0, 1e9, 0, 1, -1e9}, 1},      // far beyond
};

static double texel(const AffineCase *k, const uint8_t *rgb, int y, int x, int c) {
  const ImageInfo *m = &k->image;
  return y < 0 || y >= m->h || x < 0 || x >= m->w ? 0 : rgb[((size_t)y * m->w + x) * 3 + c];
}

// Channel c at a point of the image, pixel centres at half-integers, black around it.
static double value_at(const AffineCase *k, const uint8_t *rgb, double u, double v, int c) {
  const double px = floor(u - 0.5), py = floor(v - 0.5), fx = u - 0.5 - px, fy = v - 0.5 - py;
  if (fabs(px) > 1e6 || fabs(py) > 1e6) return 0;
  double sum = 0;
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++)
      sum += (i ? fy : 1 - fy) * (j ? fx : 1 - fx) * texel(k, rgb, (int)py + i, (int)px + j, c);
  return sum;
}

static double canvas_value(const AffineCase *k, const uint8_t *rgb, int y, int x, int c, int samples) {
  const double *m = k->map;
  double sum = 0;
  for (int i = 0; i < samples; i++)
    for (int j = 0; j < samples; j++) {
      double cx = x + (j + 0.5) / samples, cy = y + (i + 0.5) / samples;
      sum += value_at(k, rgb, m[0] * cx + m[1] * cy + m[2], m[3] * cx + m[4] * cy + m[5], c);
    }
  return (sum / (samples * samples) / 255 - p.mean[c]) / p.std[c];
}

static void run(Device *dev, const Preprocess *how, const AffineCase *k, int n, const uint8_t *bytes, const Tensor *y) {
  ImageInfo *images = xmalloc((size_t)n * sizeof *images);
  for (int i = 0; i < n; i++) {
    images[i] = k[i].image;
    for (int e = 0; e < 6; e++) images[i].view.map[e] = (float)k[i].map[e];
  }
  dev->ops->preprocess_affine(dev, how, images, bytes, y);
  free(images);
}

static void check_canvases(Device *dev, bool antialias, const uint8_t *bytes) {
  Preprocess how = p;
  how.antialias = antialias;
  Tensor y = test_tensor(dev->real, COUNT(cases), 16, 20, 3);
  run(dev, &how, cases, COUNT(cases), bytes, &y);
  const double u = unit_roundoff(dev->real);
  for (int i = 0; i < COUNT(cases); i++)
    for (int row = 0; row < y.h; row++)
      for (int x = 0; x < y.w; x++)
        for (int c = 0; c < 3; c++) {
          const AffineCase *k = &cases[i];
          const int samples = antialias ? k->samples : 1;
          const double got = get(&y, i, row, x, c), *m = k->map;
          if (row >= k->image.rh || x >= k->image.rw) {
            EXPECT(got == 0);
            continue;
          }
          // Each coordinate takes eight roundings of numbers below `far`, and moves the value by at most 255 a pixel;
          // the value is continuous where the image ends, too. Blending takes ten on numbers up to 255, the mean one a
          // sample. Where all is black, the position does not matter.
          const double far =
              fabs(m[0]) * 20 + fabs(m[1]) * 16 + fabs(m[2]) + fabs(m[3]) * 20 + fabs(m[4]) * 16 + fabs(m[5]);
          const double bound = (8 * u * (far < 1e6 ? far + 1 : 0) + (10 + samples * samples) * u) / p.std[c];
          EXPECT_NEAR(got, canvas_value(k, bytes + k->image.offset, row, x, c, samples), bound);
        }
  expect_padding_zero(&y);
  test_tensor_free(&y);
}

static uint8_t *noise(size_t n) {
  uint8_t *b = xmalloc(n);
  for (size_t i = 0; i < n; i++) b[i] = (uint8_t)rng_u32(RNG_TEST, i);
  return b;
}

TEST(preprocess_affine_equals_bilinear_interpolation) {
  uint8_t *bytes = noise(31 * 45 * 3 + 5);
  for (int d = 0; d < 2; d++) {
    Device *dev = device_open(d ? "cpu64" : "cpu", NULL);
    for (int antialias = 0; antialias < 2; antialias++) check_canvases(dev, antialias, bytes);
    device_close(dev);
  }
  free(bytes);
}

// The identity, and the mirror, are preprocess's to the bit.
TEST(preprocess_affine_of_same_size_is_preprocess) {
  uint8_t *bytes = noise(9 * 13 * 3);
  for (int d = 0; d < 2; d++)
    for (int flip = 0; flip < 2; flip++) {
      Device *dev = device_open(d ? "cpu64" : "cpu", NULL);
      const AffineCase k = {{0, 9, 13, 9, 13, flip, 0, {0}}, {flip ? -1 : 1, 0, flip ? 13 : 0, 0, 1, 0}, 1};
      Tensor want = test_tensor(dev->real, 1, 12, 14, 3), got = test_tensor(dev->real, 1, 12, 14, 3);
      dev->ops->preprocess(dev, &p, &k.image, bytes, &want);
      Preprocess how = p;
      for (int antialias = 0; antialias < 2; antialias++) {
        how.antialias = antialias;
        run(dev, &how, &k, 1, bytes, &got);
        EXPECT(same_bits(&want, &got));
      }
      test_tensor_free(&want);
      test_tensor_free(&got);
      device_close(dev);
    }
  free(bytes);
}

// By hand: 10 20 40 moved right by half a pixel is 5 15 30 20 0, where half of a pixel lies over the black.
TEST(preprocess_affine_is_black_outside) {
  Device *dev = device_open("cpu64", NULL);
  const Preprocess plain = {.unit = 1, .mean = {100, 0, 0}, .std = {2, 1, 1}};
  const uint8_t bytes[] = {10, 10, 10, 20, 20, 20, 40, 40, 40};
  const AffineCase k = {{0, 1, 3, 1, 5, 0, 0, {0}}, {1, 0, -0.5, 0, 1, 0}, 1};
  const double want[] = {5, 15, 30, 20, 0};
  Tensor y = test_tensor(F64, 1, 1, 6, 3);
  run(dev, &plain, &k, 1, bytes, &y);
  for (int x = 0; x < 5; x++) {
    EXPECT_NEAR(get(&y, 0, 0, x, 0), (want[x] - 100) / 2, 0); // black before normalisation
    EXPECT_NEAR(get(&y, 0, 0, x, 1), want[x], 0);
  }
  EXPECT_NEAR(get(&y, 0, 0, 5, 0), 0, 0); // past rw
  test_tensor_free(&y);
  device_close(dev);
}

// What Pillow's convert("L") makes of pure colours and gray, and that a map of NaN reads nothing.
TEST(preprocess_affine_to_brightness) {
  static const uint8_t colours[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 77, 77, 77, 255, 255, 255, 10, 200, 30};
  static const double want[] = {76, 150, 29, 77, 255, 124};
  const Preprocess plain = {.unit = 1, .mean = {1, 50, 60}, .std = {2, 70, 80}, .bgr = true};
  for (int d = 0; d < 2; d++) {
    Device *dev = device_open(d ? "cpu64" : "cpu", NULL);
    const AffineCase k[] = {{{0, 1, 6, 1, 6, 0, 0, {0}}, {1, 0, 0, 0, 1, 0}, 1},
                            {{0, 1, 6, 1, 6, 0, 0, {0}}, {NAN, 0, 0, 0, 1, 0}, 1},
                            {{0, 1, 6, 1, 6, 0, 0, {0}}, {1, 0, 0, 0, INFINITY, 0}, 1}};
    Tensor y = test_tensor(dev->real, 3, 1, 6, 1);
    run(dev, &plain, k, 3, colours, &y);
    for (int x = 0; x < 6; x++) {
      EXPECT_NEAR(get(&y, 0, 0, x, 0), (want[x] - 1) / 2, 0);
      EXPECT_NEAR(get(&y, 1, 0, x, 0), -0.5, 0);
      EXPECT_NEAR(get(&y, 2, 0, x, 0), -0.5, 0);
    }
    expect_padding_zero(&y);
    test_tensor_free(&y);
    device_close(dev);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

enum { SLOTS = 24, SIDE = 45, BYTES = SIDE * SIDE * 3 + 5 };

static const DType dtypes[] = {F32, BF16, F16};
static const Preprocess conventions[] = {
    {.unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}},
    {.unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}, .antialias = true},
    {.unit = 1, .mean = {103.53f, 116.28f, 123.675f}, .std = {1, 1, 1}, .bgr = true, .antialias = true}};

static const float odd_maps[][6] = {{1, 0, 0, 0, 1, 0},   {-1, 0, 30, 0, 1, 0},     {0, 0, 3.5f, 0, 0, 7.25f},
                                    {NAN, 0, 0, 0, 1, 0}, {1, 0, 1e30f, 0, 1, -9},  {INFINITY, 0, 0, 0, 1, 0},
                                    {50, 0, 0, 0, 50, 0}, {0, 1, 0, 1, 0, -0.001f}, {2.25f, 0, -44, 0, 1.25f, -44}};

// Images of many sizes, an empty place among them, through maps as training draws them, and odd ones.
static void fill(ImageInfo *info, int h, int w) {
  const Augment all = {.flip = 0.4f, .rotate = 8, .shift = 0.08f, .shear = 5, .zoom = 0.08f, .crop = 0.1f},
                turned = {.rotate = 180};
  for (int i = 0; i < SLOTS; i++) {
    const uint64_t key = rng_key(RNG_TEST, (uint64_t)i);
    const Size size = {1 + (int)(rng_u32(key, 0) % SIDE), 1 + (int)(rng_u32(key, 1) % SIDE)};
    info[i] = (ImageInfo){.offset = i % 5, .h = size.h, .w = size.w, .rh = h - i % 3, .rw = w - i % 2, .key = key};
    if (i % 4 == 0) // as it may be with --contrast and others
      info[i].view = (ImageView){.coloured = 1, .contrast = 1.25f, .brightness = 0.75f, .saturation = 0.5f, .mean = 99};
    const AugmentMap drawn = augment_classifier(i % 2 ? &all : &turned, 0.875f, key, size, (Size){h, w});
    memcpy(info[i].view.map, i < COUNT(odd_maps) ? odd_maps[i] : drawn.map, sizeof drawn.map);
  }
  info[SLOTS - 2] = (ImageInfo){0};
}

static void gpu_check_canvases(const Preprocess *p, DType dtype, int h, int w, int channels, int rows,
                               const ArrayPair *bytes) {
  ImageInfo host[SLOTS];
  fill(host, h, w);
  ArrayPair info = array_pair(SLOTS, sizeof *host, host);
  TensorPair y = pair_poisoned(dtype, SLOTS, h, w, channels);
  if (rows < SLOTS) pair_rows(&y, rows);
  for (int gpu = 0; gpu < 2; gpu++) {
    Device *dev = gpu ? gpu_device() : cpu_device();
    dev->ops->preprocess_affine(dev, p, array_pair_data(&info, gpu), array_pair_data(bytes, gpu), pair_side(&y, gpu));
  }
  if (!pair_check(&y, NULL, dtype == F32 ? 0 : 1))
    printf("  dtype %d, %d of %d canvases of %d x %d x %d\n", dtype, rows, SLOTS, h, w, channels);
  pair_check_guards(&y, false);
  array_pair_check_equal(&info, info.n); // untouched
  array_pair_free(&info);
  pair_free(&y);
}

TEST(cuda_preprocess_affine_equals_cpu) {
  if (!gpu_device()) return;
  uint8_t pixels[BYTES];
  for (int i = 0; i < BYTES; i++) pixels[i] = (uint8_t)rng_u32(1, (uint64_t)i);
  ArrayPair bytes = array_pair(BYTES, 1, pixels);
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int r = 0; r < COUNT(conventions); r++)
      for (int channels = 1; channels <= 3; channels += 2) {
        gpu_check_canvases(&conventions[r], dtypes[d], 28, 28, channels, SLOTS, &bytes);
        gpu_check_canvases(&conventions[r], dtypes[d], 17, 140, channels, SLOTS, &bytes); // more than a block wide
        gpu_check_canvases(&conventions[r], dtypes[d], 28, 28, channels, 3, &bytes);      // rows past the count
      }
  array_pair_check_equal(&bytes, bytes.n);
  array_pair_free(&bytes);
}
