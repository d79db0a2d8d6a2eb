// Catches run-length masks that differ from pycocotools', and malformed ones that are accepted.
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "data/coco/rle.h"
#include "test/harness/test.h"

// Every comparison is exact: runs, areas and boxes are integers, and an IoU is one division of two integers.

// One annotation of mask_api.json: how it was annotated and what pycocotools made of it.
typedef struct Sample {
  int64_t id;
  Rle from_source; // by way of polygons or counts, whichever the annotation holds
  Rle from_counts;
  char *string;
  double area, bbox[4];
} Sample;

static int read_doubles(Json *j, double *out, int max) {
  int n = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      double value = json_number(j);
      if (n < max) out[n++] = value;
    }
  return n;
}

static Rle read_counts(Json *j, const double size[2]) {
  enum { MAX_RUNS = 4096 };
  static uint32_t counts[MAX_RUNS];
  int n = 0;
  if (json_begin_array(j))
    while (json_next(j)) {
      uint32_t run = (uint32_t)json_int(j);
      if (n < MAX_RUNS) counts[n++] = run;
    }
  Rle r;
  Err err;
  if (!rle_from_counts(&r, counts, n, (int)size[0], (int)size[1], &err)) json_fail(j, "%s", err.msg);
  return r;
}

static Rle read_segmentation(Json *j, const double size[2]) {
  enum { MAX_PARTS = 64, MAX_NUMBERS = 4096 };
  static double xy[MAX_NUMBERS];
  Rle parts[MAX_PARTS], merged = {0};
  int n = 0;
  if (json_peek(j) == JSON_OBJECT) {
    json_begin_object(j);
    for (const char *key; (key = json_key(j));)
      if (strcmp(key, "counts") == 0)
        merged = read_counts(j, size);
      else
        json_skip(j);
    return merged;
  }
  if (json_begin_array(j))
    while (json_next(j) && n < MAX_PARTS) {
      int numbers = read_doubles(j, xy, MAX_NUMBERS);
      parts[n++] = rle_from_polygon(xy, numbers / 2, (int)size[0], (int)size[1]);
    }
  merged = rle_merge(parts, n, false);
  for (int i = 0; i < n; i++) rle_free(&parts[i]);
  return merged;
}

static Sample read_sample(Json *j) {
  Sample s = {0};
  double size[2] = {0};
  if (json_begin_object(j))
    for (const char *key; (key = json_key(j));) {
      if (strcmp(key, "ann_id") == 0)
        s.id = json_int(j);
      else if (strcmp(key, "size") == 0)
        read_doubles(j, size, 2);
      else if (strcmp(key, "segmentation") == 0)
        s.from_source = read_segmentation(j, size);
      else if (strcmp(key, "rle_counts") == 0)
        s.string = xstrdup(json_string(j, NULL));
      else if (strcmp(key, "rle_counts_uncompressed") == 0)
        s.from_counts = read_counts(j, size);
      else if (strcmp(key, "mask_area") == 0)
        s.area = json_number(j);
      else if (strcmp(key, "mask_bbox") == 0)
        read_doubles(j, s.bbox, 4);
      else
        json_skip(j);
    }
  return s;
}

static bool same_rle(const Rle *a, const Rle *b) {
  return a->h == b->h && a->w == b->w && a->n == b->n && memcmp(a->runs, b->runs, (size_t)a->n * sizeof *a->runs) == 0;
}

static uint32_t *bits_of(const uint8_t *mask, int h, int w) {
  uint32_t *bits = xcalloc((size_t)h * (size_t)w / 32 + 1, sizeof *bits);
  memset(bits, 0xFF, ((size_t)h * (size_t)w / 32 + 1) * sizeof *bits); // spare bits past the mask must not matter
  for (int x = 0; x < w; x++)
    for (int y = 0; y < h; y++) {
      uint32_t at = (uint32_t)x * (uint32_t)h + (uint32_t)y;
      if (!mask[(size_t)y * (size_t)w + (size_t)x]) bits[at / 32] &= ~(1u << at % 32);
    }
  return bits;
}

// The same mask through every form it can take comes back with the same runs.
static void check_forms(const Rle *r) {
  uint8_t *mask = xmalloc((size_t)r->h * (size_t)r->w);
  rle_to_bytes(r, mask);
  uint32_t *bits = bits_of(mask, r->h, r->w), *set = xcalloc((size_t)r->h * (size_t)r->w / 32 + 1, sizeof *set);
  for (int twice = 0; twice < 2; twice++) rle_add_to_bits(r, set);
  char *string = rle_to_string(r);
  Rle bytes = rle_from_bytes(mask, r->h, r->w), packed = rle_from_bits(bits, r->h, r->w), text;
  Rle added = rle_from_bits(set, r->h, r->w);
  EXPECT(same_rle(&bytes, r));
  EXPECT(same_rle(&packed, r));
  EXPECT(same_rle(&added, r));
  if (EXPECT(rle_from_string(&text, string, strlen(string), r->h, r->w, NULL))) EXPECT(same_rle(&text, r));
  rle_free(&text);
  rle_free(&packed);
  rle_free(&added);
  rle_free(&bytes);
  free(string);
  free(set);
  free(bits);
  free(mask);
}

static void check_sample(const Sample *s) {
  EXPECT(same_rle(&s->from_source, &s->from_counts));
  char *string = rle_to_string(&s->from_source);
  EXPECT_STR(string, s->string);
  free(string);
  EXPECT_INT((long long)rle_area(&s->from_source), (long long)s->area);
  double bbox[4];
  rle_bbox(&s->from_source, bbox);
  for (int i = 0; i < 4; i++) EXPECT_NEAR(bbox[i], s->bbox[i], 0);
  check_forms(&s->from_counts);
}

enum { MAX_SAMPLES = 250, MAX_GROUP = 64 };

static void check_matrix(Json *j, const double *iou, int n) {
  int row = 0;
  if (json_begin_array(j))
    for (; json_next(j); row++) {
      double want[MAX_GROUP] = {0};
      EXPECT_INT(read_doubles(j, want, MAX_GROUP), n);
      for (int col = 0; col < n; col++) EXPECT_NEAR(iou[row * n + col], want[col], 0);
    }
  EXPECT_INT(row, n);
}

// One image's matrix of every annotation (rows: detections) with every annotation (columns: ground truth).
static void check_iou_group(Json *j, const Sample *samples, int count) {
  double ids[MAX_GROUP], crowd[MAX_GROUP];
  int n = 0;
  if (!json_begin_object(j)) return;
  for (const char *key; (key = json_key(j));) {
    if (strcmp(key, "ann_ids") == 0) {
      n = read_doubles(j, ids, MAX_GROUP);
      continue;
    }
    if (strcmp(key, "iscrowd") == 0) {
      EXPECT_INT(read_doubles(j, crowd, MAX_GROUP), n);
      continue;
    }
    bool masks = strcmp(key, "mask_iou") == 0;
    if (!masks && strcmp(key, "bbox_iou") != 0) {
      json_skip(j);
      continue;
    }
    Rle rles[MAX_GROUP];
    uint8_t is_crowd[MAX_GROUP];
    double boxes[4 * MAX_GROUP], iou[MAX_GROUP * MAX_GROUP];
    for (int i = 0; i < n; i++) {
      const Sample *s = samples;
      while (s < samples + count && s->id != (int64_t)ids[i]) s++;
      if (!EXPECT(s < samples + count)) return;
      rles[i] = s->from_counts;
      memcpy(boxes + 4 * i, s->bbox, sizeof s->bbox);
      is_crowd[i] = crowd[i] != 0;
    }
    if (masks)
      rle_iou(rles, n, rles, n, is_crowd, iou);
    else
      bbox_iou(boxes, n, boxes, n, is_crowd, iou);
    check_matrix(j, iou, n);
  }
}

TEST(rle_equals_pycocotools) {
  const char *path = shared_path("cocoeval/mask_api.json");
  if (!path) {
    test_skip("no cocoeval/mask_api.json");
    return;
  }
  Err err;
  size_t size;
  char *text = file_read(path, &size, &err);
  Json j;
  json_open(&j, path, text, size);
  static Sample samples[MAX_SAMPLES];
  int n = 0, groups = 0;
  if (json_begin_object(&j))
    for (const char *key; (key = json_key(&j));) {
      if (strcmp(key, "annotations") == 0 && json_begin_array(&j)) {
        for (; json_next(&j) && EXPECT(n < MAX_SAMPLES); n++) {
          samples[n] = read_sample(&j);
          check_sample(&samples[n]);
        }
      } else if (strcmp(key, "iou") == 0 && json_begin_array(&j)) {
        for (; json_next(&j); groups++) check_iou_group(&j, samples, n);
      } else {
        json_skip(&j);
      }
    }
  EXPECT(json_done(&j));
  EXPECT_STR(j.err.msg, "");
  EXPECT_INT(n, 250);
  EXPECT_INT(groups, 38);
  for (int i = 0; i < n; i++) {
    rle_free(&samples[i].from_source);
    rle_free(&samples[i].from_counts);
    free(samples[i].string);
  }
  json_close(&j);
  free(text);
}

// Masks of every density and shape, held as bytes too, so that each result has a plain counterpart.
static void random_mask(uint64_t key, uint8_t *mask, int pixels) {
  float density = (float)(rng_u32(key, UINT64_MAX) % 5) / 4; // 0 and 1 included
  for (int i = 0; i < pixels; i++) mask[i] = rng_uniform(key, (uint64_t)i) < density;
}

TEST(rle_operations_equal_bytes) {
  for (uint64_t round = 0; round < 300; round++) {
    uint64_t key = rng_key(RNG_TEST, round);
    int h = 1 + (int)(rng_u32(key, 1) % 17), w = 1 + (int)(rng_u32(key, 2) % 17), pixels = h * w;
    uint8_t a[17 * 17], b[17 * 17], both[17 * 17], either[17 * 17];
    random_mask(rng_key(key, 3), a, pixels);
    random_mask(rng_key(key, 4), b, pixels);
    int area_a = 0, area_both = 0, area_either = 0;
    for (int i = 0; i < pixels; i++) {
      both[i] = a[i] && b[i];
      either[i] = a[i] || b[i];
      area_a += a[i];
      area_both += both[i];
      area_either += either[i];
    }
    Rle ab[2] = {rle_from_bytes(a, h, w), rle_from_bytes(b, h, w)};
    Rle want_both = rle_from_bytes(both, h, w), want_either = rle_from_bytes(either, h, w);
    Rle got_both = rle_merge(ab, 2, true), got_either = rle_merge(ab, 2, false);
    EXPECT(same_rle(&got_both, &want_both));
    EXPECT(same_rle(&got_either, &want_either));
    check_forms(&ab[0]);
    EXPECT_INT((long long)rle_area(&ab[0]), area_a);

    int left = w, top = h, right = -1, bottom = -1;
    for (int i = 0; i < pixels; i++)
      if (a[i]) {
        left = MIN(left, i % w);
        right = MAX(right, i % w);
        top = MIN(top, i / w);
        bottom = MAX(bottom, i / w);
      }
    double bbox[4];
    rle_bbox(&ab[0], bbox);
    EXPECT_INT((int)bbox[0], area_a ? left : 0);
    EXPECT_INT((int)bbox[1], area_a ? top : 0);
    EXPECT_INT((int)bbox[2], area_a ? right - left + 1 : 0);
    EXPECT_INT((int)bbox[3], area_a ? bottom - top + 1 : 0);

    double iou, crowd_iou;
    rle_iou(&ab[0], 1, &ab[1], 1, NULL, &iou);
    rle_iou(&ab[0], 1, &ab[1], 1, (uint8_t[]){1}, &crowd_iou);
    EXPECT_NEAR(iou, area_both ? (double)area_both / area_either : 0, 0);
    EXPECT_NEAR(crowd_iou, area_both ? (double)area_both / area_a : 0, 0);
    Rle *all[] = {&ab[0], &ab[1], &want_both, &want_either, &got_both, &got_either};
    for (int i = 0; i < COUNT(all); i++) rle_free(all[i]);
  }
}

static void expect_runs(const Rle *r, const uint32_t *runs, int n) {
  EXPECT_INT(r->n, n);
  for (int i = 0; i < MIN(n, r->n); i++) EXPECT_INT(r->runs[i], runs[i]);
}

// The fourth run is written as its difference from the second: both signs, where numbers become a group longer.
TEST(rle_string_of_every_length) {
  for (int bit = 0; bit < 31; bit++)
    for (int off = -1; off < 2; off++) {
      const uint32_t large = (1u << bit) + (uint32_t)off, sides = 1u << 16;
      const uint32_t up[] = {0, 0, 0, large, sides * (sides / 2) - large}, down[] = {0, large, 0, 0, up[4]};
      for (int k = 0; k < 2; k++) {
        const Rle r = {.h = 1 << 16, .w = 1 << 15, .n = 5, .runs = (uint32_t *)(uintptr_t)(k ? up : down)};
        char *s = rle_to_string(&r);
        Rle back;
        if (EXPECT(rle_from_string(&back, s, strlen(s), r.h, r.w, NULL))) expect_runs(&back, r.runs, r.n);
        rle_free(&back);
        free(s);
      }
    }
}

TEST(rle_string_rejects_malformed) {
  Rle r, good = {.h = 40, .w = 50, .n = 5, .runs = (uint32_t[]){0, 1000, 7, 3, 990}};
  char *s = rle_to_string(&good);
  size_t len = strlen(s);
  Err err;
  for (size_t i = 0; i < len; i++) {
    EXPECT(!rle_from_string(&r, s, i, 40, 50, &err));
    EXPECT(r.runs == NULL);
  }
  EXPECT(rle_from_string(&r, s, len, 40, 50, &err));
  expect_runs(&r, good.runs, 5);
  rle_free(&r);
  EXPECT(!rle_from_string(&r, s, len, 50, 50, &err));
  EXPECT_STR(err.msg, "the runs of the run-length string do not add up to its size, 50 x 50 pixels (h x w)");
  static const char *malformed[] = {"", "0", " ", "oooooooooooo", "pp", "\xff\xff", "O", "0O", "1P"};
  for (int i = 0; i < COUNT(malformed); i++)
    if (!EXPECT(!rle_from_string(&r, malformed[i], strlen(malformed[i]), 40, 50, &err))) rle_free(&r);
  EXPECT(!rle_from_counts(&r, (uint32_t[]){1999, 2}, 2, 40, 50, &err));
  EXPECT_STR(err.msg, "the runs add up to 2001 instead of their size, 40 x 50 pixels (h x w)");
  EXPECT(!rle_from_counts(&r, (uint32_t[]){UINT32_MAX, UINT32_MAX}, 2, 40, 50, &err));
  free(s);
}

// Encoders other than COCO's write empty runs; they hold no pixel and must change nothing.
TEST(rle_ignores_empty_runs) {
  Rle odd = {.h = 4, .w = 5, .n = 8, .runs = (uint32_t[]){5, 0, 2, 3, 0, 0, 10, 0}};
  Rle plain = {.h = 4, .w = 5, .n = 3, .runs = (uint32_t[]){7, 3, 10}};
  double a[4], b[4], iou;
  rle_bbox(&odd, a);
  rle_bbox(&plain, b);
  for (int i = 0; i < 4; i++) EXPECT_NEAR(a[i], b[i], 0);
  rle_iou(&odd, 1, &plain, 1, NULL, &iou);
  EXPECT_NEAR(iou, 1, 0);
  Rle merged = rle_merge((Rle[]){plain, odd}, 2, false);
  EXPECT(same_rle(&merged, &plain));
  rle_free(&merged);
}

TEST(rle_iou_of_other_sizes_is_minus_one) { // as maskApi marks it
  Rle a = {.h = 2, .w = 3, .n = 2, .runs = (uint32_t[]){0, 6}},
      b = {.h = 3, .w = 2, .n = 2, .runs = (uint32_t[]){0, 6}};
  double iou;
  rle_iou(&a, 1, &b, 1, NULL, &iou);
  EXPECT_NEAR(iou, -1, 0);
}
