// Catches mask targets and pasted masks that differ from torchvision's.
//
// Mask targets and pasting against torchvision's steps taken one by one: resize the whole mask, then RoIAlign it; pad,
// stretch the whole mask, then copy it.
#include <omp.h>
#include "base/alloc.h"
#include "data/coco/rle.h"
#include "test/harness/detect.h"

enum { IMAGES = 3, OBJECTS = 3 };

// ---- targets --------------------------------------------------------------------------------------------------------

typedef struct MaskScene {
  ImageInfo images[IMAGES];
  Bitmap bitmap[IMAGES * OBJECTS];
  uint32_t *bits;
  Truth truth;
  RoiTargets targets;
} MaskScene;

// Enlarged, reduced and mirrored images; bitmaps with holes, one a pixel wide, one over the whole image.
static void scene_random(MaskScene *s, Fixture *f, Random *r, int rois) {
  const int sizes[IMAGES][4] = {{40, 50, 64, 80}, {70, 45, 35, 23}, {33, 66, 50, 100}}; // h w rh rw
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

TEST(mask_target_random) {
  enum { ROIS = 18, SIZE = 7 };
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int bitmap = 0; bitmap < 2; bitmap++) {
      Fixture f = fixture_open(detect_devices[d]);
      Random r = random_begin(150);
      MaskScene s;
      scene_random(&s, &f, &r, ROIS);
      Tensor target = fixture_map(&f, ROIS + 2, SIZE, SIZE, 1);
      MaskTarget p = {.size = SIZE, .source = bitmap ? MASK_BITMAP : MASK_SOFT};
      RUN(&f, mask_target, &p, s.images, &s.truth, &s.targets, &target);
      const RoiAlign align = {.size = SIZE, .aligned = bitmap}; // adaptive sampling
      // A position below 128 after 6 roundings, slope at most 1 along either axis; then a mean of values up to 1.
      double tolerance = (2 * 6 * 128 + 128) * epsilon(&f);
      for (int i = 0; i < ROIS; i++) {
        const ImageInfo *im = &s.images[s.targets.objects.image[i]];
        double *map = naive_resized(&s, s.targets.object_truth[i], bitmap ? nearest_centre : nearest), box[4];
        get_box(&s.targets.objects.box, i, box);
        for (int k = 0; k < SIZE * SIZE; k++) {
          size_t at = pixel(&target, i, k / SIZE, k % SIZE);
          double want = naive_roi_align(map, im->rh, im->rw, 1, &align, 1, box, k / SIZE, k % SIZE);
          if (!bitmap)
            EXPECT_NEAR(get(&target, at), want, tolerance);
          else if (fabs(want - .5) > tolerance)
            EXPECT_NEAR(get(&target, at), want >= .5, 0);
          for (int lane = 1; lane < target.ldc; lane++) EXPECT_NEAR(get(&target, at + lane), 0, 0);
        }
        free(map);
      }
      EXPECT(isnan(get(&target, pixel(&target, ROIS, 0, 0))));
      fixture_close(&f);
    }
}

TEST(mask_target_by_hand) {
  // An image of 2 × 4 whose right half is the object; mirrored, the left half of the canvas.
  Fixture f = fixture_open("cpu64");
  uint32_t bits[] = {3, 3};
  Bitmap bitmap = {.x = 2, .y = 0, .w = 2, .h = 2};
  for (int flip = 0; flip < 2; flip++) {
    ImageInfo image = {.h = 2, .w = 4, .rh = 4, .rw = 8, .flip = flip};
    Truth truth = {.images = 1, .capacity = 1, .bitmap = &bitmap, .bits = bits};
    RoiTargets targets = {.objects = fixture_rois(&f, 1), .object_truth = fixture_ints(&f, 1)};
    *targets.objects.count = 1;
    targets.objects.image[0] = targets.object_truth[0] = 0;
    set_box(&targets.objects.box, 0, 1, 0, 7, 3); // three bins of 2 × 1 pixels, samples at .5 past whole columns
    Tensor target = fixture_map(&f, 1, 3, 3, 1);
    MaskTarget p = {.size = 3};
    RUN(&f, mask_target, &p, &image, &truth, &targets, &target);
    // Columns 1.5 2.5 | 3.5 4.5 | 5.5 6.5: only 3.5 lies between the halves.
    const double want[2][3] = {{0, .75, 1}, {1, .25, 0}};
    for (int k = 0; k < 3; k++) EXPECT_NEAR(get(&target, pixel(&target, 0, 1, k)), want[flip][k], 1e-14);
  }
  fixture_close(&f);
}

// ---- polygons -------------------------------------------------------------------------------------------------------

static int64_t add_part(uint32_t *words, int64_t at, int points, const float *xy) {
  words[at++] = (uint32_t)points;
  memcpy(words + at, xy, 2 * (size_t)points * sizeof *xy);
  return at + 2 * points;
}

// One object with one box; `words` are those of its bitmap.
static Tensor polygon_target(Fixture *f, const MaskTarget *p, const Bitmap *bitmap, const uint32_t *words,
                             const double box[4]) {
  ImageInfo image = {.h = 64, .w = 64, .rh = 64, .rw = 64};
  Truth truth = {.images = 1, .capacity = 1, .bitmap = bitmap, .bits = words};
  RoiTargets targets = {.objects = fixture_rois(f, 1), .object_truth = fixture_ints(f, 1)};
  *targets.objects.count = 1;
  targets.objects.image[0] = targets.object_truth[0] = 0;
  set_box(&targets.objects.box, 0, box[0], box[1], box[2], box[3]);
  Tensor target = fixture_map(f, 1, p->size, p->size, 1);
  RUN(f, mask_target, p, &image, &truth, &targets, &target);
  return target;
}

static void expect_rows(const Tensor *target, const char *const *rows) {
  for (int y = 0; y < target->h; y++)
    for (int x = 0; x < target->w; x++)
      if (!EXPECT_NEAR(get(target, pixel(target, 0, y, x)), rows[y][x] == '#', 0)) printf("    at row %d, %d\n", y, x);
}

TEST(mask_target_polygons_by_hand) {
  // Squares 11 … 13 and 12 … 15 overlap in one pixel, which stays covered: the union, not the toggle.
  const float squares[2][8] = {{11, 11, 13, 11, 13, 13, 11, 13}, {12, 12, 15, 12, 15, 15, 12, 15}};
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    uint32_t words[32];
    const Bitmap both = {.parts = 2}, one = {.parts = 1};
    add_part(words, add_part(words, 0, 4, squares[0]), 4, squares[1]);
    MaskTarget p = {.size = 4, .source = MASK_POLYGON, .least_side = .1f};
    Tensor t = polygon_target(&f, &p, &both, words, (double[]){10, 10, 14, 14}); // a pixel is a pixel; cut at 14
    expect_rows(&t, (const char *const[]){"....", ".##.", ".###", "..##"});
    // Half as wide, 0.5 … 1.5: of the two halves, rounding to fifths (2.5 to 3, 7.5 to 8) leaves the second.
    t = polygon_target(&f, &p, &one, words, (double[]){10, 10, 18, 14});
    expect_rows(&t, (const char *const[]){"....", ".#..", ".#..", "...."});
    // The square covers a box from 12 to 12.5 whole. One from 12.5 to 12.75 it covers, too, unless that is taken to be
    // a pixel wide: then it ends at 13.5, half a box beyond the square.
    t = polygon_target(&f, &p, &one, words, (double[]){12, 11, 12.5, 13});
    expect_rows(&t, (const char *const[]){"####", "####", "####", "####"});
    p.least_side = 1;
    t = polygon_target(&f, &p, &one, words, (double[]){12.5, 11, 12.75, 13});
    expect_rows(&t, (const char *const[]){"##..", "##..", "##..", "##.."});
    p.least_side = .1f;
    t = polygon_target(&f, &p, &one, words, (double[]){12.5, 11, 12.75, 13});
    expect_rows(&t, (const char *const[]){"####", "####", "####", "####"});
    fixture_close(&f);
  }
}

// Stars and zigzags, partly far outside the box, against data/coco/rle.c's polygons over the same grid.
TEST(mask_target_polygons_random) {
  enum { SIZE = 28, PARTS = 3, MOST = 40 };
  for (int d = 0; d < COUNT(detect_devices); d++)
    for (int seed = 0; seed < 40; seed++) {
      Fixture f = fixture_open(detect_devices[d]);
      Random r = random_begin(190 + seed);
      uint32_t words[PARTS * (1 + 2 * MOST)];
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
          if (f.dev->real == F64) {
            double side = fmax((double)box[i % 2 + 2] - box[i % 2], p.least_side);
            crop[i] = ((double)xy[i] - box[i % 2]) * (SIZE / side);
          } else {
            crop[i] = (double)((xy[i] - box[i % 2]) * (SIZE / fmaxf(w, p.least_side)));
          }
        }
        at = add_part(words, at, points, xy);
        want[k] = rle_from_polygon(crop, points, SIZE, SIZE);
      }
      Tensor t = polygon_target(&f, &p, &(Bitmap){.parts = PARTS}, words, (double[]){box[0], box[1], box[2], box[3]});
      Rle all = rle_merge(want, PARTS, false);
      uint8_t bytes[SIZE * SIZE];
      rle_to_bytes(&all, bytes);
      int wrong = 0;
      for (int i = 0; i < SIZE * SIZE; i++) wrong += get(&t, pixel(&t, 0, i / SIZE, i % SIZE)) != bytes[i];
      EXPECT_INT(wrong, 0);
      for (int k = 0; k < PARTS; k++) rle_free(&want[k]);
      rle_free(&all);
      fixture_close(&f);
    }
}

// What has no polygons is taken from its bitmap, whichever was asked for.
TEST(mask_target_without_polygons) {
  Fixture f = fixture_open("cpu");
  Random r = random_begin(200);
  MaskScene s;
  scene_random(&s, &f, &r, 9);
  Tensor target[2];
  for (int i = 0; i < 2; i++) {
    MaskTarget p = {.size = 14, .source = i ? MASK_POLYGON : MASK_BITMAP, .least_side = 1};
    target[i] = fixture_map(&f, 11, 14, 14, 1);
    RUN(&f, mask_target, &p, s.images, &s.truth, &s.targets, &target[i]);
  }
  EXPECT(!memcmp(target[0].data, target[1].data, tensor_bytes(&target[0])));
  fixture_close(&f);
}

// ---- predictions ----------------------------------------------------------------------------------------------------

TEST(mask_select_takes_the_class) {
  enum { CLASSES = 4, SIZE = 3 };
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Random r = random_begin(160);
    Boxes detections = fixture_boxes(&f, 3, 2);
    const int counts[] = {1, 0, 2}, classes[] = {3, 1, 2};
    memcpy(detections.count, counts, sizeof counts);
    detections.index[0] = 5 * CLASSES + classes[0]; // roi · classes + class
    detections.index[4] = 0 * CLASSES + classes[1];
    detections.index[5] = 9 * CLASSES + classes[2];
    Tensor logits = fixture_map(&f, 4, SIZE, SIZE, CLASSES), probs = fixture_map(&f, 4, SIZE, SIZE, 1);
    fill_random(&r, &logits, -9, 9);
    RUN(&f, mask_select, &detections, &logits, &probs);
    for (int row = 0; row < 3; row++)
      for (int k = 0; k < SIZE * SIZE; k++) {
        double logit = get(&logits, pixel(&logits, row, k / SIZE, k % SIZE) + classes[row]);
        EXPECT_NEAR(get(&probs, pixel(&probs, row, k / SIZE, k % SIZE)), 1 / (1 + exp(-logit)), 4 * epsilon(&f));
        for (int lane = 1; lane < probs.ldc; lane++)
          EXPECT_NEAR(get(&probs, pixel(&probs, row, k / SIZE, k % SIZE) + lane), 0, 0);
      }
    EXPECT(isnan(get(&probs, pixel(&probs, 3, 0, 0))));
    fixture_close(&f);
  }
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
    for (int x = 1; x < m - 1; x++) padded[y * m + x] = get(probs, pixel(probs, row, y - 1, x - 1));
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
  ImageInfo images[IMAGES];
  Boxes detections;
  Tensor probs;
  int64_t words;
} PredictedMasks;

static void predictions_random(PredictedMasks *p, Fixture *f, Random *r) {
  const int sizes[IMAGES][4] = {{40, 50, 64, 80}, {0}, {71, 53, 35, 26}};
  p->detections = fixture_boxes(f, IMAGES, 8);
  p->probs = fixture_map(f, IMAGES * 8, 6, 6, 1);
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

TEST(mask_paste_random) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    Fixture f = fixture_open(detect_devices[d]);
    Random r = random_begin(170);
    PredictedMasks p;
    predictions_random(&p, &f, &r);
    uint32_t *bits = fixture_alloc(&f, IMAGES * 8 * p.words * sizeof *bits);
    RUN(&f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, bits, p.words);
    int row = 0, set_bits = 0;
    // Eight roundings of a position below 8 with a slope of at most 1 along either axis, and of a mean below 1.
    double tolerance = (2 * 8 * 8 + 8) * epsilon(&f);
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
    fixture_close(&f);
  }
}

// Rows in parts, each to the beginning of the memory, are those of the whole.
TEST(mask_paste_in_parts) {
  enum { PART = 3 };
  Fixture f = fixture_open("cpu");
  Random r = random_begin(171);
  PredictedMasks p;
  predictions_random(&p, &f, &r);
  size_t row = (size_t)p.words * sizeof(uint32_t);
  uint32_t *whole = fixture_alloc(&f, IMAGES * 8 * row), *part = fixture_alloc(&f, PART * row);
  RUN(&f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, whole, p.words);
  int n = 0;
  for (int i = 0; i < IMAGES; i++) n += p.detections.count[i];
  for (int first = 0; first < n; first += PART) {
    MaskPaste how = {.threshold = .5f, .first = first, .rows = PART};
    RUN(&f, mask_paste, &how, p.images, &p.detections, &p.probs, part, p.words);
    for (int i = 0; i < MIN(PART, n - first); i++)
      EXPECT(!memcmp(part + i * p.words, whole + (first + i) * p.words, row));
  }
  EXPECT(n % PART != 0);
  fixture_close(&f);
}

TEST(mask_paste_by_hand) {
  // A full mask of 2 × 2 over a box of 4 × 4 at (2, 2): the border of zeros makes it 8 × 8 at (0, 0) … 4 mask pixels
  // over 9 image pixels (0 … 8), ≥ 0.5 where the position is between 0.5 and 2.5: pixels 2 … 6.
  Fixture f = fixture_open("cpu");
  ImageInfo image = {.h = 10, .w = 12, .rh = 10, .rw = 12};
  Boxes detections = fixture_boxes(&f, 1, 1);
  Tensor probs = fixture_map(&f, 1, 2, 2, 1);
  for (int k = 0; k < 4; k++) set(&probs, (size_t)k * probs.ldc, 1);
  set_box(&detections.box, 0, 2, 2, 6, 6);
  detections.count[0] = 1;
  uint32_t bits[4];
  RUN(&f, mask_paste, &(MaskPaste){.threshold = .5f}, &image, &detections, &probs, bits, 4);
  for (int x = 0; x < 12; x++)
    for (int y = 0; y < 10; y++) {
      // The product of two positions decides at the corners: (2, 2) is at 0.611 along both, 0.373 in all.
      bool inside = x >= 2 && x <= 6 && y >= 2 && y <= 6, corner = (x == 2 || x == 6) && (y == 2 || y == 6);
      EXPECT_INT(bits[(x * 10 + y) / 32] >> (x * 10 + y) % 32 & 1, inside && !corner);
    }
  fixture_close(&f);
}

TEST(mask_paste_exact_by_hand) {
  // The same over the box as it is: half a mask pixel a pixel, so that along either axis pixels 2 … 5 have 0.75 1 1
  // 0.75 and their neighbours 0.25. Corners have 0.5625: the pixels of the box, all of them. A box without area has
  // none.
  Fixture f = fixture_open("cpu");
  ImageInfo image = {.h = 10, .w = 12, .rh = 10, .rw = 12};
  Boxes detections = fixture_boxes(&f, 1, 2);
  Tensor probs = fixture_map(&f, 2, 2, 2, 1);
  for (int k = 0; k < 8; k++) set(&probs, (size_t)k * probs.ldc, 1);
  set_box(&detections.box, 0, 2, 2, 6, 6);
  set_box(&detections.box, 1, 3, 3, 3, 6);
  detections.count[0] = 2;
  uint32_t bits[8];
  RUN(&f, mask_paste, &(MaskPaste){.threshold = .5f, .exact = true}, &image, &detections, &probs, bits, 4);
  for (int x = 0; x < 12; x++)
    for (int y = 0; y < 10; y++)
      EXPECT_INT(bits[(x * 10 + y) / 32] >> (x * 10 + y) % 32 & 1, x >= 2 && x < 6 && y >= 2 && y < 6);
  for (int i = 4; i < 8; i++) EXPECT_INT(bits[i], 0);
  fixture_close(&f);
}

TEST(masks_threads) {
  enum { ROIS = 18 };
  Fixture f = fixture_open("cpu");
  Random r = random_begin(180);
  MaskScene s;
  scene_random(&s, &f, &r, ROIS);
  PredictedMasks p;
  predictions_random(&p, &f, &r);
  size_t bytes = IMAGES * 8 * p.words * sizeof(uint32_t);
  Tensor target[3];
  uint32_t *bits[3];
  MaskTarget how = {.size = 14};
  int before = omp_get_max_threads();
  for (int t = 0; t < 3; t++) {
    omp_set_num_threads(t + 1);
    target[t] = fixture_map(&f, ROIS + 2, 14, 14, 1);
    bits[t] = fixture_alloc(&f, bytes);
    RUN(&f, mask_target, &how, s.images, &s.truth, &s.targets, &target[t]);
    RUN(&f, mask_paste, &(MaskPaste){.threshold = .5f}, p.images, &p.detections, &p.probs, bits[t], p.words);
    EXPECT(!memcmp(target[0].data, target[t].data, tensor_bytes(&target[0])));
    EXPECT(!memcmp(bits[0], bits[t], bytes));
  }
  omp_set_num_threads(before);
  fixture_close(&f);
}
