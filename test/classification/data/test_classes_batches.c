// Catches batches of a classification set with the wrong image, label or map.
#include "data/images/shrink.h"
#include "test/harness/batches.h"
#include "test/harness/child.h"
#include "test/harness/class_folders.h"

static LoaderOptions class_training(int batch) {
  LoaderOptions o = training(batch);
  o.masks = false;
  o.augment = (Augment){.flip = 0.5f, .rotate = 8, .shift = 0.08f, .zoom = 0.08f};
  return o;
}

// Every place holds the image that it says, its label, and the map of its key.
static void check_batch(const Dataset *d, const LoaderOptions *o, const Batch *b, int epoch) {
  for (int position = 0; position < b->images; position++) {
    const int i = b->index[position];
    const ImageInfo *info = &b->info[position];
    if (i < 0) {
      EXPECT(b->count[position] == 0 && b->label[position] == -1 && info->h == 0 && info->view.map[0] == 0);
      continue;
    }
    Image im;
    const uint64_t key = rng_key(rng_key(o->seed, (uint64_t)epoch), (uint64_t)d->coco.images[d->image[i]].id);
    const bool augmented = o->train && epoch >= o->augment_after;
    const bool flip = augmented && rng_uniform(rng_key(key, RNG_FLIP), 0) < o->augment.flip;
    EXPECT(dataset_image(d, i, &im, NULL) && im.h == info->h && im.w == info->w);
    EXPECT(!memcmp(b->bytes + info->offset, im.rgb, (size_t)im.h * im.w * 3));
    EXPECT(b->count[position] == 1 && b->label[position] == d->object[i].label);
    EXPECT(info->rh == SIDE && info->rw == SIDE && info->key == key && info->flip == flip);
    const AugmentMap want =
        augment_classifier(augmented ? &o->augment : NULL, d->view, key, (Size){im.h, im.w}, (Size){SIDE, SIDE});
    EXPECT(!memcmp(info->view.map, want.map, sizeof want.map));
    image_free(&im);
  }
}

static void check_epochs(const Dataset *d) {
  LoaderOptions o = class_training(5);
  o.augment_after = 1;
  Err err;
  Loader *l = loader_open(d, &o, &err);
  if (!EXPECT(l)) return;
  const int steps = (int)loader_steps_per_epoch(l);
  EXPECT_INT(steps, (d->num_images + 4) / 5);
  int *seen = xcalloc((size_t)d->num_images, sizeof *seen);
  for (int step = 0; step < 3 * steps; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    EXPECT_INT(b->used, 5);
    check_batch(d, &o, b, step / steps);
    for (int position = 0; position < 5 && step < steps; position++) seen[b->index[position]]++;
  }
  for (int i = 0; i < d->num_images; i++) EXPECT(seen[i] >= 1);
  free(seen);
  loader_close(l);
  // From the middle, with another number of threads: the same batches.
  enum { STEPS = 9, FROM = 4 };
  uint64_t whole[STEPS], part[STEPS - FROM];
  run_hashes(d, &o, whole, STEPS);
  o.first_step = FROM;
  o.threads = 5;
  run_hashes(d, &o, part, STEPS - FROM);
  EXPECT(!memcmp(whole + FROM, part, sizeof part));
}

static void check_evaluation(const Dataset *d) {
  LoaderOptions o = class_training(5);
  o.train = false;
  Err err;
  Loader *l = loader_open(d, &o, &err);
  int next = 0;
  for (const Batch *b; (b = loader_next(l, &err));) {
    check_batch(d, &o, b, 0);
    for (int position = 0; position < b->used; position++) EXPECT_INT(b->index[position], next++);
  }
  EXPECT(next == d->num_images && !*err.msg);
  loader_close(l);
}

TEST(classes_make_batches) {
  const Path idx = scratch_folder("batches-idx"), by_class = scratch_folder("batches");
  const char *folders = by_class.s;
  write_idx(idx.s, "train", 23, 3, 1);
  write_class(folders, "cat", 0, PER_CLASS);
  write_class(folders, "dog", 0, PER_CLASS - 3);
  for (int k = 0; k < 2; k++) {
    Dataset d;
    if (!opens(&d, k ? folders : idx.s, "train", &plain)) continue;
    check_epochs(&d);
    check_evaluation(&d);
    dataset_close(&d);
  }
}

// An image whose header is fine and whose pixels are not is replaced in training and left out of an evaluation.
TEST(classes_replace_bad_images) {
  const Path at = scratch_folder("replaced");
  const char *root = at.s;
  write_class(root, "cat", 0, 6);
  write_class(root, "dog", 0, 6);
  size_t size;
  char *bytes = file_read(join(root, "cat/2.png").s, &size, NULL);
  FILE *f = fopen(join(root, "cat/2.png").s, "wb");
  CHECK(bytes && f && fwrite(bytes, 1, size / 2, f) == size / 2 && fclose(f) == 0);
  free(bytes);
  Dataset d;
  if (!opens(&d, root, "train", &plain)) return;
  EXPECT_INT(d.num_images, 12);
  int kept = quiet_begin(join(root, "stderr").s);
  for (int train = 0; train < 2; train++) {
    Err err;
    LoaderOptions o = class_training(4);
    o.train = train;
    Loader *l = loader_open(&d, &o, &err);
    int used = 0;
    for (int step = 0; step < 3; step++) {
      const Batch *b = loader_next(l, &err);
      if (!EXPECT(b)) break;
      used += b->used;
      for (int position = 0; position < 4; position++)
        EXPECT(b->index[position] < 0 || strcmp(d.coco.images[d.image[b->index[position]]].file_name, "cat/2.png"));
    }
    EXPECT_INT(used, train ? 12 : 11);
    EXPECT_INT(loader_bad_images(l), 1);
    loader_close(l);
  }
  quiet_end(kept);
  EXPECT_INT(dataset_bad_images(&d), 1);
  dataset_close(&d);
}

// Large photographs are divided as they are decoded, and the map is of what is left.
TEST(classes_shrink_photographs) {
  const Path at = scratch_folder("large");
  const char *root = at.s;
  write_class(root, "cat", 0, 2);
  CHECK(dirs_make(join(root, "dog").s, NULL));
  write_picture(root, "dog/large.png", 8 * SIDE + 5, 9 * SIDE + 3, 7); // to a quarter
  write_picture(root, "dog/medium.png", 4 * SIDE - 1, 5 * SIDE, 8);    // as it is
  Dataset d;
  if (!opens(&d, root, "train", &plain)) return;
  EXPECT_INT(d.max_whole, 3 * (8 * SIDE + 5) * (9 * SIDE + 3));
  EXPECT_INT(d.max_bytes, 3 * (4 * SIDE - 1) * (5 * SIDE));
  Err err;
  LoaderOptions o = class_training(4);
  o.train = false;
  Loader *l = loader_open(&d, &o, &err);
  const Batch *b = loader_next(l, &err);
  int found = 0;
  for (int position = 0; EXPECT(b) && position < b->used; position++) {
    const int i = b->index[position];
    const ImageInfo *info = &b->info[position];
    if (strcmp(d.coco.images[d.image[i]].file_name, "dog/large.png") != 0) continue;
    found++;
    Image im;
    const int h = (8 * SIDE + 5) / 4, w = (9 * SIDE + 3) / 4;
    EXPECT(dataset_image(&d, i, &im, &err) && info->h == h && info->w == w);
    shrink(im.rgb, im.h, im.w, 4, im.rgb);
    EXPECT(!memcmp(b->bytes + info->offset, im.rgb, (size_t)h * w * 3));
    const AugmentMap whole = augment_classifier(NULL, 1, info->key, (Size){h, w}, (Size){SIDE, SIDE});
    EXPECT(!memcmp(info->view.map, whole.map, sizeof whole.map));
    image_free(&im);
  }
  EXPECT_INT(found, 1);
  loader_close(l);
  dataset_close(&d);
}
