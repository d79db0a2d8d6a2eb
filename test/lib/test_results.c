// Catches results of the library with wrong masks, or that die with the handle.
#include "base/alloc.h"
#include "base/rng.h"
#include "lib/results.h"
#include "test/harness/test.h"

static const Category category[] = {{.id = 7, .name = "cat"}, {.id = 9, .name = "a long name with a µ"}};

static Rle random_mask(int h, int w, uint64_t key, uint8_t *bytes) {
  for (int i = 0; i < h * w; i++) {
    key = rng_key(key, RNG_TEST);
    bytes[i] = key % 5 < 2;
  }
  return rle_from_bytes(bytes, h, w);
}

TEST(results_hold_copies) {
  uint8_t bytes[6 * 5];
  Detection found[2] = {{.label = 2, .score = 0.5f, .box = {1, 2, 3, 4}}, {.label = 1, .score = 0.25f}};
  for (int i = 0; i < 2; i++) found[i].mask = random_mask(6, 5, (uint64_t)i, bytes);
  maskrcnn_results *r = results_new(2, 77);
  results_set(r, 0, results_of_detections(found, 2, 6, 5, category));
  results_set(r, 1, results_of_detections(NULL, 0, 8, 9, category));
  const maskrcnn_detections *d = r->images[0]->detections;
  EXPECT(r->tag == 77 && r->n == 2 && d->n == 2 && r->images[1]->detections->n == 0);
  EXPECT(r->images[0]->kind == MASKRCNN_DETECTIONS && r->images[1]->height == 8 && r->images[1]->width == 9);
  EXPECT(d->boxes[3] == 4 && d->scores[1] == 0.25f && d->labels[0] == 2 && d->category_ids[0] == 9);
  EXPECT_STR(d->names[0], category[1].name);
  EXPECT_STR(d->names[1], "cat");
  for (int i = 0; i < 2; i++) {
    const maskrcnn_rle *m = d->masks[i];
    EXPECT(m->counts != found[i].mask.runs && m->num_counts == found[i].mask.n);
    EXPECT(!memcmp(m->counts, found[i].mask.runs, (size_t)m->num_counts * sizeof *m->counts));
    rle_free(&found[i].mask);
  }
  maskrcnn_results_free(r);
  maskrcnn_results_free(NULL);
}

TEST(results_masks_as_strings_and_bytes) {
  static const int shape[][2] = {{1, 1}, {1, 40}, {40, 1}, {7, 9}, {64, 33}, {300, 200}};
  for (int i = 0; i < COUNT(shape); i++) {
    const int h = shape[i][0], w = shape[i][1], pitch = w + 3;
    uint8_t *bytes = xmalloc((size_t)(h * w)), *out = xcalloc((size_t)(h * pitch), 1);
    Rle rle = random_mask(h, w, (uint64_t)i, bytes);
    const maskrcnn_rle m = {.height = h, .width = w, .num_counts = rle.n, .counts = rle.runs};
    char *want = rle_to_string(&rle), *text = xmalloc(strlen(want) + 1), cut[3];
    EXPECT_INT((long long)maskrcnn_mask_string(&m, NULL, 0), (long long)strlen(want));
    EXPECT_INT((long long)maskrcnn_mask_string(&m, text, strlen(want) + 1), (long long)strlen(want));
    EXPECT_STR(text, want);
    maskrcnn_mask_string(&m, cut, sizeof cut);
    EXPECT(strlen(cut) == MIN(strlen(want), 2) && !strncmp(cut, want, strlen(cut)));
    EXPECT_INT(maskrcnn_mask_bitmap(&m, out, pitch), MASKRCNN_OK);
    for (int y = 0; y < h; y++) EXPECT(!memcmp(out + y * pitch, bytes + y * w, (size_t)w));
    EXPECT_INT(maskrcnn_mask_bitmap(&m, out, 0), MASKRCNN_OK);
    EXPECT(!memcmp(out, bytes, (size_t)(h * w)));
    free(want);
    free(text);
    free(bytes);
    free(out);
    rle_free(&rle);
  }
}

TEST(results_masks_that_are_none) {
  const uint32_t counts[] = {3, 4};
  uint8_t bytes[6];
  const maskrcnn_rle too_many = {.height = 2, .width = 3, .num_counts = 2, .counts = counts};
  EXPECT_INT(maskrcnn_mask_bitmap(&too_many, bytes, 0), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_mask_bitmap(NULL, bytes, 0), MASKRCNN_BAD_ARGUMENT);
  const maskrcnn_rle fits = {.height = 2, .width = 3, .num_counts = 2, .counts = (const uint32_t[]){2, 4}};
  EXPECT_INT(maskrcnn_mask_bitmap(&fits, bytes, INT64_MAX), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT((long long)maskrcnn_mask_string(&too_many, NULL, 0), 0);
  const maskrcnn_rle whole = {.height = 1, .width = 7, .num_counts = 2, .counts = counts};
  EXPECT_INT(maskrcnn_mask_bitmap(&whole, NULL, 0), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_mask_bitmap(&whole, bytes, -7), MASKRCNN_BAD_ARGUMENT);
  EXPECT_INT(maskrcnn_mask_bitmap(&whole, bytes, 6), MASKRCNN_BAD_ARGUMENT);
}
