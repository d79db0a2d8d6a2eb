// Small classification data sets of noise, as folders of classes and as IDX files; and opening them.
#pragma once
#include "base/alloc.h"
#include "base/rng.h"
#include "classification/data/classes.h"
#include "classification/data/idx.h"
#include "data/images/png.h"
#include "test/harness/test.h"

enum { SIDE = 12, PER_CLASS = 10 };

static const ClassOptions plain = {.size = {SIDE, SIDE}};

typedef struct Path {
  char s[1024];
} Path;

static inline Path join(const char *dir, const char *name) {
  Path p;
  CHECK(snprintf(p.s, sizeof p.s, "%s/%s", dir, name) < (int)sizeof p.s);
  return p;
}

static inline Path scratch_folder(const char *name) {
  char own[64]; // not the name of another file's test
  snprintf(own, sizeof own, "classes-%s", name);
  Path p = join(test_tmp(), own);
  CHECK(dirs_make(p.s, NULL));
  return p;
}

static inline void write_picture(const char *dir, const char *name, int h, int w, uint64_t key) {
  Image im = image_alloc(h, w);
  for (int i = 0; i < h * w * 3; i++) im.rgb[i] = (uint8_t)rng_u32(key, (uint64_t)i);
  CHECK(png_write(join(dir, name).s, &im, PNG_FAST, NULL));
  image_free(&im);
}

// DIR/CLASS/0.png …, of sizes that differ.
static inline void write_class(const char *dir, const char *name, int from, int images) {
  CHECK(dirs_make(join(dir, name).s, NULL));
  for (int i = from; i < from + images; i++) {
    char file[256];
    snprintf(file, sizeof file, "%s/%d.png", name, i);
    write_picture(dir, file, 9 + i % 5, 9 + i % 7, rng_key((uint64_t)name[0], (uint64_t)i));
  }
}

static inline bool opens(Dataset *d, const char *dir, const char *split, const ClassOptions *o) {
  Err err = {""};
  test_limit(120);
  return test_true(classes_open(d, dir, split, o, &err), *err.msg ? err.msg : split, __FILE__, __LINE__);
}

static inline void expect_refused(const char *dir, const char *split, const ClassOptions *o, const char *says) {
  Err err = {""};
  Dataset d;
  if (!EXPECT(!classes_open(&d, dir, split, o, &err) && strstr(err.msg, says)))
    printf("  said: %s\n  expected: %s\n", err.msg, says);
}

static inline void write_labels(const char *dir, const char *split, int n, uint8_t *labels) {
  char name[256];
  snprintf(name, sizeof name, "%s-labels-idx1-ubyte", split);
  CHECK(idx_save(&(Idx){n, 1, 1, labels}, join(dir, name).s, IDX_LABELS, NULL));
}

// n images of SIDE × SIDE noise; labels i % classes.
static inline void write_idx(const char *dir, const char *split, int n, int classes, uint64_t seed) {
  uint8_t *pixels = xmalloc((size_t)n * SIDE * SIDE), *labels = xmalloc((size_t)n);
  for (int i = 0; i < n * SIDE * SIDE; i++) pixels[i] = (uint8_t)rng_u32(seed, (uint64_t)i);
  for (int i = 0; i < n; i++) labels[i] = (uint8_t)(i % classes);
  char name[256];
  snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", split);
  CHECK(idx_save(&(Idx){n, SIDE, SIDE, pixels}, join(dir, name).s, IDX_IMAGES, NULL));
  write_labels(dir, split, n, labels);
  free(pixels);
  free(labels);
}
