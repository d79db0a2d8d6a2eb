// What the tests of masks share: objects with their bitmaps, for targets; detections with their masks, for pasting.
#pragma once
#include "test/harness/op_fixture.h"

enum { IMAGES = 3, OBJECTS = 3 };

typedef struct MaskScene {
  ImageInfo *images; // [IMAGES]
  Bitmap *bitmap;    // [IMAGES * OBJECTS]
  uint32_t *bits;
  Truth truth;
  RoiTargets targets;
} MaskScene;

// Enlarged, reduced and mirrored images; bitmaps with holes, one a pixel wide, one over the whole image.
static inline void scene_random(MaskScene *s, Fixture *f, Draw *r, int rois) {
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

typedef struct PredictedMasks {
  ImageInfo *images; // [IMAGES]
  Boxes detections;
  Tensor probs;
  int64_t words;
} PredictedMasks;

static inline void predictions_random(PredictedMasks *p, Fixture *f, Draw *r) {
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

// ---- on the GPU -----------------------------------------------------------------------------------------------------

// Images decoded at h × w and resized to rh × rw: reduced, enlarged, mirrored, a single pixel. A box over all of the
// first has more columns of sampling points than a threadblock keeps.
enum { GPU_IMAGES = 4, ROIS = 24, MAX_WORDS = 4096 };
static const int sizes[GPU_IMAGES][4] = {{40, 50, 640, 1700}, {70, 45, 35, 23}, {33, 66, 50, 100}, {1, 1, 1, 1}};

static inline ImageInfo *images(Fixture *f) {
  ImageInfo *info = fixture_alloc(f, GPU_IMAGES * sizeof *info);
  for (int n = 0; n < GPU_IMAGES; n++) {
    const int *s = sizes[n];
    info[n] = (ImageInfo){.h = s[0], .w = s[1], .rh = s[2], .rw = s[3], .flip = n % 2};
  }
  return info;
}

enum { CAPACITY = 6, CLASSES = 5, SLOTS = GPU_IMAGES * CAPACITY, DETECTIONS = CAPACITY + 0 + 3 + 1 };
static const int counts[GPU_IMAGES] = {CAPACITY, 0, 3, 1};

static inline Boxes detections_random(Fixture *f) {
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
