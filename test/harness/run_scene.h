// Detections whose masks are hard to paste as runs, for the tests of mask_runs and detections_write: images of one
// pixel, of one row or column, as high as a word of bits and a pixel more or less, wider than all slices of a warp;
// boxes over the whole image, thin, partly and wholly outside, without area; masks empty, full, in checks, at the
// threshold, next to it, and NaN.
#pragma once
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "nn/device.h"
#include "nn/ops.h"

enum { SCENE_IMAGES = 10, SCENE_CAPACITY = 12, SCENE_PLACES = SCENE_IMAGES * SCENE_CAPACITY, SCENE_LARGEST = 28 };

typedef struct RunScene {
  ImageInfo info[SCENE_IMAGES];
  float box[SCENE_PLACES][4], score[SCENE_PLACES];
  int index[SCENE_PLACES], count[SCENE_IMAGES];
  int rows, size;
  float map[SCENE_PLACES][SCENE_LARGEST * SCENE_LARGEST]; // [rows][size · size] in use
} RunScene;

typedef struct SceneDraw {
  uint64_t key;
  uint32_t i;
} SceneDraw;
static inline float scene_draw(SceneDraw *d, float low, float high) {
  return low + (high - low) * (float)(rng_u32(d->key, d->i++) >> 8) * 0x1p-24f;
}

static inline float scene_pixel(SceneDraw *d, int pattern, int y, int x, int size, float threshold) {
  switch (pattern) {
  case 0: return 0;
  case 1: return 1;
  case 2: return (float)((y + x) % 2);
  case 3: return threshold;
  case 4: return threshold + scene_draw(d, -2e-6f, 2e-6f);
  case 5: return y + x < size;
  case 6: return scene_draw(d, 0, 1) < .1f ? NAN : scene_draw(d, 0, 1);
  case 7: return (float)(y % 2);
  default: return scene_draw(d, 0, 1);
  }
}

// Boxes in resized pixels.
static inline void scene_box(SceneDraw *d, int kind, float h, float w, float box[4]) {
  const float x = scene_draw(d, 0, w), y = scene_draw(d, 0, h);
  const float boxes[][4] = {{0, 0, w, h},
                            {0, 0, w, h},
                            {x, 0, w, h},
                            {0, y, w, h},
                            {-3, -2, w + 4, h + 5},
                            {w + 9, h + 9, w + 20, h + 30},
                            {x, 0, x + .5f, h},
                            {x, y, x, y},
                            {x, y, scene_draw(d, x, w), scene_draw(d, y, h)},
                            {x, y, scene_draw(d, x, w + 3), scene_draw(d, y, h + 3)}};
  memcpy(box, boxes[kind % (int)(sizeof boxes / sizeof boxes[0])], 4 * sizeof *box);
}

// Masks of size × size, at most SCENE_LARGEST; `variant` draws others of the same kinds.
static inline RunScene *run_scene(int variant, int size, float threshold) {
  static const int sizes[SCENE_IMAGES][2] = {{1, 1},  {31, 40}, {32, 33}, {33, 32},   {64, 1},
                                             {65, 7}, {1, 50},  {0, 0},   {90, 1300}, {700, 60}};
  static RunScene s;
  SceneDraw d = {rng_key(31, (uint64_t)variant), 0};
  memset(&s, 0, sizeof s);
  s.size = size;
  for (int n = 0; n < SCENE_IMAGES; n++) {
    const int h = sizes[n][0], w = sizes[n][1];
    const float scale = (variant + n) % 3 ? 1.6f : 1;
    s.info[n] = (ImageInfo){.h = h, .w = w, .rh = (int)((float)h * scale), .rw = (int)((float)w * scale)};
    s.count[n] = h ? SCENE_CAPACITY - (variant + n) % 3 : 0;
    for (int i = 0; i < s.count[n]; i++, s.rows++) {
      const int place = n * SCENE_CAPACITY + i;
      scene_box(&d, i, (float)s.info[n].rh, (float)s.info[n].rw, s.box[place]);
      s.score[place] = scene_draw(&d, 0, 1);
      s.index[place] = 7 * place + variant;
      for (int k = 0; k < size * size; k++)
        s.map[s.rows][k] = scene_pixel(&d, (i + variant + n) % 10, k / size, k % size, size, threshold);
    }
  }
  return &s;
}
