// Catches pasted masks that differ from torchvision's.
//
// Compares with torchvision's steps one by one: pad, resize the whole mask, then copy it. On the GPU, with more cases,
// compares with the CPU: both take sampling positions from exact/mask_bins.h, so that pasted bits are equal.
#include "base/alloc.h"
#include "test/harness/mask_fixture.h"

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
