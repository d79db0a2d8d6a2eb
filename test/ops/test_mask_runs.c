// Catches run-length masks that differ from the pasted bits.
//
// Compares runs of pasted masks with the bits that mask_paste pastes, run-length coded afterwards; and the runs that
// kernels write into host memory with the CPU's: the same words.
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "data/coco/rle.h"
#include "nn/device.h"
#include "nn/ops.h"
#include "nn/timing.h"
#include "test/harness/op_fixture.h"

// Detections whose masks are hard to paste as runs, for the tests of mask_runs and detections_write: images of one
// pixel, of one row or column, as high as a word of bits and a pixel more or less, thousands of pixels high, wider than
// all slices of a warp; boxes over the whole image, thin, partly and wholly outside, without area; masks empty, full,
// in checks, at the threshold, next to it, and NaN.

enum { SCENE_IMAGES = 11, SCENE_CAPACITY = 12, SCENE_SLOTS = SCENE_IMAGES * SCENE_CAPACITY, SCENE_LARGEST = 28 };

typedef struct RunScene {
  ImageInfo info[SCENE_IMAGES];
  float box[SCENE_SLOTS][4], score[SCENE_SLOTS];
  int index[SCENE_SLOTS], count[SCENE_IMAGES];
  int rows, size;
  float map[SCENE_SLOTS][SCENE_LARGEST * SCENE_LARGEST]; // [rows][size · size] in use
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
  case 8: return threshold + (float)(y - size / 2) * 1e-5f; // pixels on both sides are within rounding of it
  default: return scene_draw(d, 0, 1);
  }
}

// Boxes in resized pixels.
static inline void scene_box(SceneDraw *d, int type, float h, float w, float box[4]) {
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
  memcpy(box, boxes[type % (int)(sizeof boxes / sizeof boxes[0])], 4 * sizeof *box);
}

// Masks of size × size, at most SCENE_LARGEST; `variant` draws others of the same types.
static inline RunScene *run_scene(int variant, int size, float threshold) {
  static const int sizes[SCENE_IMAGES][2] = {{1, 1},  {31, 40}, {32, 33},   {33, 32},  {64, 1},  {65, 7},
                                             {1, 50}, {0, 0},   {90, 1300}, {700, 60}, {9001, 4}};
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
      const int slot = n * SCENE_CAPACITY + i;
      scene_box(&d, i, (float)s.info[n].rh, (float)s.info[n].rw, s.box[slot]);
      s.score[slot] = scene_draw(&d, 0, 1);
      s.index[slot] = 7 * slot + variant;
      for (int k = 0; k < size * size; k++)
        s.map[s.rows][k] = scene_pixel(&d, (i + variant + n) % 10, k / size, k % size, size, threshold);
    }
  }
  return &s;
}

enum { WIDEST = 90 * 1300, WORDS = (WIDEST + 31) / 32 }; // bits of the largest image

typedef struct Written {
  Boxes detections;
  Tensor probs;
  MaskRuns runs;
  DetectionRows found;
} Written;

static Written written_open(Fixture *f, const RunScene *s, int64_t room) {
  Written w = {.detections = fixture_boxes(f, SCENE_IMAGES, SCENE_CAPACITY),
               .probs = fixture_map(f, SCENE_SLOTS, s->size, s->size, 1)};
  memcpy(w.detections.count, s->count, sizeof s->count);
  memcpy(w.detections.index, s->index, sizeof s->index);
  for (int i = 0; i < SCENE_SLOTS; i++) {
    set_box(&w.detections.box, i, s->box[i][0], s->box[i][1], s->box[i][2], s->box[i][3]);
    set_at(&w.detections.score, (size_t)i, s->score[i]);
    for (int k = 0; k < s->size * s->size; k++)
      set_at(&w.probs, pixel(&w.probs, i, k / s->size, k % s->size), s->map[i][k]);
  }
  const size_t rows = SCENE_SLOTS, real = dtype_size(f->dev->real);
  w.runs = (MaskRuns){.room = room,
                      .count = fixture_ints(f, SCENE_SLOTS),
                      .first = fixture_alloc(f, rows * sizeof(int64_t)),
                      .toggles = fixture_ints(f, SCENE_SLOTS * RUN_SLICES),
                      .last = fixture_alloc(f, rows * RUN_SLICES * sizeof(uint32_t))};
  w.found = (DetectionRows){.count = fixture_ints(f, SCENE_IMAGES),
                            .index = fixture_ints(f, SCENE_SLOTS),
                            .box = fixture_alloc(f, 4 * rows * real),
                            .score = fixture_alloc(f, rows * real),
                            .runs = fixture_ints(f, SCENE_SLOTS),
                            .first = fixture_alloc(f, rows * sizeof(int64_t)),
                            .words = fixture_alloc(f, (size_t)(room + 1) * sizeof(uint32_t))};
  return w;
}

static void write_on(Fixture *f, const MaskPaste *p, const RunScene *s, const Written *w) {
  RUN(f, mask_runs, p, s->info, &w->detections, &w->probs, &w->runs);
  RUN(f, detections_write, p, s->info, &w->detections, &w->probs, &w->runs, &w->found);
}

static int64_t map_words(const Fixture *f, const RunScene *s) {
  return s->size * s->size * (int64_t)(dtype_size(f->dev->real) / sizeof(uint32_t));
}

// What stands in the host's memory for detection i of image n, which is `row`, against the bits of its mask. Returns
// whether it is runs.
static bool check_row(const Fixture *f, const RunScene *s, const Written *w, int n, int i, int row,
                      const uint32_t *bits) {
  const DetectionRows *to = &w->found;
  const size_t slot = (size_t)(n * SCENE_CAPACITY + i), real = dtype_size(f->dev->real);
  EXPECT_INT(to->index[row], s->index[slot]);
  EXPECT(!memcmp((char *)to->box + 4 * row * real, (char *)w->detections.box.data + 4 * slot * real, 4 * real));
  EXPECT(!memcmp((char *)to->score + row * real, (char *)w->detections.score.data + slot * real, real));
  const uint32_t *words = to->words + to->first[row];
  if (!to->runs[row]) {
    for (int k = 0; k < s->size * s->size; k++)
      EXPECT(!memcmp((const char *)words + k * real,
                     (char *)w->probs.data + pixel(&w->probs, row, k / s->size, k % s->size) * real, real));
    return false;
  }
  Rle want = rle_from_bits(bits, s->info[n].h, s->info[n].w);
  bool same = to->runs[row] == want.n && !memcmp(words, want.runs, (size_t)want.n * sizeof *words);
  if (!EXPECT(same)) printf("    image %d, detection %d: %d runs, not %d\n", n, i, to->runs[row], want.n);
  rle_free(&want);
  return true;
}

// All of them; rows lie one behind the other, and nothing is written past the room. Returns how many are runs.
static int check_scene(Fixture *f, const MaskPaste *p, const RunScene *s, int64_t room, const uint32_t *bits) {
  Written w = written_open(f, s, room);
  write_on(f, p, s, &w);
  int row = 0, coded = 0;
  int64_t end = 0;
  for (int n = 0; n < SCENE_IMAGES; n++) {
    EXPECT_INT(w.found.count[n], s->count[n]);
    for (int i = 0; i < s->count[n]; i++, row++) {
      EXPECT(w.found.first[row] >= end);
      coded += check_row(f, s, &w, n, i, row, bits + (size_t)row * WORDS);
      end = w.found.first[row] + (w.found.runs[row] ? w.found.runs[row] : map_words(f, s));
    }
  }
  EXPECT_INT(row, s->rows);
  EXPECT(end <= room && w.found.words[room] == UINT32_MAX);
  return coded;
}

// The bits of all masks, pasted by the op that is the reference.
static uint32_t *pasted_bits(Fixture *f, const MaskPaste *p, const RunScene *s) {
  Written w = written_open(f, s, 1);
  uint32_t *bits = fixture_alloc(f, (size_t)SCENE_SLOTS * WORDS * sizeof *bits);
  RUN(f, mask_paste, p, s->info, &w.detections, &w.probs, bits, WORDS);
  return bits;
}

TEST_CPUS(mask_runs_equal_pasted_bits) {
  static const int sizes[] = {28, 2, 7};
  static const float thresholds[] = {.5f, 0, 1, -1, 2, .25f};
  for (int variant = 0; variant < 10; variant++) {
    if (variant % 2 != (f->dev->real == F64)) continue;
    const MaskPaste p = {.threshold = thresholds[variant % 3 ? 0 : variant / 3 + 1], .exact = variant / 2 % 2};
    const RunScene *s = run_scene(variant, sizes[variant % 3], p.threshold);
    const uint32_t *bits = pasted_bits(f, &p, s);
    EXPECT_INT(check_scene(f, &p, s, 1 << 22, bits), s->rows); // all fit
    fixture_clear(f);
  }
}

// A room that is too small takes probabilities, more of them the smaller it is, down to all masks that have more runs.
TEST_CPUS(mask_runs_that_find_no_room) {
  int before = INT_MAX;
  const MaskPaste p = {.threshold = .5f};
  const RunScene *s = run_scene(2, 7, p.threshold);
  const uint32_t *bits = pasted_bits(f, &p, s);
  for (int64_t spare = 1 << 16; spare; spare = spare > 16 ? spare / 16 : 0) {
    const int coded = check_scene(f, &p, s, SCENE_SLOTS * map_words(f, s) + spare, bits);
    EXPECT(coded > 0 && coded <= before);
    before = coded;
  }
  EXPECT(before < s->rows);
}

TEST_CPUS(mask_runs_by_hand) {
  // The mask of mask_paste_exact_by_hand: rows 2 … 5 of columns 2 … 5 of an image of ten rows and twelve columns.
  ImageInfo image = {.h = 10, .w = 12, .rh = 10, .rw = 12};
  Boxes detections = fixture_boxes(f, 1, 1);
  Tensor probs = fixture_map(f, 1, 2, 2, 1);
  for (int k = 0; k < 4; k++) set_at(&probs, (size_t)k * probs.ldc, 1);
  set_box(&detections.box, 0, 2, 2, 6, 6);
  detections.count[0] = 1;
  int count;
  int64_t first;
  const MaskRuns runs = {.room = 9, .count = &count, .first = &first};
  RUN(f, mask_runs, &(MaskPaste){.threshold = .5f, .exact = true}, &image, &detections, &probs, &runs);
  EXPECT_INT(count, 9);
  EXPECT_INT(first, 0);
  uint32_t words[9];
  Tensor box = fixture_packed(f, 1, 4), score = fixture_packed(f, 1, 1);
  int n, index, written;
  int64_t at;
  const DetectionRows to = {&n, &index, box.data, score.data, &written, &at, words};
  RUN(f, detections_write, &(MaskPaste){.threshold = .5f, .exact = true}, &image, &detections, &probs, &runs, &to);
  EXPECT(n == 1 && written == 9 && at == 0 && get_at(&box, 2) == 6);
  EXPECT(!memcmp(words, (uint32_t[]){22, 4, 6, 4, 6, 4, 6, 4, 64}, sizeof words));
}

TEST_CPUS(mask_runs_threads) {
  const MaskPaste p = {.threshold = .5f};
  const RunScene *s = run_scene(5, 7, p.threshold);
  enum { ROOM = 1 << 20 };
  Written w[2];
  const int before = omp_get_max_threads();
  for (int t = 0; t < 2; t++) {
    omp_set_num_threads(1 + 2 * t);
    w[t] = written_open(f, s, ROOM);
    write_on(f, &p, s, &w[t]);
  }
  omp_set_num_threads(before);
  EXPECT(!memcmp(w[0].found.words, w[1].found.words, ROOM * sizeof(uint32_t)));
}

// ---- on the GPU -----------------------------------------------------------------------------------------------------

typedef struct RunPairs {
  ArrayPair info, box, score, index, count, map, runs, first, toggles, last;
} RunPairs;

static RunPairs pairs_of(const RunScene *s) {
  float *map = xcalloc(SCENE_SLOTS * (size_t)(s->size * s->size), sizeof *map);
  for (int i = 0; i < s->rows; i++)
    memcpy(map + i * s->size * s->size, s->map[i], (size_t)(s->size * s->size) * sizeof *map);
  RunPairs t = {.info = array_pair(SCENE_IMAGES, sizeof s->info[0], s->info),
                .box = array_pair(SCENE_SLOTS, sizeof s->box[0], s->box),
                .score = array_pair(SCENE_SLOTS, sizeof s->score[0], s->score),
                .index = array_pair(SCENE_SLOTS, sizeof s->index[0], s->index),
                .count = array_pair(SCENE_IMAGES, sizeof s->count[0], s->count),
                .map = array_pair(SCENE_SLOTS * (size_t)(s->size * s->size), sizeof *map, map),
                .runs = array_pair(SCENE_SLOTS, sizeof(int), NULL),
                .first = array_pair(SCENE_SLOTS, sizeof(int64_t), NULL),
                .toggles = array_pair(SCENE_SLOTS * RUN_SLICES, sizeof(int), NULL),
                .last = array_pair(SCENE_SLOTS * RUN_SLICES, sizeof(uint32_t), NULL)};
  free(map);
  return t;
}

static void pairs_free(RunPairs *t) {
  ArrayPair *inputs[] = {&t->info, &t->box, &t->score, &t->index, &t->count, &t->map};
  for (int i = 0; i < COUNT(inputs); i++) {
    array_pair_check_equal(inputs[i], inputs[i]->n);
    array_pair_free(inputs[i]);
  }
  array_pair_free(&t->runs);
  array_pair_free(&t->first);
  array_pair_free(&t->toggles);
  array_pair_free(&t->last);
}

// In memory of the host, whichever device writes it; every byte that nobody writes is 0xFF.
typedef struct Host {
  Device *dev;
  DetectionRows rows;
  int64_t room;
} Host;

static void *host_take(Device *dev, size_t bytes) {
  void *p = device_host_alloc(dev, bytes);
  CHECK(p);
  return memset(p, 0xFF, bytes);
}

static Host host_open(Device *dev, int64_t room) {
  return (Host){dev,
                {.count = host_take(dev, SCENE_IMAGES * sizeof(int)),
                 .index = host_take(dev, SCENE_SLOTS * sizeof(int)),
                 .box = host_take(dev, SCENE_SLOTS * 4 * sizeof(float)),
                 .score = host_take(dev, SCENE_SLOTS * sizeof(float)),
                 .runs = host_take(dev, SCENE_SLOTS * sizeof(int)),
                 .first = host_take(dev, SCENE_SLOTS * sizeof(int64_t)),
                 .words = host_take(dev, (size_t)(room + 1) * sizeof(uint32_t))},
                room};
}

static void host_close(Host *h) {
  void *all[] = {h->rows.count, h->rows.index, h->rows.box, h->rows.score, h->rows.runs, h->rows.first, h->rows.words};
  for (int i = 0; i < COUNT(all); i++) device_host_free(h->dev, all[i]);
}

static void write_pairs(Device *dev, bool gpu, const MaskPaste *p, const RunScene *s, const RunPairs *t,
                        const Host *h) {
  Boxes b = {.groups = SCENE_IMAGES,
             .capacity = SCENE_CAPACITY,
             .box = tensor_packed(F32, SCENE_SLOTS, 4),
             .score = tensor_packed(F32, SCENE_SLOTS, 1),
             .index = array_pair_data(&t->index, gpu),
             .count = array_pair_data(&t->count, gpu)};
  Tensor probs = tensor_packed(F32, SCENE_SLOTS, 1);
  const MaskRuns runs = {.room = h->room,
                         .count = array_pair_data(&t->runs, gpu),
                         .first = array_pair_data(&t->first, gpu),
                         .toggles = array_pair_data(&t->toggles, gpu),
                         .last = array_pair_data(&t->last, gpu)};
  b.box.data = array_pair_data(&t->box, gpu);
  b.score.data = array_pair_data(&t->score, gpu);
  probs.data = array_pair_data(&t->map, gpu);
  probs.h = probs.w = s->size;
  const ImageInfo *info = array_pair_data(&t->info, gpu);
  dev->ops->mask_runs(dev, p, info, &b, &probs, &runs);
  dev->ops->detections_write(dev, p, info, &b, &probs, &runs, &h->rows);
  device_sync(dev);
}

static bool same(const void *a, const void *b, size_t bytes, const char *what) {
  if (EXPECT(!memcmp(a, b, bytes))) return true;
  printf("    %s\n", what);
  return false;
}

// Returns how many masks are written as probabilities.
static int check_pairs(Device *gpu, const MaskPaste *p, const RunScene *s, int64_t room) {
  RunPairs t = pairs_of(s);
  Host got = host_open(gpu, room), want = host_open(cpu_device(), room);
  write_pairs(gpu, true, p, s, &t, &got);
  write_pairs(cpu_device(), false, p, s, &t, &want);
  const DetectionRows *a = &got.rows, *b = &want.rows;
  same(a->count, b->count, SCENE_IMAGES * sizeof *a->count, "counts");
  same(a->index, b->index, SCENE_SLOTS * sizeof *a->index, "indices");
  same(a->box, b->box, SCENE_SLOTS * 4 * sizeof(float), "boxes");
  same(a->score, b->score, SCENE_SLOTS * sizeof(float), "scores");
  same(a->runs, b->runs, SCENE_SLOTS * sizeof *a->runs, "numbers of runs");
  same(a->first, b->first, SCENE_SLOTS * sizeof *a->first, "places");
  int maps = 0;
  for (int i = 0; i < s->rows; i++) { // NaN has the bits it came with
    const size_t words = b->runs[i] ? (size_t)b->runs[i] : (size_t)(s->size * s->size);
    maps += !b->runs[i];
    if (!same(a->words + b->first[i], b->words + b->first[i], words * sizeof *a->words, "words"))
      printf("    detection %d, %d runs\n", i, b->runs[i]);
  }
  same(a->words, b->words, (size_t)(room + 1) * sizeof *a->words, "nothing between them");
  host_close(&got);
  host_close(&want);
  pairs_free(&t);
  return maps;
}

TEST(cuda_mask_runs) {
  static const int sizes[] = {28, 2, 7};
  static const float thresholds[] = {.5f, 0, 1, -1, 2, .25f};
  Device *gpu = gpu_device();
  if (!gpu) return;
  for (int variant = 0; variant < 24; variant++) {
    const MaskPaste p = {.threshold = thresholds[variant % 3 ? 0 : variant / 3 % COUNT(thresholds)],
                         .exact = variant / 2 % 2};
    const RunScene *s = run_scene(variant, sizes[variant % 3], p.threshold);
    if (!EXPECT_INT(check_pairs(gpu, &p, s, 1 << 22), 0)) printf("  variant %d\n", variant);
  }
}

TEST(cuda_mask_runs_that_find_no_room) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const MaskPaste p = {.threshold = .5f};
  for (int64_t spare = 1 << 16; spare; spare = spare > 16 ? spare / 16 : 0)
    EXPECT(check_pairs(gpu, &p, run_scene(2, 7, p.threshold), SCENE_SLOTS * 49 + spare) > 0 || spare == 1 << 16);
}

// As a program that is replayed.
TEST(cuda_mask_runs_recorded) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const MaskPaste p = {.threshold = .5f};
  const RunScene *s = run_scene(1, 28, p.threshold);
  enum { ROOM = 1 << 20 };
  RunPairs t = pairs_of(s);
  Host first = host_open(gpu, ROOM), again = host_open(gpu, ROOM);
  write_pairs(gpu, true, &p, s, &t, &first);
  CHECK(device_record(gpu));
  Boxes b = {.groups = SCENE_IMAGES,
             .capacity = SCENE_CAPACITY,
             .box = tensor_packed(F32, SCENE_SLOTS, 4),
             .score = tensor_packed(F32, SCENE_SLOTS, 1),
             .index = t.index.gpu,
             .count = t.count.gpu};
  Tensor probs = tensor_packed(F32, SCENE_SLOTS, 1);
  b.box.data = t.box.gpu;
  b.score.data = t.score.gpu;
  probs.data = t.map.gpu;
  probs.h = probs.w = s->size;
  const MaskRuns runs = {ROOM, t.runs.gpu, t.first.gpu, t.toggles.gpu, t.last.gpu};
  gpu->ops->mask_runs(gpu, &p, t.info.gpu, &b, &probs, &runs);
  gpu->ops->detections_write(gpu, &p, t.info.gpu, &b, &probs, &runs, &again.rows);
  void *program = device_record_end(gpu);
  for (int i = 0; i < 2; i++) device_replay(gpu, program);
  device_sync(gpu);
  same(first.rows.words, again.rows.words, (ROOM + 1) * sizeof(uint32_t), "words");
  device_forget(gpu, program);
  host_close(&first);
  host_close(&again);
  pairs_free(&t);
}

// As many detections as a batch of photographs has: discs in boxes of all sizes. Prints how long they take.
TEST_TIER(cuda_mask_runs_of_a_batch, 1) {
  enum { GROUPS = 8, CAPACITY = 100, ROWS = GROUPS * CAPACITY, SIZE = 28, H = 800, W = 1280, REPEATS = 20 };
  Device *gpu = gpu_device();
  if (!gpu) return;
  SceneDraw d = {rng_key(32, RNG_TEST), 0};
  ImageInfo info[GROUPS];
  int count[GROUPS];
  float(*box)[4] = xcalloc(ROWS, sizeof *box), *map = xcalloc(ROWS * SIZE * SIZE, sizeof *map);
  for (int n = 0; n < GROUPS; n++) {
    info[n] = (ImageInfo){.h = H, .w = W, .rh = H, .rw = W};
    count[n] = CAPACITY;
  }
  for (int i = 0; i < ROWS; i++) {
    const float w = W * powf(scene_draw(&d, .1f, 1), 2), h = H * powf(scene_draw(&d, .1f, 1), 2);
    const float x = scene_draw(&d, 0, W - w), y = scene_draw(&d, 0, H - h);
    memcpy(box[i], (float[]){x, y, x + w, y + h}, sizeof box[i]);
    for (int k = 0; k < SIZE * SIZE; k++) {
      const float dy = (float)(k / SIZE) - 13.5f, dx = (float)(k % SIZE) - 13.5f;
      map[i * SIZE * SIZE + k] = 1 / (1 + expf(hypotf(dx, dy) - 11 + scene_draw(&d, -1, 1)));
    }
  }
  ArrayPair infos = array_pair(GROUPS, sizeof info[0], info), counts = array_pair(GROUPS, sizeof count[0], count);
  ArrayPair boxes = array_pair(ROWS, sizeof *box, box), maps = array_pair(ROWS * SIZE * SIZE, sizeof *map, map);
  ArrayPair index = array_pair(ROWS, sizeof(int), NULL), score = array_pair(ROWS, sizeof(float), NULL);
  ArrayPair runs = array_pair(ROWS, sizeof(int), NULL), first = array_pair(ROWS, sizeof(int64_t), NULL);
  ArrayPair toggles = array_pair(ROWS * RUN_SLICES, sizeof(int), NULL);
  ArrayPair last = array_pair(ROWS * RUN_SLICES, sizeof(uint32_t), NULL);
  const int64_t room = ROWS * 2048;
  DetectionRows to[2];
  Mark mark[3] = {{0}};
  const MaskPaste p = {.threshold = .5f};
  for (int side = 0; side < 2; side++) {
    Device *dev = side ? gpu : cpu_device();
    to[side] = (DetectionRows){host_take(dev, sizeof count),
                               host_take(dev, ROWS * sizeof(int)),
                               host_take(dev, ROWS * 4 * sizeof(float)),
                               host_take(dev, ROWS * sizeof(float)),
                               host_take(dev, ROWS * sizeof(int)),
                               host_take(dev, ROWS * sizeof(int64_t)),
                               host_take(dev, (size_t)room * sizeof(uint32_t))};
    Boxes b = {GROUPS, CAPACITY, tensor_packed(F32, ROWS, 4), tensor_packed(F32, ROWS, 1), NULL, NULL};
    Tensor probs = tensor_packed(F32, ROWS, 1);
    b.box.data = array_pair_data(&boxes, side);
    b.score.data = array_pair_data(&score, side);
    b.index = array_pair_data(&index, side);
    b.count = array_pair_data(&counts, side);
    probs.h = probs.w = SIZE;
    probs.data = array_pair_data(&maps, side);
    const MaskRuns how = {room, array_pair_data(&runs, side), array_pair_data(&first, side),
                          array_pair_data(&toggles, side), array_pair_data(&last, side)};
    const ImageInfo *images = array_pair_data(&infos, side);
    for (int i = 0; i < (side ? REPEATS : 1); i++) { // the last is timed
      dev->memory->timing->mark(dev, &mark[0]);
      dev->ops->mask_runs(dev, &p, images, &b, &probs, &how);
      dev->memory->timing->mark(dev, &mark[1]);
      dev->ops->detections_write(dev, &p, images, &b, &probs, &how, &to[side]);
      dev->memory->timing->mark(dev, &mark[2]);
    }
    device_sync(dev);
  }
  int64_t words = 0;
  for (int i = 0; i < ROWS; i++) words += to[0].runs[i];
  EXPECT(words > 100 * ROWS);
  same(to[0].runs, to[1].runs, ROWS * sizeof(int), "numbers of runs");
  same(to[0].words, to[1].words, (size_t)room * sizeof(uint32_t), "words");
  const Timing *t = gpu->memory->timing;
  printf("  %d masks, %.0f runs each: counted in %.1f us, written in %.1f us\n", (int)ROWS, (double)words / ROWS,
         1e6 * t->elapsed(gpu, &mark[0], &mark[1]), 1e6 * t->elapsed(gpu, &mark[1], &mark[2]));
  for (int i = 0; i < COUNT(mark); i++) t->forget(gpu, &mark[i]);
  for (int side = 0; side < 2; side++) host_close(&(Host){side ? gpu : cpu_device(), to[side], room});
  ArrayPair *all[] = {&infos, &counts, &boxes, &maps, &index, &score, &runs, &first, &toggles, &last};
  for (int i = 0; i < COUNT(all); i++) array_pair_free(all[i]);
  free(box);
  free(map);
}
