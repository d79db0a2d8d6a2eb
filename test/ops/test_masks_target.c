// Catches mask targets that differ from torchvision's, and polygons filled differently from data/coco/rle.c.
//
// Compares with torchvision's steps one by one: resize the whole mask, then RoIAlign it. On the GPU, with more cases,
// compares with the CPU: both take sampling positions from exact/mask_bins.h, so that targets are equal.
#include "base/alloc.h"
#include "data/coco/rle.h"
#include "test/harness/detect.h"
#include "test/harness/mask_fixture.h"

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
  for (int source = MASK_SOFT; source <= MASK_BITMAP; source++) {
    const bool aligned = source != MASK_SOFT;
    Draw r = draw_begin(150);
    MaskScene s;
    scene_random(&s, f, &r, ROIS);
    Tensor target = fixture_single(f, ROIS + 2, SIZE, SIZE);
    MaskTarget p = {.size = SIZE, .source = (MaskSource)source};
    RUN(f, mask_target, &p, s.images, &s.truth, &s.targets, &target);
    const RoiAlign align = {.size = SIZE, .aligned = aligned}; // adaptive sampling
    // A position below 128 after 6 roundings, slope at most 1 along either axis; then a mean of values up to 1.
    double tolerance = (2 * 6 * 128 + 128) * epsilon(f);
    for (int i = 0; i < ROIS; i++) {
      const ImageInfo *im = &s.images[s.targets.objects.image[i]];
      double *map = naive_resized(&s, s.targets.object_truth[i], aligned ? nearest_centre : nearest), box[4];
      get_box(&s.targets.objects.box, i, box);
      for (int k = 0; k < SIZE * SIZE; k++) {
        size_t at = pixel(&target, i, k / SIZE, k % SIZE);
        double want = naive_roi_align(map, im->rh, im->rw, 1, &align, 1, box, k / SIZE, k % SIZE);
        if (source != MASK_BITMAP)
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

// RoIAlign at pixel centres takes no samples in a box without height or width: its mean is 0, not 0 / 0.
TEST_OP(mask_target_of_an_empty_box_is_background) {
  for (int source = MASK_SOFT; source <= MASK_BITMAP; source++)
    for (int empty = 0; empty < 2; empty++) {
      uint32_t *bits = fixture_copy(f, 2 * sizeof *bits, (const uint32_t[]){0, 0});
      Bitmap *bitmap = fixture_copy(f, sizeof *bitmap, &(const Bitmap){.w = 4, .h = 2});
      ImageInfo *image = fixture_copy(f, sizeof *image, &(const ImageInfo){.h = 2, .w = 4, .rh = 4, .rw = 8});
      Truth truth = {.images = 1, .capacity = 1, .bitmap = bitmap, .bits = bits};
      RoiTargets targets = {.objects = fixture_rois(f, 1), .object_truth = fixture_ints(f, 1)};
      *targets.objects.count = 1;
      targets.objects.image[0] = targets.object_truth[0] = 0;
      set_box(&targets.objects.box, 0, 1, 1, empty ? 1 : 3, empty ? 3 : 1);
      Tensor target = fixture_single(f, 1, 3, 3);
      MaskTarget p = {.size = 3, .source = (MaskSource)source};
      RUN(f, mask_target, &p, image, &truth, &targets, &target);
      for (int k = 0; k < 9; k++) EXPECT_NEAR(get_at(&target, pixel(&target, 0, k / 3, k % 3)), 0, 0);
      fixture_clear(f);
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

// A moved image's mask, against the mask that is moved first, pixel by pixel in double, and not resized then.
TEST_OP(mask_target_through_a_map) {
  enum { ROIS = 18, SIZE = 7, H = 60, W = 80 };
  static const float maps[IMAGES][6] = {
      {0.4f, 0.3f, 3, -0.3f, 0.4f, 22}, {0, -0.7f, 44, 0.9f, 0, 1}, {-0.9f, 0, 70, 0, 0.6f, -2}};
  for (int source = MASK_SOFT; source <= MASK_BITMAP; source++) {
    Draw r = draw_begin(151);
    MaskScene s, plain;
    scene_random(&s, f, &r, ROIS);
    plain = s;
    plain.images = fixture_alloc(f, IMAGES * sizeof *plain.images);
    plain.bitmap = fixture_alloc(f, IMAGES * OBJECTS * sizeof *plain.bitmap);
    const size_t words = (size_t)IMAGES * OBJECTS * H * ((W + 31) / 32);
    plain.bits = memset(fixture_alloc(f, sizeof *plain.bits * words), 0, sizeof *plain.bits * words);
    for (int n = 0; n < IMAGES; n++) {
      s.images[n].view.moved = 1;
      s.images[n].rh = H;
      s.images[n].rw = W;
      memcpy(s.images[n].view.map, maps[n], sizeof maps[n]);
      plain.images[n] = (ImageInfo){.h = H, .w = W, .rh = H, .rw = W};
    }
    for (int g = 0; g < IMAGES * OBJECTS; g++) {
      const Bitmap *b = &s.bitmap[g];
      const float *m = maps[g / OBJECTS];
      plain.bitmap[g] = (Bitmap){.offset = (int64_t)g * H * ((W + 31) / 32), .w = W, .h = H};
      for (int i = 0; i < H * W; i++) {
        const double cx = i % W + 0.5, cy = i / W + 0.5;
        const int x = (int)floor((double)m[0] * cx + (double)m[1] * cy + (double)m[2]) - b->x;
        const int y = (int)floor((double)m[3] * cx + (double)m[4] * cy + (double)m[5]) - b->y;
        if (x < 0 || y < 0 || x >= b->w || y >= b->h) continue;
        if (s.bits[b->offset + y * ((b->w + 31) / 32) + x / 32] >> x % 32 & 1)
          plain.bits[plain.bitmap[g].offset + i / W * ((W + 31) / 32) + i % W / 32] |= 1u << (i % W % 32);
      }
    }
    plain.truth.bitmap = plain.bitmap;
    plain.truth.bits = plain.bits;
    for (int i = 0; i < ROIS; i++) {
      const double x = uniform(&r, 0, W - 2), y = uniform(&r, 0, H - 2);
      set_box(&s.targets.objects.box, i, x, y, uniform(&r, x, W), uniform(&r, y, H));
    }
    Tensor got = fixture_single(f, ROIS + 2, SIZE, SIZE), want = fixture_single(f, ROIS + 2, SIZE, SIZE);
    MaskTarget p = {.size = SIZE, .source = (MaskSource)source};
    RUN(f, mask_target, &p, s.images, &s.truth, &s.targets, &got);
    RUN(f, mask_target, &p, plain.images, &plain.truth, &plain.targets, &want);
    int inside = 0;
    for (int i = 0; i < ROIS * SIZE * SIZE; i++) {
      EXPECT_NEAR(get_at(&got, (size_t)i * (size_t)got.ldc), get_at(&want, (size_t)i * (size_t)want.ldc), 0);
      inside += get_at(&want, (size_t)i * (size_t)want.ldc) > 0;
    }
    EXPECT(inside > ROIS * SIZE * SIZE / 8);
    fixture_clear(f);
  }
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

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
  for (int variant = 0; variant < 8; variant++) {
    MaskScene s;
    MaskTarget p = {.size = variant & 1 ? 28 : 7, .source = (MaskSource)(variant / 2 % MASK_POLYGON)};
    objects_random(&s, f, variant < 6 ? ROIS - 2 : 0, MAX_WORDS);
    check_target(f, &s, &p);
  }
}

// Images that augmentation moved, one that it did not among them.
TEST_GPU(cuda_mask_target_of_moved_images) {
  for (int variant = 0; variant < 12; variant++) {
    MaskScene s;
    MaskTarget p = {.size = variant & 1 ? 28 : 7, .source = (MaskSource)(variant / 2 % MASK_POLYGON)};
    objects_random(&s, f, ROIS - 2, MAX_WORDS);
    for (int n = 0; n < GPU_IMAGES - 1; n++) {
      const float across = (float)sizes[n][1] / (float)sizes[n][3], down = (float)sizes[n][0] / (float)sizes[n][2];
      const float aslant = variant < 6 ? 0.3f : 0, side = n % 2 ? 0.8f : -0.8f; // every other one mirrored
      const float map[] = {side * across,  aslant * across, n % 2 ? 1 : (float)sizes[n][1],
                           -aslant * down, 0.9f * down,     -4};
      s.images[n].view.moved = 1;
      memcpy(s.images[n].view.map, map, sizeof map);
    }
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
