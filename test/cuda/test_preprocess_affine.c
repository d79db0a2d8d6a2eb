// Catches images mapped, cut or brightened otherwise than augmentation asks for.
//
// Affine preprocessing on the GPU against the CPU reference. Both take the same correctly rounded operations one by one
// (the kernel is compiled with -fmad=false), so that F32 is equal to the bit and 16 bits to one rounding.
#include "base/rng.h"
#include "data/batches/augment.h"
#include "test/harness/gpu.h"

enum { PLACES = 24, SIDE = 45, BYTES = SIDE * SIDE * 3 + 5 };

static const DType dtypes[] = {F32, BF16, F16};
static const Preprocess conventions[] = {
    {.unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}},
    {.unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}, .antialias = true},
    {.unit = 1, .mean = {103.53f, 116.28f, 123.675f}, .std = {1, 1, 1}, .bgr = true, .antialias = true}};

static const float odd_maps[][6] = {{1, 0, 0, 0, 1, 0},   {-1, 0, 30, 0, 1, 0},     {0, 0, 3.5f, 0, 0, 7.25f},
                                    {NAN, 0, 0, 0, 1, 0}, {1, 0, 1e30f, 0, 1, -9},  {INFINITY, 0, 0, 0, 1, 0},
                                    {50, 0, 0, 0, 50, 0}, {0, 1, 0, 1, 0, -0.001f}, {2.25f, 0, -44, 0, 1.25f, -44}};

// Images of many sizes, an empty place among them, through maps as training draws them, and odd ones.
static void fill(ImageInfo *info, float *map, int h, int w) {
  const Augment all = {.rotate = 8, .shift = 0.08f, .shear = 5, .zoom = 0.08f, .crop = 0.1f}, turned = {.rotate = 180};
  for (int i = 0; i < PLACES; i++) {
    const uint64_t key = rng_key(RNG_TEST, (uint64_t)i);
    const Size size = {1 + (int)(rng_u32(key, 0) % SIDE), 1 + (int)(rng_u32(key, 1) % SIDE)};
    info[i] = (ImageInfo){.offset = i % 5, .h = size.h, .w = size.w, .rh = h - i % 3, .rw = w - i % 2, .key = key};
    if (i < COUNT(odd_maps))
      memcpy(map + 6 * i, odd_maps[i], sizeof odd_maps[i]);
    else
      augment_map(i % 2 ? &all : &turned, 0.875f, key, i % 3 == 0, size, (Size){h, w}, map + 6 * i);
  }
  info[PLACES - 2] = (ImageInfo){0};
}

static void check_canvases(const Preprocess *p, DType dtype, int h, int w, int channels, int rows,
                           const TwinArray *bytes) {
  ImageInfo host[PLACES];
  float maps[6 * PLACES];
  fill(host, maps, h, w);
  TwinArray info = twin_array(PLACES, sizeof *host, host), map = twin_array(6 * PLACES, sizeof *maps, maps);
  Twin y = twin_poisoned(dtype, PLACES, h, w, channels);
  if (rows < PLACES) twin_rows(&y, rows);
  for (int gpu = 0; gpu < 2; gpu++) {
    Device *dev = gpu ? gpu_device() : cpu_device();
    dev->ops->preprocess_affine(dev, p, twin_array_data(&info, gpu), twin_array_data(&map, gpu),
                                twin_array_data(bytes, gpu), twin_side(&y, gpu));
  }
  if (!twin_check(&y, NULL, dtype == F32 ? 0 : 1))
    printf("  dtype %d, %d of %d canvases of %d x %d x %d\n", dtype, rows, PLACES, h, w, channels);
  twin_check_guards(&y, false);
  twin_array_check_equal(&info, info.n); // untouched
  twin_array_check_equal(&map, map.n);
  twin_array_free(&info);
  twin_array_free(&map);
  twin_free(&y);
}

TEST(cuda_preprocess_affine_equals_cpu) {
  if (!gpu_device()) return;
  uint8_t pixels[BYTES];
  for (int i = 0; i < BYTES; i++) pixels[i] = (uint8_t)rng_u32(1, (uint64_t)i);
  TwinArray bytes = twin_array(BYTES, 1, pixels);
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int r = 0; r < COUNT(conventions); r++)
      for (int channels = 1; channels <= 3; channels += 2) {
        check_canvases(&conventions[r], dtypes[d], 28, 28, channels, PLACES, &bytes);
        check_canvases(&conventions[r], dtypes[d], 17, 140, channels, PLACES, &bytes); // more than a block wide
        check_canvases(&conventions[r], dtypes[d], 28, 28, channels, 3, &bytes);       // rows past the count
      }
  twin_array_check_equal(&bytes, bytes.n);
  twin_array_free(&bytes);
}
