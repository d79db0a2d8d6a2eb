// Catches images left out of an epoch or drawn twice, and an order that changes with the number of ranks.
#include <math.h>
#include "base/rng.h"
#include "data/batches/sampler.h"
#include "test/harness/test.h"

enum { IMAGES = 53, CANVASES = 3, MAX_BATCH = 16 };

// 53 images over three canvases, the last of which holds a single image.
static const uint8_t *canvases(void) {
  static uint8_t canvas_of[IMAGES];
  for (int i = 0; i < IMAGES; i++) canvas_of[i] = (uint8_t)(rng_u32(RNG_TEST, (uint64_t)i) % 2);
  canvas_of[20] = 2;
  return canvas_of;
}

static Sampler open_sampler(int batch, int rank, int world, uint64_t seed, bool train) {
  Sampler s;
  sampler_open(&s, canvases(), IMAGES, CANVASES, &(SamplerOptions){batch, rank, world, seed, train, NULL});
  return s;
}

TEST(sampler_epoch_holds_every_image) {
  Sampler s = open_sampler(4, 0, 1, 7, true);
  for (int64_t epoch = 0; epoch < 3; epoch++) {
    int seen[IMAGES] = {0}, index[MAX_BATCH], in_canvas[CANVASES] = {0};
    for (int64_t b = 0; b < s.steps; b++) {
      EXPECT_INT(sampler_epoch(&s, epoch * s.steps + b), epoch);
      int c = sampler_batch(&s, epoch * s.steps + b, index, NULL);
      for (int i = 0; i < 4; i++) {
        EXPECT_INT(canvases()[index[i]], c);
        seen[index[i]]++;
        in_canvas[c]++;
      }
    }
    // Without the fill of its last batch, a canvas shows each of its images once.
    int repeats = 0, fill = 0;
    for (int i = 0; i < IMAGES; i++) {
      EXPECT(seen[i] >= 1);
      repeats += seen[i] - 1;
    }
    for (int c = 0; c < CANVASES; c++) fill += in_canvas[c] - (s.first[c + 1] - s.first[c]);
    EXPECT_INT(repeats, fill);
    EXPECT(fill < 4 * CANVASES);
    EXPECT_INT(seen[20], 4); // alone on its canvas, it fills its batch
  }
  sampler_close(&s);
}

// Factors of 1, 1.5 and 3.2: in each epoch at least the whole part and at most one more, over many the factor, up to
// what rounding down takes from a canvas.
TEST(sampler_repeats_images) {
  enum { EPOCHS = 400 };
  static const float factors[] = {1, 1.5f, 3.2f};
  float repeat[IMAGES];
  double share[CANVASES] = {0}, seen[IMAGES] = {0};
  for (int i = 0; i < IMAGES; i++) {
    repeat[i] = factors[i % 3];
    share[canvases()[i]] += (double)repeat[i];
  }
  Sampler s;
  sampler_open(&s, canvases(), IMAGES, CANVASES, &(SamplerOptions){1, 0, 1, 7, true, repeat});
  for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
    int times[IMAGES] = {0}, copies[IMAGES] = {0};
    for (int64_t b = 0; b < s.steps; b++) {
      int index, copy;
      const int c = sampler_batch(&s, epoch * s.steps + b, &index, &copy);
      EXPECT_INT(c, canvases()[index]);
      copies[index] |= 1 << copy;
      times[index]++;
    }
    for (int i = 0; i < IMAGES; i++) {
      EXPECT(times[i] == (int)repeat[i] || times[i] == (int)repeat[i] + 1);
      EXPECT(repeat[i] > 1 || times[i] == 1);
      EXPECT_INT(copies[i], (1 << times[i]) - 1); // each has a number of its own
      seen[i] += times[i];
    }
  }
  int items = 0;
  for (int c = 0; c < CANVASES; c++) {
    EXPECT_INT(s.first_item[c + 1] - s.first_item[c], (int)share[c]);
    items += (int)share[c];
  }
  EXPECT_INT(s.steps, items);
  // The mean of EPOCHS Bernoulli draws is within 5 standard deviations of its probability, of which rounding down takes
  // less than 1 / (sum of the canvas's fractions), 0 on the canvas of one image.
  for (int i = 0; i < IMAGES; i++) {
    const double fraction = (double)repeat[i] - floor((double)repeat[i]);
    if (canvases()[i] == 2) continue;
    EXPECT_NEAR(seen[i] / EPOCHS, (double)repeat[i], 5 * 0.5 / sqrt(EPOCHS) + fraction / 10);
  }
  sampler_close(&s);
}

TEST(sampler_is_a_function_of_the_step) {
  Sampler s = open_sampler(3, 1, 2, 11, true);
  for (int64_t step = 0; step < 5 * s.steps; step++) {
    int index[MAX_BATCH], fresh[MAX_BATCH];
    int c = sampler_batch(&s, step, index, NULL);
    Sampler t = open_sampler(3, 1, 2, 11, true);
    EXPECT_INT(sampler_batch(&t, step, fresh, NULL), c);
    for (int i = 0; i < 3; i++) EXPECT_INT(fresh[i], index[i]);
    sampler_close(&t);
  }
  sampler_close(&s);
}

TEST(sampler_shuffles_by_seed_and_epoch) {
  Sampler a = open_sampler(1, 0, 1, 1, true), b = open_sampler(1, 0, 1, 2, true);
  int same_epoch = 0, same_seed = 0;
  for (int64_t step = 0; step < a.steps; step++) {
    int first, second, other;
    sampler_batch(&a, step, &first, NULL);
    sampler_batch(&a, step + a.steps, &second, NULL);
    sampler_batch(&b, step, &other, NULL);
    same_epoch += first == second;
    same_seed += first == other;
  }
  // Two random orders of 53 agree in one place on average (Poisson); 8 or more happen once in 100,000.
  EXPECT(same_epoch < 8);
  EXPECT(same_seed < 8);
  sampler_close(&a);
  sampler_close(&b);
}

TEST(sampler_mixes_canvases) {
  Sampler s = open_sampler(4, 0, 1, 7, true);
  int index[MAX_BATCH], returns = 0, before = 0;
  for (int64_t step = 0; step < s.steps; step++) {
    int c = sampler_batch(&s, step, index, NULL);
    returns += c < before;
    before = c;
  }
  EXPECT(returns > 0);
  sampler_close(&s);
}

// Five images in batches of four: the second batch is the last image and the first three once more.
TEST(sampler_fills_up_from_the_front) {
  const uint8_t canvas_of[5] = {0};
  Sampler s;
  sampler_open(&s, canvas_of, 5, 1, &(SamplerOptions){4, 0, 1, 3, true, NULL});
  for (int64_t epoch = 0; epoch < 4; epoch++) {
    int a[4], b[4];
    sampler_batch(&s, 2 * epoch, a, NULL);
    sampler_batch(&s, 2 * epoch + 1, b, NULL);
    bool a_first = b[1] == a[0];
    for (int i = 0; i < 3; i++) EXPECT_INT(a_first ? b[i + 1] : a[i + 1], a_first ? a[i] : b[i]);
  }
  sampler_close(&s);
}

TEST(sampler_permutations_are_uniform) {
  enum { N = 5, EPOCHS = 2000 };
  const uint8_t canvas_of[N] = {0};
  Sampler s;
  sampler_open(&s, canvas_of, N, 1, &(SamplerOptions){N, 0, 1, 3, true, NULL});
  int at[N][N] = {{0}};
  for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
    int index[N];
    sampler_batch(&s, epoch, index, NULL);
    for (int i = 0; i < N; i++) at[i][index[i]]++;
  }
  // Each image comes to each position EPOCHS / N times, with a standard deviation of √(2000 · 0.2 · 0.8) = 17.9.
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) EXPECT_NEAR(at[i][j], EPOCHS / N, 5 * 17.9);
  sampler_close(&s);
}

TEST(sampler_ranks_share_one_order) {
  enum { WORLD = 4, BATCH = 3 };
  Sampler all = open_sampler(WORLD * BATCH, 0, 1, 5, true);
  for (int rank = 0; rank < WORLD; rank++) {
    Sampler s = open_sampler(BATCH, rank, WORLD, 5, true);
    EXPECT_INT(s.steps, all.steps);
    for (int64_t step = 0; step < 3 * all.steps; step++) {
      int whole[MAX_BATCH], slice[MAX_BATCH];
      EXPECT_INT(sampler_batch(&s, step, slice, NULL), sampler_batch(&all, step, whole, NULL));
      for (int i = 0; i < BATCH; i++) EXPECT_INT(slice[i], whole[rank * BATCH + i]);
    }
    sampler_close(&s);
  }
  sampler_close(&all);
}

// Step s of rank r is batch s · world + r of one rank, whole; past the last one batches are empty. All have as many
// steps.
static void expect_batches_of_one_rank(int batch, int world) {
  Sampler one = open_sampler(batch, 0, 1, 5, false);
  for (int rank = 0; rank < world; rank++) {
    Sampler s = open_sampler(batch, rank, world, 5, false);
    EXPECT_INT(s.steps, (one.steps + world - 1) / world);
    for (int64_t step = 0; step < s.steps; step++) {
      int want[MAX_BATCH], got[MAX_BATCH];
      const int64_t whole = step * world + rank;
      const int c = sampler_batch(&s, step, got, NULL);
      for (int i = 0; i < batch; i++) want[i] = -1;
      if (whole < one.steps)
        EXPECT_INT(c, sampler_batch(&one, whole, want, NULL));
      else
        EXPECT(c >= 0 && c < CANVASES);
      EXPECT(!memcmp(got, want, (size_t)batch * sizeof *got));
    }
    sampler_close(&s);
  }
  sampler_close(&one);
}

TEST(sampler_deals_out_whole_batches) {
  static const int batch[] = {1, 2, 3, 8, 16};
  for (int b = 0; b < COUNT(batch); b++)
    for (int world = 1; world <= 5; world++) expect_batches_of_one_rank(batch[b], world);
  expect_batches_of_one_rank(16, 64); // fewer batches than ranks
}

// Images ascend within a canvas, canvases ascend, empty places come last.
TEST(sampler_evaluates_each_image_once) {
  int seen[IMAGES] = {0}, index[2], before = -1, canvas = 0;
  Sampler s = open_sampler(2, 0, 1, 5, false);
  for (int64_t step = 0; step < s.steps; step++) {
    const int c = sampler_batch(&s, step, index, NULL);
    EXPECT(c >= canvas);
    if (c != canvas) before = -1;
    canvas = c;
    for (int i = 0; i < 2; i++) {
      const int image = index[i];
      if (image >= 0) {
        EXPECT(image > before);
        EXPECT_INT(canvases()[image], c);
        seen[image]++;
      }
      before = image < 0 ? IMAGES : image;
    }
  }
  for (int i = 0; i < IMAGES; i++) EXPECT_INT(seen[i], 1);
  sampler_close(&s);
}
