// Catches mask targets and pasted masks that differ from torchvision's.
//
// Compares mask targets and pasting with torchvision's steps one by one: resize the whole mask, then RoIAlign it; pad,
// resize the whole mask, then copy it. On the GPU, with more cases, compares with the CPU: both take sampling positions
// from exact/mask_bins.h, so that targets and pasted bits are equal; only the sigmoid may differ.
#include <omp.h>
#include "base/alloc.h"
#include "data/coco/rle.h"
#include "test/harness/detect.h"

enum { IMAGES = 3, OBJECTS = 3 };

// ---- targets --------------------------------------------------------------------------------------------------------

typedef struct MaskScene {
  ImageInfo *images; // [IMAGES]
  Bitmap *bitmap;    // [IMAGES * OBJECTS]
  uint32_t *bits;
  Truth truth;
  RoiTargets targets;
} MaskScene;

// Enlarged, reduced and mirrored images; bitmaps with holes, one a pixel wide, one over the whole image.
static void scene_random(MaskScene *s, Fixture *f, Draw *r, int rois) {
  const int sizes[IMAGES][4] = {{40, 50, 640, 1700}, {70, 45, 35, 23}, {33, 66, 50, 100}}; // h w rh rw
  s->images = fixture_alloc(f, IMAGES * sizeof *s->images);
  s->bitmap = fixture_alloc(f, IMAGES * OBJECTS * sizeof *s->bitmap);
  s->bits = fixture_alloc(f, 1 << 16);
  int64_t words = 0;
  for (int n = 0; n < IMAGES; n++) {
    const int *size = sizes[n];
    s->images[n] = (ImageInfo){.h = size[0], .w = size[1], .rh = size[2], .rw = size[3], .flip = n > 0};
    for (int g = 0; g < OBJECTS; g++) {
      Bitmap *b = &s->bitmap[n * OBJECTS + g];
      *b = (Bitmap){.offset = words, .w = size[1], .h = size[0]};
      if (g > 0) {
        b->x = below(r, size[1] / 2);
        b->y = below(r, size[0] / 2);
        b->w = g == 1 ? 1 : 1 + below(r, size[1] - b->x);
        b->h = 1 + below(r, size[0] - b->y);
      }
      for (int i = 0; i < b->h * ((b->w + 31) / 32); i++) s->bits[words++] = rng_u32(r->key, r->i++);
    }
  }
  s->truth = (Truth){.images = IMAGES, .capacity = OBJECTS, .bitmap = s->bitmap, .bits = s->bits};
  s->targets = (RoiTargets){.objects = fixture_rois(f, rois + 2), .object_truth = fixture_ints(f, rois + 2)};
  *s->targets.objects.count = rois;
  for (int i = 0; i < rois; i++) {
    int n = i * IMAGES / rois;
    double x = uniform(r, 0, sizes[n][3] - 2), y = uniform(r, 0, sizes[n][2] - 2);
    double x2 = i % 5 ? uniform(r, x, sizes[n][3]) : sizes[n][3], y2 = i % 5 ? uniform(r, y, sizes[n][2]) : sizes[n][2];
    set_box(&s->targets.objects.box, i, x, y, x2, y2);
    s->targets.objects.image[i] = n;
    s->targets.object_truth[i] = n * OBJECTS + below(r, OBJECTS);
  }
}

// torch.nn.functional.interpolate(mode="nearest"), in float: source index = floor(i · in / out).
static int nearest(int i, int in, int out) { return MIN((int)floorf((float)i * ((float)in / (float)out)), in - 1); }

// Pillow's: the source pixel that the centre falls into.
static int nearest_centre(int i, int in, int out) {
  return MIN((int)floorf(((float)i + .5f) * ((float)in / (float)out)), in - 1);
}

// The whole mask, mirrored as its image, at the resized size.
static double *naive_resized(const MaskScene *s, int row, int (*nearest)(int, int, int)) {
  const Bitmap *b = &s->bitmap[row];
  const ImageInfo *im = &s->images[row / OBJECTS];
  double *whole = xcalloc((size_t)im->h * im->w, sizeof *whole), *map = xcalloc((size_t)im->rh * im->rw, sizeof *map);
  for (int y = 0; y < b->h; y++)
    for (int x = 0; x < b->w; x++)
      whole[(b->y + y) * im->w + b->x + x] = s->bits[b->offset + y * ((b->w + 31) / 32) + x / 32] >> x % 32 & 1;
  for (int y = 0; y < im->rh; y++)
    for (int x = 0; x < im->rw; x++) {
      int column = nearest(x, im->w, im->rw);
      map[y * im->rw + x] = whole[nearest(y, im->h, im->rh) * im->w + (im->flip ? im->w - 1 - column : column)];
    }
  free(whole);
  return map;
}

TEST_OP(mask_target_random) {
  enum { ROIS = 18, SIZE = 7 };
  for (int bitmap = 0; bitmap < 2; bitmap++) {
    Draw r = draw_begin(150);
    MaskScene s;
    scene_random(&s, f, &r, ROIS);
    Tensor target = fixture_single(f, ROIS + 2, SIZE, SIZE);
    MaskTarget p = {.size = SIZE, .source = bitmap ? MASK_BITMAP : MASK_SOFT};
    RUN(f, mask_target, &p, s.images, &s.truth, &s.targets, &target);
    const RoiAlign align = {.size = SIZE, .aligned = bitmap}; // adaptive sampling
    // A position below 128 after 6 roundings, slope at most 1 along either axis; then a mean of values up to 1.
    double tolerance = (2 * 6 * 128 + 128) * epsilon(f);
    for (int i = 0; i < ROIS; i++) {
      const ImageInfo *im = &s.images[s.targets.objects.image[i]];
      double *map = naive_resized(&s, s.targets.object_truth[i], bitmap ? nearest_centre : nearest), box[4];
      get_box(&s.targets.objects.box, i, box);
      for (int k = 0; k < SIZE * SIZE; k++) {
        size_t at = pixel(&target, i, k / SIZE, k % SIZE);
        double want = naive_roi_align(map, im->rh, im->rw, 1, &align, 1, box, k / SIZE, k % SIZE);
        if (!bitmap)
          EXPECT_NEAR(get_at(&target, at), want, tolerance);
        else if (fabs(want - .5) > tolerance)
          EXPECT_NEAR(get_at(&target, at), want >= .5, 0);
        for (int lane = 1; lane < target.ldc; lane++) EXPECT_NEAR(get_at(&target, at + lane), 0, 0);
      }
      free(map);
    }
    EXPECT(isnan(get_at(&target, pixel(&target, ROIS, 0, 0))));
    fixture_clear(f);
  }
}

TEST_OP(mask_target_by_hand) {
  // An image of 2 × 4 whose right half is the object; mirrored, the left half of the canvas.
  uint32_t *bits = fixture_copy(f, 2 * sizeof *bits, (const uint32_t[]){3, 3});
  Bitmap *bitmap = fixture_copy(f, sizeof *bitmap, &(const Bitmap){.x = 2, .y = 0, .w = 2, .h = 2});
  for (int flip = 0; flip < 2; flip++) {
    ImageInfo *image =
        fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 2, .w = 4, .rh = 4, .rw = 8, .flip = flip});
    Truth truth = {.images = 1, .capacity = 1, .bitmap = bitmap, .bits = bits};
    RoiTargets targets = {.objects = fixture_rois(f, 1), .object_truth = fixture_ints(f, 1)};
    *targets.objects.count = 1;
    targets.objects.image[0] = targets.object_truth[0] = 0;
    set_box(&targets.objects.box, 0, 1, 0, 7, 3); // three bins of 2 × 1 pixels, samples at .5 past whole columns
    Tensor target = fixture_single(f, 1, 3, 3);
    MaskTarget p = {.size = 3};
    RUN(f, mask_target, &p, image, &truth, &targets, &target);
    // Columns 1.5 2.5 | 3.5 4.5 | 5.5 6.5: only 3.5 lies between the halves.
    const double want[2][3] = {{0, .75, 1}, {1, .25, 0}};
    for (int k = 0; k < 3; k++) EXPECT_NEAR(get_at(&target, pixel(&target, 0, 1, k)), want[flip][k], 64 * epsilon(f));
  }
}

// ---- polygons -------------------------------------------------------------------------------------------------------

static int64_t add_part(uint32_t *words, int64_t at, int points, const float *xy) {
  words[at++] = (uint32_t)points;
  memcpy(words + at, xy, 2 * (size_t)points * sizeof *xy);
  return at + 2 * points;
}

// One object with one box; n words are those of its bitmap.
static Tensor polygon_target(Fixture *f, const MaskTarget *p, const Bitmap *bitmap, const uint32_t *words, size_t n,
                             const double box[4]) {
  ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 64, .w = 64, .rh = 64, .rw = 64});
  Truth truth = {.images = 1,
                 .capacity = 1,
                 .bitmap = fixture_copy(f, sizeof *bitmap, bitmap),
                 .bits = fixture_copy(f, n * sizeof *words, words)};
  RoiTargets targets = {.objects = fixture_rois(f, 1), .object_truth = fixture_ints(f, 1)};
  *targets.objects.count = 1;
  targets.objects.image[0] = targets.object_truth[0] = 0;
  set_box(&targets.objects.box, 0, box[0], box[1], box[2], box[3]);
  Tensor target = fixture_single(f, 1, p->size, p->size);
  RUN(f, mask_target, p, image, &truth, &targets, &target);
  return target;
}

static void expect_rows(const Tensor *target, const char *const *rows) {
  for (int y = 0; y < target->h; y++)
    for (int x = 0; x < target->w; x++)
      if (!EXPECT_NEAR(get_at(target, pixel(target, 0, y, x)), rows[y][x] == '#', 0))
        printf("    at row %d, %d\n", y, x);
}

TEST_OP(mask_target_polygons_by_hand) {
  // Squares 11 … 13 and 12 … 15 overlap in one pixel, which stays covered: the union, not the toggle.
  const float squares[2][8] = {{11, 11, 13, 11, 13, 13, 11, 13}, {12, 12, 15, 12, 15, 15, 12, 15}};
  uint32_t words[32] = {0};
  const Bitmap both = {.parts = 2}, one = {.parts = 1};
  add_part(words, add_part(words, 0, 4, squares[0]), 4, squares[1]);
  MaskTarget p = {.size = 4, .source = MASK_POLYGON, .least_side = .1f};
  Tensor t =
      polygon_target(f, &p, &both, words, COUNT(words), (double[]){10, 10, 14, 14}); // a pixel is a pixel; cut at 14
  expect_rows(&t, (const char *const[]){"....", ".##.", ".###", "..##"});
  // Half as wide, 0.5 … 1.5: of the two halves, rounding to fifths (2.5 to 3, 7.5 to 8) leaves the second.
  t = polygon_target(f, &p, &one, words, COUNT(words), (double[]){10, 10, 18, 14});
  expect_rows(&t, (const char *const[]){"....", ".#..", ".#..", "...."});
  // The square covers a box from 12 to 12.5 whole. One from 12.5 to 12.75 it covers, too, unless that is taken to be
  // a pixel wide: then it ends at 13.5, half a box beyond the square.
  t = polygon_target(f, &p, &one, words, COUNT(words), (double[]){12, 11, 12.5, 13});
  expect_rows(&t, (const char *const[]){"####", "####", "####", "####"});
  p.least_side = 1;
  t = polygon_target(f, &p, &one, words, COUNT(words), (double[]){12.5, 11, 12.75, 13});
  expect_rows(&t, (const char *const[]){"##..", "##..", "##..", "##.."});
  p.least_side = .1f;
  t = polygon_target(f, &p, &one, words, COUNT(words), (double[]){12.5, 11, 12.75, 13});
  expect_rows(&t, (const char *const[]){"####", "####", "####", "####"});
}

// Stars and zigzags, partly far outside the box, against data/coco/rle.c's polygons over the same grid.
TEST_OP(mask_target_polygons_random) {
  enum { SIZE = 28, PARTS = 3, MOST = 40 };
  for (int seed = 0; seed < 40; seed++) {
    Draw r = draw_begin(190 + seed);
    uint32_t words[PARTS * (1 + 2 * MOST)] = {0};
    float box[4] = {(float)uniform(&r, 0, 40), (float)uniform(&r, 0, 40)};
    box[2] = box[0] + (float)uniform(&r, .05, 20);
    box[3] = box[1] + (float)uniform(&r, .05, 20);
    MaskTarget p = {.size = SIZE, .source = MASK_POLYGON, .least_side = seed % 2 ? 1 : .1f};
    Rle want[PARTS];
    int64_t at = 0;
    for (int k = 0; k < PARTS; k++) {
      int points = 3 + below(&r, MOST - 3);
      float xy[2 * MOST];
      double crop[2 * MOST];
      for (int i = 0; i < 2 * points; i++) {
        float w = box[i % 2 + 2] - box[i % 2];
        xy[i] = box[i % 2] + w * (float)(seed % 3 ? uniform(&r, -.3, 1.3) : uniform(&r, -30, 30));
        if (f->dev->real == F64) {
          double side = fmax((double)box[i % 2 + 2] - box[i % 2], p.least_side);
          crop[i] = ((double)xy[i] - box[i % 2]) * (SIZE / side);
        } else {
          crop[i] = (double)((xy[i] - box[i % 2]) * (SIZE / fmaxf(w, p.least_side)));
        }
      }
      at = add_part(words, at, points, xy);
      want[k] = rle_from_polygon(crop, points, SIZE, SIZE);
    }
    Tensor t = polygon_target(f, &p, &(Bitmap){.parts = PARTS}, words, COUNT(words),
                              (double[]){box[0], box[1], box[2], box[3]});
    Rle all = rle_merge(want, PARTS, false);
    uint8_t bytes[SIZE * SIZE];
    rle_to_bytes(&all, bytes);
    int wrong = 0;
    for (int i = 0; i < SIZE * SIZE; i++) wrong += get_at(&t, pixel(&t, 0, i / SIZE, i % SIZE)) != bytes[i];
    EXPECT_INT(wrong, 0);
    for (int k = 0; k < PARTS; k++) rle_free(&want[k]);
    rle_free(&all);
    fixture_clear(f);
  }
}

// What has no polygons is taken from its bitmap, whichever was asked for.
TEST_OP(mask_target_without_polygons) {
  Draw r = draw_begin(200);
  MaskScene s;
  scene_random(&s, f, &r, 9);
  Tensor target[2];
  for (int i = 0; i < 2; i++) {
    MaskTarget p = {.size = 14, .source = i ? MASK_POLYGON : MASK_BITMAP, .least_side = 1};
    target[i] = fixture_single(f, 11, 14, 14);
    RUN(f, mask_target, &p, s.images, &s.truth, &s.targets, &target[i]);
  }
  EXPECT(!memcmp(target[0].data, target[1].data, tensor_bytes(&target[0])));
}

// An object without a mask has a negative target, the others keep theirs.
TEST_OP(mask_target_of_no_mask) {
  Draw r = draw_begin(201);
  MaskScene s;
  scene_random(&s, f, &r, 9);
  for (int source = MASK_SOFT; source <= MASK_POLYGON; source++) {
    MaskTarget p = {.size = 14, .source = (MaskSource)source, .least_side = 1};
    const int row = s.targets.object_truth[0], was = s.truth.bitmap[row].parts;
    Tensor target[2];
    for (int i = 0; i < 2; i++) {
      ((Bitmap *)s.truth.bitmap)[row].parts = i ? NO_MASK : was;
      target[i] = fixture_single(f, 11, 14, 14);
      RUN(f, mask_target, &p, s.images, &s.truth, &s.targets, &target[i]);
    }
    ((Bitmap *)s.truth.bitmap)[row].parts = was;
    for (int o = 0; o < *s.targets.objects.count; o++)
      for (int i = 0; i < 14 * 14; i++) {
        const double got = get(&target[1], o, i / 14, i % 14, 0);
        const bool lacks = s.targets.object_truth[o] == row;
        EXPECT(lacks ? got == -1 : got == get(&target[0], o, i / 14, i % 14, 0));
      }
  }
}

// ---- predictions ----------------------------------------------------------------------------------------------------

TEST_OP(mask_select_takes_the_class) {
  enum { CLASSES = 4, SIZE = 3 };
  Draw r = draw_begin(160);
  Boxes detections = fixture_boxes(f, 3, 2);
  const int counts[] = {1, 0, 2}, classes[] = {3, 1, 2};
  memcpy(detections.count, counts, sizeof counts);
  detections.index[0] = 5 * CLASSES + classes[0]; // roi · classes + class
  detections.index[4] = 0 * CLASSES + classes[1];
  detections.index[5] = 9 * CLASSES + classes[2];
  Tensor logits = fixture_map(f, 6, SIZE, SIZE, CLASSES), probs = fixture_single(f, 6, SIZE, SIZE);
  fill_random(&r, &logits, -9, 9);
  RUN(f, mask_select, &detections, &logits, &probs);
  for (int row = 0; row < 3; row++)
    for (int k = 0; k < SIZE * SIZE; k++) {
      double logit = get_at(&logits, pixel(&logits, row, k / SIZE, k % SIZE) + classes[row]);
      EXPECT_NEAR(get_at(&probs, pixel(&probs, row, k / SIZE, k % SIZE)), 1 / (1 + exp(-logit)), 4 * epsilon(f));
    }
  EXPECT(isnan(get_at(&probs, pixel(&probs, 3, 0, 0))));
}

// The value at pixel (y, x) of an n × m array [n][m] stretched bilinearly to h × w (align_corners false).
static double naive_stretched(const double *mask, int m, int h, int w, int y, int x) {
  double sy = fmax(((double)m / h) * (y + .5) - .5, 0), sx = fmax(((double)m / w) * (x + .5) - .5, 0);
  int y0 = MIN((int)sy, m - 1), x0 = MIN((int)sx, m - 1), y1 = MIN(y0 + 1, m - 1), x1 = MIN(x0 + 1, m - 1);
  double fy = sy - y0, fx = sx - x0;
  return (1 - fy) * ((1 - fx) * mask[y0 * m + x0] + fx * mask[y0 * m + x1]) +
         fy * ((1 - fx) * mask[y1 * m + x0] + fx * mask[y1 * m + x1]);
}

// torchvision's paste_masks_in_image for one mask of m × m, before the threshold; result [h][w].
static double *naive_paste(const Tensor *probs, int row, const double box[4], const ImageInfo *im) {
  int m = probs->h + 2;
  double *padded = xcalloc((size_t)m * m, sizeof *padded), *image = xcalloc((size_t)im->h * im->w, sizeof *image);
  for (int y = 1; y < m - 1; y++)
    for (int x = 1; x < m - 1; x++) padded[y * m + x] = get_at(probs, pixel(probs, row, y - 1, x - 1));
  int corner[4];
  for (int k = 0; k < 2; k++) {
    double ratio = k ? (float)im->h / (float)im->rh : (float)im->w / (float)im->rw;
    double low = box[k] * ratio, high = box[k + 2] * ratio, half = (high - low) * .5 * m / (m - 2);
    corner[k] = (int)((low + high) * .5 - half);
    corner[k + 2] = (int)((low + high) * .5 + half);
  }
  int w = MAX(corner[2] - corner[0] + 1, 1), h = MAX(corner[3] - corner[1] + 1, 1);
  for (int y = MAX(corner[1], 0); y < MIN(corner[3] + 1, im->h); y++)
    for (int x = MAX(corner[0], 0); x < MIN(corner[2] + 1, im->w); x++)
      image[y * im->w + x] = naive_stretched(padded, m, h, w, y - corner[1], x - corner[0]);
  free(padded);
  return image;
}

typedef struct PredictedMasks {
  ImageInfo *images; // [IMAGES]
  Boxes detections;
  Tensor probs;
  int64_t words;
} PredictedMasks;

static void predictions_random(PredictedMasks *p, Fixture *f, Draw *r) {
  const int sizes[IMAGES][4] = {{40, 50, 64, 80}, {0}, {71, 53, 35, 26}};
  p->images = fixture_alloc(f, IMAGES * sizeof *p->images);
  p->detections = fixture_boxes(f, IMAGES, 8);
  p->probs = fixture_single(f, IMAGES * 8, 6, 6);
  p->words = (71 * 53 + 31) / 32;
  fill_random(r, &p->probs, 0, 1);
  for (int n = 0; n < IMAGES; n++) {
    const int *size = sizes[n];
    p->images[n] = (ImageInfo){.h = size[0], .w = size[1], .rh = size[2], .rw = size[3]};
    p->detections.count[n] = size[0] ? 8 - n : 0;
    for (int i = 0; i < p->detections.count[n]; i++) {
      double x = uniform(r, 0, size[3] - 2), y = uniform(r, 0, size[2] - 2);
      bool edge = i % 3 == 0, dot = i == 4;
      set_box(&p->detections.box, n * 8 + i, edge ? 0 : x, edge ? 0 : y, dot ? x + .01 : uniform(r, x, size[3]),
              dot ? y + .01 : uniform(r, y, size[2]));
    }
  }
}

TEST_OP(mask_paste_random) {
  Draw r = draw_begin(170);
  PredictedMasks p;
  predictions_random(&p, f, &r);
  uint32_t *bits = fixture_alloc(f, IMAGES * 8 * p.words * sizeof *bits);
  RUN(f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, bits, p.words);
  int row = 0, set_bits = 0;
  // Eight roundings of a position below 8 with a slope of at most 1 along either axis, and of a mean below 1.
  double tolerance = (2 * 8 * 8 + 8) * epsilon(f);
  for (int n = 0; n < IMAGES; n++)
    for (int i = 0; i < p.detections.count[n]; i++, row++) {
      const ImageInfo *im = &p.images[n];
      double box[4];
      get_box(&p.detections.box, n * 8 + i, box);
      double *want = naive_paste(&p.probs, row, box, im);
      for (int bit = 0; bit < 32 * p.words; bit++) {
        int x = bit / im->h, y = bit % im->h, got = bits[row * p.words + bit / 32] >> bit % 32 & 1;
        double value = x < im->w ? want[y * im->w + x] : 0; // past the image the words are zero
        if (fabs(value - .5) > tolerance) EXPECT_INT(got, value >= .5);
        set_bits += got;
      }
      free(want);
    }
  EXPECT_INT(row, 14);
  EXPECT(set_bits > 1000);
  EXPECT_INT(bits[row * p.words], UINT32_MAX); // rows past the count are left alone
}

// Rows in parts, each to the beginning of the memory, are those of the whole.
TEST_OP(mask_paste_in_parts) {
  enum { PART = 3 };
  Draw r = draw_begin(171);
  PredictedMasks p;
  predictions_random(&p, f, &r);
  size_t row = (size_t)p.words * sizeof(uint32_t);
  uint32_t *whole = fixture_alloc(f, IMAGES * 8 * row), *part = fixture_alloc(f, PART * row);
  RUN(f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, whole, p.words);
  int n = 0;
  for (int i = 0; i < IMAGES; i++) n += p.detections.count[i];
  for (int first = 0; first < n; first += PART) {
    MaskPaste how = {.threshold = .5f, .first = first, .rows = PART};
    RUN(f, mask_paste, &how, p.images, &p.detections, &p.probs, part, p.words);
    for (int i = 0; i < MIN(PART, n - first); i++)
      EXPECT(!memcmp(part + i * p.words, whole + (first + i) * p.words, row));
  }
  EXPECT(n % PART != 0);
}

TEST_OP(mask_paste_by_hand) {
  // A full mask of 2 × 2 over a box of 4 × 4 at (2, 2): the border of zeros makes it 8 × 8 at (0, 0) … 4 mask pixels
  // over 9 image pixels (0 … 8), ≥ 0.5 where the position is between 0.5 and 2.5: pixels 2 … 6.
  ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 10, .w = 12, .rh = 10, .rw = 12});
  Boxes detections = fixture_boxes(f, 1, 1);
  Tensor probs = fixture_single(f, 1, 2, 2);
  for (int k = 0; k < 4; k++) set_at(&probs, (size_t)k * probs.ldc, 1);
  set_box(&detections.box, 0, 2, 2, 6, 6);
  detections.count[0] = 1;
  uint32_t *bits = fixture_alloc(f, 4 * sizeof *bits);
  RUN(f, mask_paste, &(MaskPaste){.threshold = .5f}, image, &detections, &probs, bits, 4);
  for (int x = 0; x < 12; x++)
    for (int y = 0; y < 10; y++) {
      // The product of two positions decides at the corners: (2, 2) is at 0.611 along both, 0.373 in all.
      bool inside = x >= 2 && x <= 6 && y >= 2 && y <= 6, corner = (x == 2 || x == 6) && (y == 2 || y == 6);
      EXPECT_INT(bits[(x * 10 + y) / 32] >> (x * 10 + y) % 32 & 1, inside && !corner);
    }
}

TEST_OP(mask_paste_exact_by_hand) {
  // The same over the box as it is: half a mask pixel a pixel, so that along either axis pixels 2 … 5 have 0.75 1 1
  // 0.75 and their neighbours 0.25. Corners have 0.5625: the pixels of the box, all of them. A box without area has
  // none.
  ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 10, .w = 12, .rh = 10, .rw = 12});
  Boxes detections = fixture_boxes(f, 1, 2);
  Tensor probs = fixture_single(f, 2, 2, 2);
  for (int k = 0; k < 8; k++) set_at(&probs, (size_t)k * probs.ldc, 1);
  set_box(&detections.box, 0, 2, 2, 6, 6);
  set_box(&detections.box, 1, 3, 3, 3, 6);
  detections.count[0] = 2;
  uint32_t *bits = fixture_alloc(f, 8 * sizeof *bits);
  RUN(f, mask_paste, &(MaskPaste){.threshold = .5f, .exact = true}, image, &detections, &probs, bits, 4);
  for (int x = 0; x < 12; x++)
    for (int y = 0; y < 10; y++)
      EXPECT_INT(bits[(x * 10 + y) / 32] >> (x * 10 + y) % 32 & 1, x >= 2 && x < 6 && y >= 2 && y < 6);
  for (int i = 4; i < 8; i++) EXPECT_INT(bits[i], 0);
}

TEST_OP(masks_threads) {
  enum { ROIS = 18 };
  Draw r = draw_begin(180);
  MaskScene s;
  scene_random(&s, f, &r, ROIS);
  PredictedMasks p;
  predictions_random(&p, f, &r);
  size_t bytes = IMAGES * 8 * p.words * sizeof(uint32_t);
  Tensor target[3];
  uint32_t *bits[3];
  MaskTarget how = {.size = 14};
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    target[t] = fixture_single(f, ROIS + 2, 14, 14);
    bits[t] = fixture_alloc(f, bytes);
    RUN(f, mask_target, &how, s.images, &s.truth, &s.targets, &target[t]);
    RUN(f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, bits[t], p.words);
    EXPECT(!memcmp(target[0].data, target[t].data, tensor_bytes(&target[0])));
    EXPECT(!memcmp(bits[0], bits[t], bytes));
  }
  omp_set_num_threads(before);
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

// Images decoded at h × w and resized to rh × rw: reduced, enlarged, mirrored, a single pixel. A box over all of the
// first has more columns of sampling points than a threadblock keeps.
enum { GPU_IMAGES = 4, ROIS = 24, MAX_WORDS = 4096 };
static const int sizes[GPU_IMAGES][4] = {{40, 50, 640, 1700}, {70, 45, 35, 23}, {33, 66, 50, 100}, {1, 1, 1, 1}};

static ImageInfo *images(Fixture *f) {
  ImageInfo *info = fixture_alloc(f, GPU_IMAGES * sizeof *info);
  for (int n = 0; n < GPU_IMAGES; n++) {
    const int *s = sizes[n];
    info[n] = (ImageInfo){.h = s[0], .w = s[1], .rh = s[2], .rw = s[3], .flip = n % 2};
  }
  return info;
}

// Bitmaps over the whole image, one pixel wide, without a pixel; boxes over the whole image, thin, outside. Returns how
// many words the bitmaps have, of those there is room for.
static int64_t objects_random(MaskScene *s, Fixture *f, int count, int64_t room) {
  Draw d = draw_begin(21);
  int64_t words = 0;
  s->images = images(f);
  s->bitmap = fixture_alloc(f, GPU_IMAGES * OBJECTS * sizeof *s->bitmap);
  s->bits = fixture_alloc(f, (size_t)room * sizeof *s->bits);
  for (int i = 0; i < GPU_IMAGES * OBJECTS; i++) {
    const int *size = sizes[i / OBJECTS];
    Bitmap *b = &s->bitmap[i];
    *b = (Bitmap){.offset = words, .w = size[1], .h = size[0]};
    if (i % OBJECTS == 1) *b = (Bitmap){.offset = words, .x = size[1] / 2, .w = 1, .h = size[0]};
    if (i % OBJECTS == 2)
      *b = (Bitmap){.offset = words, .x = size[1] / 3, .y = size[0] / 3, .w = size[1] / 2, .h = size[0] / 2};
    for (int j = 0; j < b->h * ((b->w + 31) / 32); j++) s->bits[words++] = rng_u32(d.key, d.i++);
    CHECK(words < MAX_WORDS);
  }
  s->truth = (Truth){.images = GPU_IMAGES, .capacity = OBJECTS, .bitmap = s->bitmap, .bits = s->bits};
  s->targets = (RoiTargets){.objects = fixture_rois(f, ROIS), .object_truth = fixture_ints(f, ROIS)};
  *s->targets.objects.count = count;
  for (int i = 0; i < ROIS; i++) {
    int n = i % GPU_IMAGES;
    double w = sizes[n][3], h = sizes[n][2], x = uniform(&d, -2, w), y = uniform(&d, -2, h);
    double box[4] = {x, y, uniform(&d, x, w + 2), uniform(&d, y, h + 2)};
    if (i < GPU_IMAGES) memcpy(box, (double[]){0, 0, w, h}, sizeof box);
    if (i == 5) memcpy(box, (double[]){7, 7, 7, 7}, sizeof box);
    if (i == 6) memcpy(box, (double[]){3, 0, 3.25, h}, sizeof box);
    if (i == 9) memcpy(box, (double[]){w + 9, h + 9, w + 20, h + 30}, sizeof box);
    set_box(&s->targets.objects.box, i, box[0], box[1], box[2], box[3]);
    s->targets.objects.image[i] = n;
    s->targets.object_truth[i] = n * OBJECTS + below(&d, OBJECTS);
  }
  return words;
}

// Returns how many pixels are 1.
static int check_target(Fixture *f, const MaskScene *s, const MaskTarget *p) {
  fixture_freeze(f);
  Tensor got = fixture_single(f, ROIS, p->size, p->size), want = fixture_single(f, ROIS, p->size, p->size);
  RUN(f, mask_target, p, s->images, &s->truth, &s->targets, &got);
  REFERENCE(mask_target, p, s->images, &s->truth, &s->targets, &want);
  int pixels = *s->targets.objects.count * p->size * p->size, set = 0;
  if (!EXPECT(!memcmp(got.data, want.data, (size_t)pixels * sizeof(float))))
    printf("  size %d, source %d\n", p->size, (int)p->source);
  for (int i = 0; i < pixels; i++) set += get_at(&want, (size_t)i) == 1;
  fixture_clear(f);
  return set;
}

TEST_GPU(cuda_mask_target) {
  for (int variant = 0; variant < 6; variant++) {
    MaskScene s;
    MaskTarget p = {.size = variant & 1 ? 28 : 7, .source = variant & 2 ? MASK_BITMAP : MASK_SOFT};
    objects_random(&s, f, variant < 4 ? ROIS - 2 : 0, MAX_WORDS);
    check_target(f, &s, &p);
  }
}

// Every third object has its bits; the others polygons of one to five parts, of up to 300 points, partly outside the
// box, all of it or none.
TEST_GPU(cuda_mask_target_polygons) {
  enum { PARTS = 5, POINTS = 300 };
  for (int variant = 0; variant < 4; variant++) {
    Draw d = draw_begin(25);
    MaskScene scene;
    int64_t at = objects_random(&scene, f, ROIS, MAX_WORDS * 64);
    for (int i = 0; i < GPU_IMAGES * OBJECTS; i++) {
      if (i % 3 == 0) continue;
      const int *s = sizes[i / OBJECTS];
      Bitmap *b = &scene.bitmap[i];
      *b = (Bitmap){.offset = at, .parts = 1 + below(&d, PARTS)};
      for (int k = 0; k < b->parts; k++) {
        float xy[2 * POINTS];
        int points = i % 4 ? 3 + below(&d, 20) : POINTS;
        for (int j = 0; j < 2 * points; j++) {
          double side = s[j % 2 ? 2 : 3], far = i % 5 ? .2 : 20;
          xy[j] = (float)uniform(&d, -far * side, (1 + far) * side);
        }
        at = add_part(scene.bits, at, points, xy);
      }
    }
    MaskTarget p = {
        .size = (const int[]){7, 28, 64, 33}[variant], .source = MASK_POLYGON, .least_side = variant % 2 ? 1 : .1f};
    int set = check_target(f, &scene, &p);
    EXPECT(set > ROIS * p.size && set < ROIS * p.size * p.size);
  }
}

enum { CAPACITY = 6, CLASSES = 5, SLOTS = GPU_IMAGES * CAPACITY, DETECTIONS = CAPACITY + 0 + 3 + 1 };
static const int counts[GPU_IMAGES] = {CAPACITY, 0, 3, 1};

static Boxes detections_random(Fixture *f) {
  Draw d = draw_begin(22);
  Boxes b = fixture_boxes(f, GPU_IMAGES, CAPACITY);
  memcpy(b.count, counts, sizeof counts);
  for (int i = 0; i < SLOTS; i++) {
    const int *s = sizes[i / CAPACITY];
    double w = s[3], h = s[2], x = uniform(&d, 0, w), y = uniform(&d, 0, h);
    double box[4] = {x, y, uniform(&d, x, w), uniform(&d, y, h)};
    if (i % CAPACITY == 0) memcpy(box, (double[]){0, 0, w, h}, sizeof box);
    if (i % CAPACITY == 2) memcpy(box, (double[]){x, y, x + .01, y + .01}, sizeof box);
    set_box(&b.box, i, box[0], box[1], box[2], box[3]);
    b.index[i] = 10 * CLASSES * i + 1 + i % (CLASSES - 1);
  }
  return b;
}

TEST_GPU(cuda_mask_select) {
  static const DType dtypes[] = {F32, BF16, F16};
  for (int k = 0; k < COUNT(dtypes); k++) {
    Draw d = draw_begin(23);
    Boxes b = detections_random(f);
    int size = k ? 5 : 28;
    Tensor logits = fixture_typed(f, dtypes[k], SLOTS, size, size, CLASSES);
    fill_normal(&d, &logits, 4);
    Tensor floats = fixture_floats(f, &logits);
    fixture_freeze(f);
    Tensor got = fixture_single(f, SLOTS, size, size), want = fixture_single(f, SLOTS, size, size);
    RUN(f, mask_select, &b, &logits, &got);
    REFERENCE(mask_select, &b, &floats, &want);
    for (size_t i = 0; i < (size_t)(DETECTIONS * size * size); i++) {
      double p = get_at(&want, i); // on either side exp is off by two steps at most, then a sum and a quotient
      EXPECT_NEAR(get_at(&got, i), p, 12 * (0x1p-24 * p + 1e-30));
    }
    fixture_clear(f);
  }
}

// Every word of the valid rows equals the CPU's; the rest is left alone.
static void check_paste(Fixture *f, int size, const MaskPaste *how, int64_t words, const ImageInfo *first) {
  Draw d = draw_begin(24);
  Boxes b = detections_random(f);
  ImageInfo *info = images(f);
  if (first) *info = *first;
  Tensor probs = fixture_single(f, SLOTS, size, size);
  fill_random(&d, &probs, 0, 1);
  fixture_freeze(f);
  size_t bytes = (size_t)(SLOTS * words) * sizeof(uint32_t);
  uint32_t *got = fixture_alloc(f, bytes), *want = fixture_alloc(f, bytes);
  RUN(f, mask_paste, how, info, &b, &probs, got, words);
  REFERENCE(mask_paste, how, info, &b, &probs, want, words);
  EXPECT(!memcmp(got, want, bytes));
  int set = 0;
  for (int64_t i = 0; i < DETECTIONS * words; i++) set += __builtin_popcount(want[i]);
  EXPECT(set > 100);
  fixture_clear(f);
}

TEST_GPU(cuda_mask_paste) {
  for (int exact = 0; exact < 2; exact++) {
    check_paste(f, 28, &(MaskPaste){.threshold = .5f, .exact = exact}, (70 * 45 + 31) / 32, NULL);
    check_paste(f, 3, &(MaskPaste){.threshold = .25f, .exact = exact}, 3 * 70 * 45 / 32, NULL); // longer than any image
    check_paste(f, 28, &(MaskPaste){.threshold = .5f, .first = 2, .rows = 5}, (70 * 45 + 31) / 32, NULL);
  }
}

// An image of so many words that a thread makes several.
TEST_GPU(cuda_mask_paste_large) {
  const ImageInfo large = {.h = 3001, .w = 3001, .rh = 200, .rw = 200};
  check_paste(f, 28, &(MaskPaste){.threshold = .5f}, (3001 * 3001 + 31) / 32, &large);
}
