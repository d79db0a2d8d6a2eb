// Catches run-length masks that differ from the pasted bits.
//
// Runs of pasted masks as the kernels write them into memory of the host, against the CPU's: the same words.
#include "base/alloc.h"
#include "nn/timing.h"
#include "test/harness/gpu.h"
#include "test/harness/run_scene.h"

typedef struct RunTwins {
  TwinArray info, box, score, index, count, map, runs, first, toggles, last;
} RunTwins;

static RunTwins twins_of(const RunScene *s) {
  float *map = xcalloc(SCENE_PLACES * (size_t)(s->size * s->size), sizeof *map);
  for (int i = 0; i < s->rows; i++)
    memcpy(map + i * s->size * s->size, s->map[i], (size_t)(s->size * s->size) * sizeof *map);
  RunTwins t = {.info = twin_array(SCENE_IMAGES, sizeof s->info[0], s->info),
                .box = twin_array(SCENE_PLACES, sizeof s->box[0], s->box),
                .score = twin_array(SCENE_PLACES, sizeof s->score[0], s->score),
                .index = twin_array(SCENE_PLACES, sizeof s->index[0], s->index),
                .count = twin_array(SCENE_IMAGES, sizeof s->count[0], s->count),
                .map = twin_array(SCENE_PLACES * (size_t)(s->size * s->size), sizeof *map, map),
                .runs = twin_array(SCENE_PLACES, sizeof(int), NULL),
                .first = twin_array(SCENE_PLACES, sizeof(int64_t), NULL),
                .toggles = twin_array(SCENE_PLACES * RUN_SLICES, sizeof(int), NULL),
                .last = twin_array(SCENE_PLACES * RUN_SLICES, sizeof(uint32_t), NULL)};
  free(map);
  return t;
}

static void twins_free(RunTwins *t) {
  TwinArray *inputs[] = {&t->info, &t->box, &t->score, &t->index, &t->count, &t->map};
  for (int i = 0; i < COUNT(inputs); i++) {
    twin_array_check_equal(inputs[i], inputs[i]->n);
    twin_array_free(inputs[i]);
  }
  twin_array_free(&t->runs);
  twin_array_free(&t->first);
  twin_array_free(&t->toggles);
  twin_array_free(&t->last);
}

// In memory of the host, whichever device writes it; every byte that nobody writes is 0xFF.
typedef struct Host {
  Device *dev;
  FoundRows rows;
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
                 .index = host_take(dev, SCENE_PLACES * sizeof(int)),
                 .box = host_take(dev, SCENE_PLACES * 4 * sizeof(float)),
                 .score = host_take(dev, SCENE_PLACES * sizeof(float)),
                 .runs = host_take(dev, SCENE_PLACES * sizeof(int)),
                 .first = host_take(dev, SCENE_PLACES * sizeof(int64_t)),
                 .words = host_take(dev, (size_t)(room + 1) * sizeof(uint32_t))},
                room};
}

static void host_close(Host *h) {
  void *all[] = {h->rows.count, h->rows.index, h->rows.box, h->rows.score, h->rows.runs, h->rows.first, h->rows.words};
  for (int i = 0; i < COUNT(all); i++) device_host_free(h->dev, all[i]);
}

static void write_on(Device *dev, bool gpu, const MaskPaste *p, const RunScene *s, const RunTwins *t, const Host *h) {
  Boxes b = {.groups = SCENE_IMAGES,
             .capacity = SCENE_CAPACITY,
             .box = tensor_packed(F32, SCENE_PLACES, 4),
             .score = tensor_packed(F32, SCENE_PLACES, 1),
             .index = twin_array_data(&t->index, gpu),
             .count = twin_array_data(&t->count, gpu)};
  Tensor probs = tensor_packed(F32, SCENE_PLACES, 1);
  const MaskRuns runs = {.room = h->room,
                         .count = twin_array_data(&t->runs, gpu),
                         .first = twin_array_data(&t->first, gpu),
                         .toggles = twin_array_data(&t->toggles, gpu),
                         .last = twin_array_data(&t->last, gpu)};
  b.box.data = twin_array_data(&t->box, gpu);
  b.score.data = twin_array_data(&t->score, gpu);
  probs.data = twin_array_data(&t->map, gpu);
  probs.h = probs.w = s->size;
  const ImageInfo *info = twin_array_data(&t->info, gpu);
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
static int check_scene(Device *gpu, const MaskPaste *p, const RunScene *s, int64_t room) {
  RunTwins t = twins_of(s);
  Host got = host_open(gpu, room), want = host_open(cpu_device(), room);
  write_on(gpu, true, p, s, &t, &got);
  write_on(cpu_device(), false, p, s, &t, &want);
  const FoundRows *a = &got.rows, *b = &want.rows;
  same(a->count, b->count, SCENE_IMAGES * sizeof *a->count, "counts");
  same(a->index, b->index, SCENE_PLACES * sizeof *a->index, "indices");
  same(a->box, b->box, SCENE_PLACES * 4 * sizeof(float), "boxes");
  same(a->score, b->score, SCENE_PLACES * sizeof(float), "scores");
  same(a->runs, b->runs, SCENE_PLACES * sizeof *a->runs, "numbers of runs");
  same(a->first, b->first, SCENE_PLACES * sizeof *a->first, "places");
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
  twins_free(&t);
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
    if (!EXPECT_INT(check_scene(gpu, &p, s, 1 << 22), 0)) printf("  variant %d\n", variant);
  }
}

TEST(cuda_mask_runs_that_find_no_room) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const MaskPaste p = {.threshold = .5f};
  for (int64_t spare = 1 << 16; spare; spare = spare > 16 ? spare / 16 : 0)
    EXPECT(check_scene(gpu, &p, run_scene(2, 7, p.threshold), SCENE_PLACES * 49 + spare) > 0 || spare == 1 << 16);
}

// As a program that is replayed.
TEST(cuda_mask_runs_recorded) {
  Device *gpu = gpu_device();
  if (!gpu) return;
  const MaskPaste p = {.threshold = .5f};
  const RunScene *s = run_scene(1, 28, p.threshold);
  enum { ROOM = 1 << 20 };
  RunTwins t = twins_of(s);
  Host first = host_open(gpu, ROOM), again = host_open(gpu, ROOM);
  write_on(gpu, true, &p, s, &t, &first);
  CHECK(device_record(gpu));
  Boxes b = {.groups = SCENE_IMAGES,
             .capacity = SCENE_CAPACITY,
             .box = tensor_packed(F32, SCENE_PLACES, 4),
             .score = tensor_packed(F32, SCENE_PLACES, 1),
             .index = t.index.gpu,
             .count = t.count.gpu};
  Tensor probs = tensor_packed(F32, SCENE_PLACES, 1);
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
  twins_free(&t);
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
  TwinArray infos = twin_array(GROUPS, sizeof info[0], info), counts = twin_array(GROUPS, sizeof count[0], count);
  TwinArray boxes = twin_array(ROWS, sizeof *box, box), maps = twin_array(ROWS * SIZE * SIZE, sizeof *map, map);
  TwinArray index = twin_array(ROWS, sizeof(int), NULL), score = twin_array(ROWS, sizeof(float), NULL);
  TwinArray runs = twin_array(ROWS, sizeof(int), NULL), first = twin_array(ROWS, sizeof(int64_t), NULL);
  TwinArray toggles = twin_array(ROWS * RUN_SLICES, sizeof(int), NULL);
  TwinArray last = twin_array(ROWS * RUN_SLICES, sizeof(uint32_t), NULL);
  const int64_t room = ROWS * 2048;
  FoundRows to[2];
  Mark mark[3] = {{0}};
  const MaskPaste p = {.threshold = .5f};
  for (int side = 0; side < 2; side++) {
    Device *dev = side ? gpu : cpu_device();
    to[side] = (FoundRows){host_take(dev, sizeof count),
                           host_take(dev, ROWS * sizeof(int)),
                           host_take(dev, ROWS * 4 * sizeof(float)),
                           host_take(dev, ROWS * sizeof(float)),
                           host_take(dev, ROWS * sizeof(int)),
                           host_take(dev, ROWS * sizeof(int64_t)),
                           host_take(dev, (size_t)room * sizeof(uint32_t))};
    Boxes b = {GROUPS, CAPACITY, tensor_packed(F32, ROWS, 4), tensor_packed(F32, ROWS, 1), NULL, NULL};
    Tensor probs = tensor_packed(F32, ROWS, 1);
    b.box.data = twin_array_data(&boxes, side);
    b.score.data = twin_array_data(&score, side);
    b.index = twin_array_data(&index, side);
    b.count = twin_array_data(&counts, side);
    probs.h = probs.w = SIZE;
    probs.data = twin_array_data(&maps, side);
    const MaskRuns how = {room, twin_array_data(&runs, side), twin_array_data(&first, side),
                          twin_array_data(&toggles, side), twin_array_data(&last, side)};
    const ImageInfo *images = twin_array_data(&infos, side);
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
  TwinArray *all[] = {&infos, &counts, &boxes, &maps, &index, &score, &runs, &first, &toggles, &last};
  for (int i = 0; i < COUNT(all); i++) twin_array_free(all[i]);
  free(box);
  free(map);
}
