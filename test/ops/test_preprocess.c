// Catches images resized or normalised differently from PyTorch and Pillow.
//
// Compares with a plain bilinear interpolation in double as PyTorch defines it, and with Pillow's results. A GPU uses
// the same correctly rounded operations one by one (the kernel is compiled with -fmad=false), so that its results equal
// the reference's.
#include <omp.h>
#include "test/harness/op_fixture.h"

static const Preprocess conventions[] = {
    {.unit = 255, .mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}}, // torchvision
    {.unit = 1, .mean = {103.53f, 116.28f, 123.675f}, .std = {1, 1, 1}, .bgr = true, .antialias = true},
    {.unit = 1, .mean = {103.53f, 116.28f, 123.675f}, .std = {1, 1, 1}, .bgr = true},
    {.unit = 255, .std = {1, 1, 1}, .antialias = true}};

static const ImageInfo images[] = {
    {0, 9, 13, 9, 13, 0, 0, {0}},          // as it is
    {9 * 13 * 3, 9, 13, 9, 13, 1, 0, {0}}, // mirrored
    {5, 5, 7, 16, 20, 0, 0, {0}},          // upscaled to the whole canvas, from an odd address
    {5, 5, 7, 11, 19, 1, 0, {0}},          // and mirrored
    {0, 31, 45, 10, 14, 0, 0, {0}},
    {0, 31, 45, 16, 3, 1, 0, {0}}, // downscaled
    {0, 1, 1, 8, 5, 0, 0, {0}},
    {0, 20, 1, 1, 1, 1, 0, {0}}, // a single pixel; to a single pixel
    {0, 0, 0, 0, 0, 0, 0, {0}},  // an empty place
    {0, 16, 20, 16, 20, 1, 0, {0}},
    {1, 31, 45, 150, 290, 1, 0, {0}}, // more than a block wide
};
enum { SMALL = COUNT(images) - 1, BYTES = 31 * 45 * 3 + 1 };

typedef struct PreprocessArgs {
  const Preprocess *p;
  const ImageInfo *images;
  const uint8_t *bytes;
} PreprocessArgs;
static void run_preprocess(Device *dev, void *context, const Dest *y) {
  const PreprocessArgs *a = context;
  dev->ops->preprocess(dev, a->p, a->images, a->bytes, &y->t);
}
static Tensor preprocessed(Fixture *f, const PreprocessArgs *a, Tensor shape) {
  Dest y = {.t = fixture_tensor(f, shape)};
  run_op(f->dev, run_preprocess, (void *)a, &y);
  return y.t;
}
// Of one image, without rows or columns around it.
static Tensor one(Fixture *f, const Preprocess *p, ImageInfo image, const uint8_t *bytes, size_t n) {
  PreprocessArgs a = {p, fixture_copy(f, sizeof image, &image), fixture_copy(f, n, bytes)};
  return preprocessed(f, &a, tensor(f->type, 1, image.rh, image.rw, 3));
}
static PreprocessArgs random_images(Fixture *f) {
  uint8_t *bytes = fixture_alloc(f, BYTES);
  for (int i = 0; i < BYTES; i++) bytes[i] = (uint8_t)rng_u32(1, (uint64_t)i);
  PreprocessArgs a = {.images = fixture_copy(f, sizeof images, images), .bytes = bytes};
  fixture_freeze(f);
  return a;
}

// Pixel centres are at half-integers; positions before the first centre are clamped to it, neighbours to the last.
static double source(int i, int from, int to) { return fmax(0, (i + 0.5) * from / to - 0.5); }

// The value of channel c of the resized image at (y, x).
static double resized(const Preprocess *p, const ImageInfo *image, const uint8_t *rgb, int y, int x, int c) {
  double sy = source(y, image->h, image->rh), sx = source(x, image->w, image->rw), sum = 0;
  for (int row = 0; row < 2; row++)
    for (int column = 0; column < 2; column++) {
      int py = MIN((int)sy + row, image->h - 1), px = MIN((int)sx + column, image->w - 1);
      double wy = row ? sy - (int)sy : 1 - (sy - (int)sy), wx = column ? sx - (int)sx : 1 - (sx - (int)sx);
      sum += wy * wx * rgb[((size_t)py * image->w + px) * 3 + (p->bgr ? 2 - c : c)];
    }
  return (sum / p->unit - p->mean[c]) / p->std[c];
}

static void check_canvases(const PreprocessArgs *a, const Tensor *y) {
  const double u = unit_roundoff(y->dtype);
  for (int i = 0; i < valid_rows(y); i++)
    for (int row = 0; row < y->h; row++)
      for (int x = 0; x < y->w; x++)
        for (int c = 0; c < 3; c++) {
          const ImageInfo *m = &a->images[i];
          double got = get(y, i, row, x, c);
          if (row >= m->rh || x >= m->rw) {
            EXPECT(got == 0);
            continue;
          }
          // A position is off by three roundings of a number ≤ the image's size, and moves the value by at most 255 a
          // pixel (it may also fall on the other side of a pixel, where the interpolation is continuous); the value
          // itself takes ten operations on numbers ≤ 255 / unit / std.
          double bound = (3 * u * (m->h + m->w) + 10 * u) * 255 / a->p->unit / a->p->std[c];
          double want = resized(a->p, m, a->bytes + m->offset, row, m->flip ? m->rw - 1 - x : x, c);
          EXPECT_NEAR(got, want, bound + stored_rounding(y->dtype, want));
        }
  expect_padding_zero(y);
}

TEST_TYPES(preprocess_equals_bilinear_interpolation) {
  PreprocessArgs a = random_images(f);
  Tensor all = tensor(f->type, SMALL, 16, 20, 3), some = tensor(f->type, 4, 16, 20, 3);
  some.count = fixture_count(f, 3);
  int threads = omp_get_max_threads();
  for (int r = 0; r < COUNT(conventions); r++) {
    if (conventions[r].antialias) continue;
    a.p = &conventions[r];
    omp_set_num_threads(1 + r % 2);
    Tensor y = preprocessed(f, &a, all), z = preprocessed(f, &a, some);
    check_canvases(&a, &y);
    check_canvases(&a, &z);
  }
  omp_set_num_threads(threads);
}

// In every convention; canvases wider than a threadblock, and rows past the count.
TEST_GPU_TYPES(cuda_preprocess_equals_cpu) {
  PreprocessArgs a = random_images(f);
  const Tensor shapes[] = {tensor(f->type, COUNT(images), 160, 300, 3), tensor(f->type, SMALL, 16, 20, 3),
                           tensor(f->type, 4, 16, 20, 3)};
  for (int i = 0; i < COUNT(shapes) * COUNT(conventions); i++) {
    Tensor shape = shapes[i % COUNT(shapes)];
    if (shape.n == 4) shape.count = fixture_count(f, 3);
    a.p = &conventions[i / COUNT(shapes)];
    Tensor y = preprocessed(f, &a, shape);
    expect_reference(f, run_preprocess, &a, &y);
  }
}

TEST_DOUBLE(preprocess_of_same_size_takes_the_pixels) {
  const Preprocess *p = &conventions[0];
  uint8_t bytes[6 * 5 * 3];
  for (int i = 0; i < COUNT(bytes); i++) bytes[i] = (uint8_t)rng_u32(2, (uint64_t)i);
  Tensor y = one(f, p, (ImageInfo){0, 6, 5, 6, 5, 0, 0, {0}}, bytes, sizeof bytes);
  for (int i = 0; i < COUNT(bytes); i++)
    EXPECT(get(&y, 0, i / 15, i / 3 % 5, i % 3) == (bytes[i] / 255.0 - p->mean[i % 3]) / p->std[i % 3]);
}

// What F.interpolate(mode="bilinear", align_corners=False) of PyTorch 2 makes of 0 10 30: by hand from its definition.
TEST_OP(preprocess_known_values) {
  const Preprocess plain = {.unit = 255, .std = {1.0f, 1.0f, 1.0f}};
  const uint8_t bytes[] = {0, 0, 0, 10, 10, 10, 30, 30, 30};
  const double want[] = {0, 2.5, 7.5, 15, 25, 30};
  Tensor y = one(f, &plain, (ImageInfo){0, 1, 3, 1, 6, 0, 0, {0}}, bytes, sizeof bytes);
  for (int x = 0; x < 6; x++) EXPECT_NEAR(get(&y, 0, 0, x, 1) * 255, want[x], 16 * unit_roundoff(f->type) * 30);
}

// Pillow's triangle by hand: 0 100 200 40 shrunk to two pixels. The first has its centre at 1 and reaches from -1 to 3:
// weights 0.75 0.75 0.25 of 1.75, so 125 / 1.75 = 71.4; the second likewise 205 / 1.75 = 117.1. Bytes stay as they are
// but for the mean, blue first.
TEST_OP(preprocess_antialias_by_hand) {
  const Preprocess pillow = {.unit = 1, .mean = {1, 2, 3}, .std = {1, 1, 1}, .bgr = true, .antialias = true};
  const uint8_t bytes[] = {0, 10, 20, 100, 10, 20, 200, 10, 20, 40, 10, 20};
  const double want[] = {71, 117};
  for (int flip = 0; flip < 2; flip++) {
    Tensor y = one(f, &pillow, (ImageInfo){0, 1, 4, 1, 2, flip, 0, {0}}, bytes, sizeof bytes);
    for (int x = 0; x < 2; x++) {
      EXPECT_NEAR(get(&y, 0, 0, x, 0), 20 - 1, 0);
      EXPECT_NEAR(get(&y, 0, 0, x, 1), 10 - 2, 0);
      EXPECT_NEAR(get(&y, 0, 0, x, 2), want[flip ? 1 - x : x] - 3, 0);
    }
  }
}

// What Pillow 10.4 makes of an image of 5 × 7 pixels, (37 i + 11 i²) mod 256 for byte i: Image.resize(…, BILINEAR).
TEST_OP(preprocess_equals_pillow) {
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
  for (int k = 0; k < 2; k++) {
    const ImageInfo image = {0, 5, 7, k ? 6 : 3, k ? 9 : 4, 0, 0, {0}};
    const uint8_t *want = k ? larger : smaller;
    Tensor y = one(f, &bytes_alone, image, bytes, sizeof bytes);
    for (int i = 0; i < image.rh * image.rw * 3; i++)
      EXPECT_NEAR(get(&y, 0, i / 3 / image.rw, i / 3 % image.rw, i % 3), want[i], 0);
  }
}

// ---- augmented ------------------------------------------------------------------------------------------------------

static ImageView moved(const float map[6]) {
  ImageView v = {.moved = 1};
  memcpy(v.map, map, sizeof v.map);
  return v;
}

// Turns and mirrors of a picture's own size take its pixels, as np.rot90 and np.flip do.
TEST_DOUBLE(preprocess_turned_takes_the_pixels) {
  const Preprocess plain = {.unit = 1, .std = {1, 1, 1}};
  uint8_t bytes[6 * 6 * 3];
  for (int i = 0; i < COUNT(bytes); i++) bytes[i] = (uint8_t)rng_u32(2, (uint64_t)i);
  static const float maps[][6] = {{1, 0, 0, 0, 1, 0}, {-1, 0, 6, 0, 1, 0}, {1, 0, 0, 0, -1, 6}, {-1, 0, 6, 0, -1, 6},
                                  {0, 1, 0, 1, 0, 0}, {0, -1, 6, 1, 0, 0}, {0, 1, 0, -1, 0, 6}, {0, -1, 6, -1, 0, 6}};
  for (int k = 0; k < COUNT(maps); k++) {
    const float *m = maps[k];
    Tensor y = one(f, &plain, (ImageInfo){.h = 6, .w = 6, .rh = 6, .rw = 6, .view = moved(m)}, bytes, sizeof bytes);
    for (int i = 0; i < COUNT(bytes); i++) {
      const int row = i / 18, x = i / 3 % 6;
      const int from_x = (int)floorf(m[0] * ((float)x + .5f) + m[1] * ((float)row + .5f) + m[2]);
      const int from_y = (int)floorf(m[3] * ((float)x + .5f) + m[4] * ((float)row + .5f) + m[5]);
      EXPECT(get(&y, 0, row, x, i % 3) == bytes[(from_y * 6 + from_x) * 3 + i % 3]);
    }
  }
}

// Where the map is that of the plain resize, so are the pixels, but for rounding.
TEST_OP(preprocess_moved_by_nothing_is_the_resize) {
  PreprocessArgs a = random_images(f);
  const Preprocess *p = &conventions[0];
  for (int i = 0; i < SMALL; i++) {
    ImageInfo plain = images[i], shown = plain;
    if (plain.h == 0) continue;
    const float across = (float)plain.w / (float)plain.rw * (plain.flip ? -1 : 1);
    shown.view =
        moved((const float[]){across, 0, plain.flip ? (float)plain.w : 0, 0, (float)plain.h / (float)plain.rh, 0});
    Tensor want = one(f, p, plain, a.bytes, BYTES), got = one(f, p, shown, a.bytes, BYTES);
    for (int k = 0; k < plain.rh * plain.rw * 3; k++) {
      const int y = k / 3 / plain.rw, x = k / 3 % plain.rw;
      const double w = get(&want, 0, y, x, k % 3);
      // As in check_canvases, twice; a map is of floats, whatever the type.
      const double u = unit_roundoff(F32), bound = 2 * (3 * u * (plain.h + plain.w) + 10 * u) / (double)p->std[k % 3];
      EXPECT_NEAR(get(&got, 0, y, x, k % 3), w, bound);
    }
  }
}

// The bilinear value at a point of the image, whose edge is repeated.
static double value_under(const ImageInfo *m, const uint8_t *rgb, double x, double y, int c) {
  const double px = fmax(x - 0.5, 0), py = fmax(y - 0.5, 0);
  double sum = 0;
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      const int row = MIN((int)py + i, m->h - 1), column = MIN((int)px + j, m->w - 1);
      sum += (i ? py - (int)py : 1 - (py - (int)py)) * (j ? px - (int)px : 1 - (px - (int)px)) *
             rgb[((size_t)row * m->w + column) * 3 + c];
    }
  return sum;
}

// Points beyond the image leave the canvas zero; with antialias a pixel of n × n points has their share.
TEST_DOUBLE(preprocess_moved_equals_a_plain_reference) {
  static const struct {
    float map[6];
    int points; // along an axis, with antialias
  } cases[] = {
      {{0.5f, 0.25f, -1, -0.25f, 0.5f, 3}, 1}, {{2.5f, 0.5f, -6, -0.5f, 2.5f, 4}, 3}, {{0, 3, -8, -3, 0, 40}, 3}};
  PreprocessArgs a = random_images(f);
  for (int k = 0; k < COUNT(cases); k++)
    for (int r = 0; r < COUNT(conventions); r++) {
      const Preprocess *p = &conventions[r];
      const float *m = cases[k].map;
      const ImageInfo image = {.h = 31, .w = 45, .rh = 16, .rw = 20, .view = moved(m)};
      const int n = p->antialias ? cases[k].points : 1;
      Tensor y = one(f, p, image, a.bytes, BYTES);
      for (int i = 0; i < 16 * 20 * 3; i++) {
        const int row = i / 60, x = i / 3 % 20, c = i % 3;
        double sum = 0;
        for (int s = 0; s < n * n; s++) {
          const double cx = x + (s % n + 0.5) / n, cy = row + (s / n + 0.5) / n;
          const double at_x = (double)m[0] * cx + (double)m[1] * cy + (double)m[2];
          const double at_y = (double)m[3] * cx + (double)m[4] * cy + (double)m[5];
          if (at_x >= 0 && at_x < 45 && at_y >= 0 && at_y < 31)
            sum +=
                (value_under(&image, a.bytes, at_x, at_y, p->bgr ? 2 - c : c) / (double)p->unit - (double)p->mean[c]) /
                (double)p->std[c] / (n * n);
        }
        EXPECT_NEAR(get(&y, 0, row, x, c), sum, 1e-9);
      }
    }
}

// torchvision 0.26: adjust_saturation(adjust_brightness(adjust_contrast(x, c), b), s) of x as floats from 0 to 1.
TEST_OP(preprocess_colours_equal_torchvision) {
  static const uint8_t bytes[] = {10, 200, 30, 255, 255, 0, 120, 121, 122, 7, 90, 250};
  static const struct {
    float contrast, brightness, saturation;
    double want[12];
  } cases[] = {
      {1.3f,
       0.8f,
       0.5f,
       {51.2931, 138.675, 51.2931, 192.3618, 192.3618, 90.3618, 91.9829, 92.5029, 93.0229, 29.3447, 59.5266, 131.3447}},
      {0.6f, 1.4f, 1.7f, {19.0372, 255, 47.5972, 255, 255, 0, 177.8847, 179.3127, 180.7407, 41.0982, 159.6221, 255}},
      {1, 1, 1, {10, 200, 30, 255, 255, 0, 120, 121, 122, 7, 90, 250}}};
  const Preprocess plain = {.unit = 1, .std = {1, 1, 1}};
  for (int k = 0; k < COUNT(cases); k++) {
    ImageInfo image = {.h = 1, .w = 4, .rh = 1, .rw = 4};
    image.view = (ImageView){.coloured = 1,
                             .contrast = cases[k].contrast,
                             .brightness = cases[k].brightness,
                             .saturation = cases[k].saturation,
                             .mean = 138.4847f};
    Tensor y = one(f, &plain, image, bytes, sizeof bytes);
    // Both round a few times; a unit is a byte.
    for (int i = 0; i < COUNT(bytes); i++) EXPECT_NEAR(get(&y, 0, 0, i / 3, i % 3), cases[k].want[i], 2e-4);
  }
}

// Moved and coloured images among others, in every convention.
TEST_GPU_TYPES(cuda_preprocess_of_augmented_images_equals_cpu) {
  PreprocessArgs a = random_images(f);
  static const float maps[][6] = {{0.5f, 0.25f, -1, -0.25f, 0.5f, 3}, {2.5f, 0.5f, -6, -0.5f, 2.5f, 4},
                                  {0, -0.125f, 31, 0.25f, 0, 0},      {-1, 0, 20, 0, 1, 0},
                                  {40, 0, -300, 0, 40, -250},         {NAN, 0, 0, 0, INFINITY, 1}};
  ImageInfo *shown = fixture_copy(f, sizeof images, images);
  for (int i = 0; i < COUNT(images); i++) {
    if (i % 4) shown[i].view = moved(maps[i % COUNT(maps)]);
    shown[i].view.coloured = i % 3 > 0;
    shown[i].view.contrast = 1.3f;
    shown[i].view.brightness = 0.9f;
    shown[i].view.saturation = 0.4f;
    shown[i].view.mean = 101.5f;
  }
  a.images = shown;
  for (int i = 0; i < COUNT(conventions); i++) {
    a.p = &conventions[i];
    Tensor y = preprocessed(f, &a, tensor(f->type, COUNT(images), 160, 300, 3));
    expect_reference(f, run_preprocess, &a, &y);
  }
}
