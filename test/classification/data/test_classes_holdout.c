// Catches images held out for validation that are also trained on, and splits that leave a class out or change.
#include "test/harness/class_folders.h"

// Number of images, and of those in both.
static int common(const Dataset *a, const Dataset *b) {
  int n = 0;
  for (int i = 0; i < a->num_images; i++)
    for (int k = 0; k < b->num_images; k++)
      n += !strcmp(a->coco.images[a->image[i]].file_name, b->coco.images[b->image[k]].file_name);
  return n;
}

// Opens what is trained on and what is held out.
static bool opens_both(Dataset *train, Dataset *val, const char *dir, const HoldoutOptions *draw) {
  ClassOptions o = {.size = {SIDE, SIDE}, .holdout = {.draw = draw}};
  if (!opens(train, dir, "train", &o)) return false;
  o.holdout = (HoldoutUse){.held = train->holdout, .side = HOLDOUT_VAL};
  return opens(val, dir, "train", &o);
}

// Each class has its share on both sides; another seed holds out other images.
TEST(classes_held_out_by_class) {
  const Path at = scratch_folder("fraction");
  const char *root = at.s;
  write_class(root, "cat", 0, 24);
  write_class(root, "dog", 24, 8);
  Dataset train, val, others[2];
  HoldoutOptions o = {.fraction = 0.25f, .seed = 3};
  int count[2];
  if (!opens_both(&train, &val, root, &o)) return;
  EXPECT(train.num_images == 24 && val.num_images == 8 && common(&train, &val) == 0);
  classes_count(&val, count);
  EXPECT(count[0] == 6 && count[1] == 2);
  o.seed = 4;
  if (!opens_both(&others[0], &others[1], root, &o)) return;
  EXPECT(common(&others[1], &val) < 8);
  Dataset *const all[] = {&train, &val, &others[0], &others[1]};
  for (int i = 0; i < COUNT(all); i++) dataset_close(all[i]);
}

// Copies of an image are on one side, and the order of the file does not matter.
TEST(classes_held_out_of_idx_by_pixels) {
  enum { N = 80 };
  const Path at = scratch_folder("fraction-idx");
  const char *root = at.s;
  uint8_t *pixels = xmalloc((size_t)N * SIDE * SIDE), labels[N];
  bool held[2][N / 2] = {{false}};
  for (int order = 0; order < 2; order++) {
    for (int i = 0; i < N; i++) {
      const int which = (order ? N - 1 - i : i) % (N / 2); // each twice
      labels[i] = (uint8_t)(which % 2);
      for (int k = 0; k < SIDE * SIDE; k++)
        pixels[i * SIDE * SIDE + k] = (uint8_t)(k < 2 ? which : (int)rng_u32((uint64_t)which, (uint64_t)k));
    }
    CHECK(idx_save(&(Idx){N, SIDE, SIDE, pixels}, join(root, "train-images-idx3-ubyte").s, IDX_IMAGES, NULL));
    CHECK(idx_save(&(Idx){N, 1, 1, labels}, join(root, "train-labels-idx1-ubyte").s, IDX_LABELS, NULL));
    Dataset val, train;
    if (!opens_both(&train, &val, root, &(HoldoutOptions){.fraction = 0.2f, .seed = 3})) break;
    EXPECT(train.num_images == N - N / 5 && val.num_images == N / 5);
    for (int i = 0; i < val.num_images; i++) held[order][val.gray[(size_t)val.image[i] * SIDE * SIDE]] = true;
    for (int i = 0; i < train.num_images; i++) EXPECT(!held[order][train.gray[(size_t)train.image[i] * SIDE * SIDE]]);
    dataset_close(&val);
    dataset_close(&train);
  }
  EXPECT(!memcmp(held[0], held[1], sizeof held[0]));
  free(pixels);
}
