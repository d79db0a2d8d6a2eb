// Catches run-length masks that differ from the pasted bits.
//
// Runs of pasted masks against the bits that mask_paste pastes, run-length coded afterwards.
#include <limits.h>
#include <omp.h>
#include "data/coco/rle.h"
#include "test/harness/detect.h"
#include "test/harness/run_scene.h"

enum { WIDEST = 90 * 1300, WORDS = (WIDEST + 31) / 32 }; // bits of the largest image

typedef struct Written {
  Boxes detections;
  Tensor probs;
  MaskRuns runs;
  FoundRows found;
} Written;

static Written written_open(Fixture *f, const RunScene *s, int64_t room) {
  Written w = {.detections = fixture_boxes(f, SCENE_IMAGES, SCENE_CAPACITY),
               .probs = fixture_map(f, SCENE_PLACES, s->size, s->size, 1)};
  memcpy(w.detections.count, s->count, sizeof s->count);
  memcpy(w.detections.index, s->index, sizeof s->index);
  for (int i = 0; i < SCENE_PLACES; i++) {
    set_box(&w.detections.box, i, s->box[i][0], s->box[i][1], s->box[i][2], s->box[i][3]);
    set(&w.detections.score, (size_t)i, s->score[i]);
    for (int k = 0; k < s->size * s->size; k++)
      set(&w.probs, pixel(&w.probs, i, k / s->size, k % s->size), s->map[i][k]);
  }
  const size_t rows = SCENE_PLACES, real = dtype_size(f->dev->real);
  w.runs = (MaskRuns){.room = room,
                      .count = fixture_ints(f, SCENE_PLACES),
                      .first = fixture_alloc(f, rows * sizeof(int64_t)),
                      .toggles = fixture_ints(f, SCENE_PLACES * RUN_SLICES),
                      .last = fixture_alloc(f, rows * RUN_SLICES * sizeof(uint32_t))};
  w.found = (FoundRows){.count = fixture_ints(f, SCENE_IMAGES),
                        .index = fixture_ints(f, SCENE_PLACES),
                        .box = fixture_alloc(f, 4 * rows * real),
                        .score = fixture_alloc(f, rows * real),
                        .runs = fixture_ints(f, SCENE_PLACES),
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
  const FoundRows *to = &w->found;
  const size_t place = (size_t)(n * SCENE_CAPACITY + i), real = dtype_size(f->dev->real);
  EXPECT_INT(to->index[row], s->index[place]);
  EXPECT(!memcmp((char *)to->box + 4 * row * real, (char *)w->detections.box.data + 4 * place * real, 4 * real));
  EXPECT(!memcmp((char *)to->score + row * real, (char *)w->detections.score.data + place * real, real));
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
  uint32_t *bits = fixture_alloc(f, (size_t)SCENE_PLACES * WORDS * sizeof *bits);
  RUN(f, mask_paste, p, s->info, &w.detections, &w.probs, bits, WORDS);
  return bits;
}

TEST(mask_runs_equal_pasted_bits) {
  static const int sizes[] = {28, 2, 7};
  static const float thresholds[] = {.5f, 0, 1, -1, 2, .25f};
  for (int variant = 0; variant < 10; variant++) {
    Fixture f = fixture_open(detect_devices[variant % 2]);
    const MaskPaste p = {.threshold = thresholds[variant % 3 ? 0 : variant / 3 + 1], .exact = variant / 2 % 2};
    const RunScene *s = run_scene(variant, sizes[variant % 3], p.threshold);
    const uint32_t *bits = pasted_bits(&f, &p, s);
    EXPECT_INT(check_scene(&f, &p, s, 1 << 22, bits), s->rows); // all fit
    fixture_close(&f);
  }
}

// A room that is too small takes probabilities, more of them the smaller it is, down to all masks that have more runs.
TEST(mask_runs_that_find_no_room) {
  for (int d = 0; d < COUNT(detect_devices); d++) {
    int before = INT_MAX;
    Fixture all = fixture_open(detect_devices[d]);
    const MaskPaste p = {.threshold = .5f};
    const RunScene *s = run_scene(2, 7, p.threshold);
    const uint32_t *bits = pasted_bits(&all, &p, s);
    for (int64_t spare = 1 << 16; spare; spare = spare > 16 ? spare / 16 : 0) {
      Fixture f = fixture_open(detect_devices[d]);
      const int coded = check_scene(&f, &p, s, SCENE_PLACES * map_words(&f, s) + spare, bits);
      EXPECT(coded > 0 && coded <= before);
      before = coded;
      fixture_close(&f);
    }
    EXPECT(before < s->rows);
    fixture_close(&all);
  }
}

TEST(mask_runs_by_hand) {
  // The mask of mask_paste_exact_by_hand: rows 2 … 5 of columns 2 … 5 of an image of ten rows and twelve columns.
  Fixture f = fixture_open("cpu");
  ImageInfo image = {.h = 10, .w = 12, .rh = 10, .rw = 12};
  Boxes detections = fixture_boxes(&f, 1, 1);
  Tensor probs = fixture_map(&f, 1, 2, 2, 1);
  for (int k = 0; k < 4; k++) set(&probs, (size_t)k * probs.ldc, 1);
  set_box(&detections.box, 0, 2, 2, 6, 6);
  detections.count[0] = 1;
  int count;
  int64_t first;
  const MaskRuns runs = {.room = 9, .count = &count, .first = &first};
  RUN(&f, mask_runs, &(MaskPaste){.threshold = .5f, .exact = true}, &image, &detections, &probs, &runs);
  EXPECT_INT(count, 9);
  EXPECT_INT(first, 0);
  uint32_t words[9];
  float box[4], score;
  int n, index, written;
  int64_t at;
  const FoundRows to = {&n, &index, box, &score, &written, &at, words};
  RUN(&f, detections_write, &(MaskPaste){.threshold = .5f, .exact = true}, &image, &detections, &probs, &runs, &to);
  EXPECT(n == 1 && written == 9 && at == 0 && box[2] == 6);
  EXPECT(!memcmp(words, (uint32_t[]){22, 4, 6, 4, 6, 4, 6, 4, 64}, sizeof words));
  fixture_close(&f);
}

TEST(mask_runs_threads) {
  Fixture f = fixture_open("cpu");
  const MaskPaste p = {.threshold = .5f};
  const RunScene *s = run_scene(5, 7, p.threshold);
  enum { ROOM = 1 << 20 };
  Written w[2];
  const int before = omp_get_max_threads();
  for (int t = 0; t < 2; t++) {
    omp_set_num_threads(1 + 2 * t);
    w[t] = written_open(&f, s, ROOM);
    write_on(&f, &p, s, &w[t]);
  }
  omp_set_num_threads(before);
  EXPECT(!memcmp(w[0].found.words, w[1].found.words, ROOM * sizeof(uint32_t)));
  fixture_close(&f);
}
