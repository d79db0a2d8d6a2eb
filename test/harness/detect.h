// What the tests of the detection ops share: a device with memory that is poisoned before and freed after, element
// access whatever the dtype, random numbers, and a RoIAlign by its definition.
#pragma once
#include <float.h>
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "test/harness/test.h"

static const char *const detect_devices[] = {"cpu", "cpu64"};

typedef struct Fixture {
  Device *dev;
  void *blocks[64];
  int n;
} Fixture;

static inline Fixture fixture_open(const char *device) {
  Err err;
  Fixture f = {.dev = device_open(device, &err)};
  if (!f.dev) die(EXIT_RUN, "%s", err.msg);
  return f;
}
static inline void fixture_close(Fixture *f) {
  for (int i = 0; i < f->n; i++) device_free(f->dev, f->blocks[i]);
  device_close(f->dev);
}
// All ones: NaN as a float, -1 as an int. What an op leaves alone is seen.
static inline void *fixture_alloc(Fixture *f, size_t bytes) {
  CHECK(f->n < COUNT(f->blocks));
  void *p = f->blocks[f->n++] = device_alloc(f->dev, bytes);
  CHECK(p);
  return memset(p, 0xff, bytes);
}
static inline Tensor fixture_tensor(Fixture *f, Tensor shape) {
  shape.data = fixture_alloc(f, tensor_bytes(&shape));
  return shape;
}
static inline Tensor fixture_map(Fixture *f, int n, int h, int w, int c) {
  return fixture_tensor(f, tensor(f->dev->real, n, h, w, c));
}
static inline Tensor fixture_packed(Fixture *f, int n, int c) {
  return fixture_tensor(f, tensor_packed(f->dev->real, n, c));
}
static inline int *fixture_ints(Fixture *f, int n) { return fixture_alloc(f, (size_t)n * sizeof(int)); }
static inline Boxes fixture_boxes(Fixture *f, int groups, int capacity) {
  int n = groups * capacity;
  return (Boxes){.groups = groups,
                 .capacity = capacity,
                 .box = fixture_packed(f, n, 4),
                 .score = fixture_packed(f, n, 1),
                 .index = fixture_ints(f, n),
                 .count = fixture_ints(f, groups)};
}
static inline Rois fixture_rois(Fixture *f, int capacity) {
  return (Rois){.capacity = capacity,
                .box = fixture_packed(f, capacity, 4),
                .image = fixture_ints(f, capacity),
                .count = fixture_ints(f, 1)};
}

// Calls an op as the graph does: measured first, then with the workspace it asked for. `f` stands for the fixture.
#define RUN(f, op, ...)                                                                                                \
  do {                                                                                                                 \
    (f)->dev->measuring = true;                                                                                        \
    (f)->dev->ops->op((f)->dev, __VA_ARGS__);                                                                          \
    (f)->dev->measuring = false;                                                                                       \
    CHECK(device_reserve_workspace((f)->dev, NULL));                                                                   \
    (f)->dev->ops->op((f)->dev, __VA_ARGS__);                                                                          \
  } while (0)

static inline double get(const Tensor *t, size_t i) {
  return t->dtype == F64 ? ((const double *)t->data)[i] : (double)((const float *)t->data)[i];
}
static inline void set(const Tensor *t, size_t i, double value) {
  if (t->dtype == F64)
    ((double *)t->data)[i] = value;
  else
    ((float *)t->data)[i] = (float)value;
}
static inline void set_box(const Tensor *t, int row, double x1, double y1, double x2, double y2) {
  const double box[4] = {x1, y1, x2, y2};
  for (int k = 0; k < 4; k++) set(t, 4 * (size_t)row + k, box[k]);
}
static inline void get_box(const Tensor *t, int row, double box[4]) {
  for (int k = 0; k < 4; k++) box[k] = get(t, 4 * (size_t)row + k);
}
static inline size_t pixel(const Tensor *t, int n, int y, int x) {
  return (((size_t)n * t->h + y) * t->w + x) * t->ldc;
}
static inline double epsilon(const Fixture *f) { return f->dev->real == F64 ? DBL_EPSILON : FLT_EPSILON; }

// ---- random numbers -------------------------------------------------------------------------------------------------

typedef struct Random {
  uint64_t key, i;
} Random;

static inline Random random_begin(int test) { return (Random){.key = rng_key(RNG_TEST, (uint64_t)test)}; }
static inline double uniform(Random *r, double low, double high) {
  return low + (high - low) * rng_uniform(r->key, r->i++);
}
static inline int below(Random *r, int n) { return (int)uniform(r, 0, n); }
// Random values in the logical lanes, zeros in the padding.
static inline void fill_random(Random *r, const Tensor *t, double low, double high) {
  for (size_t i = 0; i < tensor_elements(t); i++)
    set(t, i, i % (size_t)t->ldc < (size_t)t->c ? uniform(r, low, high) : 0);
}
// A box with corners on whole pixels of an h × w canvas, partly beyond it if `slack` > 0. Whole numbers make areas
// exact, so that equal overlaps are equal in every precision.
static inline void random_box(Random *r, int h, int w, int slack, double box[4]) {
  for (int k = 0; k < 2; k++) {
    int size = (k ? h : w) + 2 * slack, from = below(r, size - 1), to = from + 1 + below(r, size - from - 1);
    box[k] = from - slack;
    box[k + 2] = to - slack;
  }
}

// ---- definitions ----------------------------------------------------------------------------------------------------

// Intersection over union as torchvision's box_iou rounds it in the given dtype.
static inline double naive_iou(DType dtype, const double a[4], const double b[4]) {
  double w = fmin(a[2], b[2]) - fmax(a[0], b[0]), h = fmin(a[3], b[3]) - fmax(a[1], b[1]);
  if (w <= 0 || h <= 0) return 0;
  if (dtype == F64) return w * h / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - w * h);
  float inter = (float)w * (float)h;
  float area_a = (float)(a[2] - a[0]) * (float)(a[3] - a[1]), area_b = (float)(b[2] - b[0]) * (float)(b[3] - b[1]);
  return inter / (area_a + area_b - inter);
}

// Bilinear value of a map [h, w] whose pixels are `pitch` elements apart; RoIAlign's rules at the border.
static inline double naive_bilinear(const double *map, int h, int w, int pitch, double y, double x) {
  if (y < -1 || y > h || x < -1 || x > w) return 0;
  y = fmin(fmax(y, 0), h - 1);
  x = fmin(fmax(x, 0), w - 1);
  double sum = 0;
  for (int i = (int)y; i < MIN((int)y + 2, h); i++)
    for (int j = (int)x; j < MIN((int)x + 2, w); j++)
      sum += fmax(0, 1 - fabs(y - i)) * fmax(0, 1 - fabs(x - j)) * map[((size_t)i * w + j) * pitch];
  return sum;
}

// Bin (py, px) of RoIAlign by its definition; `box` in canvas pixels.
static inline double naive_roi_align(const double *map, int h, int w, int pitch, const RoiAlign *p, double scale,
                                     const double box[4], int py, int px) {
  double shift = p->aligned ? 0.5 : 0, x1 = box[0] * scale - shift, y1 = box[1] * scale - shift;
  double rw = box[2] * scale - shift - x1, rh = box[3] * scale - shift - y1;
  if (!p->aligned) {
    rw = fmax(rw, 1);
    rh = fmax(rh, 1);
  }
  int ny = p->sampling ? p->sampling : (int)ceil(rh / p->size),
      nx = p->sampling ? p->sampling : (int)ceil(rw / p->size);
  double sum = 0;
  for (int iy = 0; iy < ny; iy++)
    for (int ix = 0; ix < nx; ix++)
      sum += naive_bilinear(map, h, w, pitch, y1 + rh / p->size * (py + (iy + 0.5) / ny),
                            x1 + rw / p->size * (px + (ix + 0.5) / nx));
  return sum / MAX(nx * ny, 1);
}
