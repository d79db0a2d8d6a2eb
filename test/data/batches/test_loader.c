// Catches batches with wrong images or targets, in an order that depends on threads, and allocations per step.
#include <stdlib.h>
#include <unistd.h>
#include "base/rng.h"
#include "data/batches/bitmap.h"
#include "data/batches/loader.h"
#include "data/images/image.h"
#include "test/harness/allocations.h"
#include "test/harness/batches.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

// The masks, where there are any, are full rectangles: the window on the canvas, mirrored as the image is, has to be
// the box, to the last bit.
static void check_object(const Batch *b, const ImageInfo *info, int row, int image, int o) {
  const float *box = b->box + 4 * row;
  const Bitmap *mask = &b->bitmap[row];
  const int x = object_x(image, o), top = object_y(o);
  if (mask->parts == NO_MASK)
    EXPECT(mask->w == 0 && mask->h == 0);
  else
    EXPECT(mask->x == x && mask->y == top && mask->w == OBJECT_W && mask->h == OBJECT_H);
  for (int y = 0; y < mask->h; y++) EXPECT_INT(b->bits[mask->offset + y], (1 << OBJECT_W) - 1);
  float ratio_w = (float)info->rw / (float)info->w, ratio_h = (float)info->rh / (float)info->h;
  float x1 = (float)x * ratio_w, x2 = (float)(x + OBJECT_W) * ratio_w;
  EXPECT_NEAR(box[0], info->flip ? (float)info->rw - x2 : x1, 0);
  EXPECT_NEAR(box[1], (float)top * ratio_h, 0);
  EXPECT_NEAR(box[2], info->flip ? (float)info->rw - x1 : x2, 0);
  EXPECT_NEAR(box[3], (float)(top + OBJECT_H) * ratio_h, 0);
  EXPECT_INT(b->label[row], o % 2 ? 2 : 1);
}

static void check_position(const Dataset *d, const Batch *b, int position, int image) {
  const ImageInfo *info = &b->info[position];
  int wrong = 0;
  EXPECT(info->h == image_size(image).h && info->w == image_size(image).w);
  EXPECT(info->rh <= d->canvas[b->canvas].h && info->rw <= d->canvas[b->canvas].w);
  for (int64_t i = 0; i < (int64_t)info->h * info->w * 3; i++)
    wrong += b->bytes[info->offset + i] != image_byte(image, i);
  EXPECT_INT(wrong, 0);
  EXPECT_INT(b->count[position], image_objects(image));
  for (int o = 0; o < b->capacity; o++) {
    int row = position * b->capacity + o;
    if (o < b->count[position])
      check_object(b, info, row, image, o);
    else
      EXPECT(b->box[4 * row] == 0 && b->box[4 * row + 3] == 0 && b->bitmap[row].w == 0 && b->label[row] == 0);
  }
}

TEST(loader_batches_hold_images_and_targets) {
  Dataset d;
  if (!open_set(&d, small_set("content"), &small_options)) return;
  LoaderOptions o = training(3);
  o.memory = zeroed_memory;
  Err err;
  Loader *l = loader_open(&d, &o, &err);
  const int64_t steps = loader_steps_per_epoch(l);
  int flipped = 0, seen[IMAGES] = {0};
  for (int64_t step = 0; step < 2 * steps; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    EXPECT_INT(b->step, step);
    EXPECT_INT(b->used, 3);
    for (int position = 0; position < b->images; position++) {
      int image = image_number(&d, b->index[position]);
      check_position(&d, b, position, image);
      EXPECT(b->info[position].key == rng_key(rng_key(o.seed, (uint64_t)(step / steps)), 100 + (uint64_t)image));
      seen[image]++;
      flipped += b->info[position].flip;
    }
  }
  for (int i = 0; i < IMAGES; i++) EXPECT(image_objects(i) ? seen[i] >= 2 : seen[i] == 0);
  EXPECT(flipped > 0 && flipped < 6 * steps);
  loader_close(l);
  dataset_close(&d);
}

TEST(loader_is_a_function_of_the_step) {
  enum { STEPS = 14, RESUMED = 5 };
  Dataset d;
  if (!open_set(&d, small_set("function"), &small_options)) return;
  uint64_t want[STEPS], got[STEPS];
  LoaderOptions o = training(3);
  o.threads = 1;
  o.prefetch = 1;
  run_hashes(&d, &o, want, STEPS);
  for (int threads = 1; threads <= 4; threads *= 2)
    for (int prefetch = 1; prefetch <= 5; prefetch += 2) {
      o.threads = threads;
      o.prefetch = prefetch;
      run_hashes(&d, &o, got, STEPS);
      for (int i = 0; i < STEPS; i++) EXPECT(got[i] == want[i]);
    }
  o.first_step = RESUMED;
  run_hashes(&d, &o, got, STEPS - RESUMED);
  for (int i = RESUMED; i < STEPS; i++) EXPECT(got[i - RESUMED] == want[i]);
  o.first_step = 0;
  o.seed++;
  run_hashes(&d, &o, got, STEPS);
  int same = 0;
  for (int i = 0; i < STEPS; i++) same += got[i] == want[i];
  EXPECT_INT(same, 0);
  dataset_close(&d);
}

// Every image draws one of the sizes in every epoch, all of them in time, and its boxes are of that size.
TEST(loader_draws_sizes) {
  enum { EPOCHS = 12 };
  const char *dir = small_set("sizes");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  LoaderOptions o = training(3);
  o.augment.sizes = (Sizes){3, {64, 96, 80}}; // the data set's is the largest
  Err err;
  Loader *l = loader_open(&d, &o, &err);
  const int64_t steps = loader_steps_per_epoch(l);
  int drawn[IMAGES][3] = {{0}}, of_size[3] = {0}, changed = 0;
  for (int64_t step = 0; step < EPOCHS * steps; step++) {
    const Batch *b = loader_next(l, &err);
    for (int position = 0; position < b->images; position++) {
      const ImageInfo *info = &b->info[position];
      int image = image_number(&d, b->index[position]), k = 0, rh, rw;
      check_position(&d, b, position, image);
      for (; k < 3; k++) {
        resize_shape(&(Resize){.size = o.augment.sizes.side[k], .max_size = 160}, info->h, info->w, &rh, &rw);
        if (rh == info->rh && rw == info->rw) break;
      }
      if (!EXPECT(k < 3)) continue;
      drawn[image][k]++;
      of_size[k]++;
    }
  }
  for (int i = 0; i < IMAGES; i++) changed += (drawn[i][0] > 0) + (drawn[i][1] > 0) + (drawn[i][2] > 0) > 1;
  // 12 images draw 12 times each, a few are drawn again to fill batches: 48 of each size or more, with a standard
  // deviation of 6. That an image draws the same 12 times has a chance of 3^-11.
  EXPECT_INT(changed, d.num_images);
  for (int k = 0; k < 3; k++) EXPECT(of_size[k] > 48 - 4 * 6);
  loader_close(l);

  uint64_t want[8], got[8], fixed[8];
  run_hashes(&d, &o, want, 8);
  o.first_step = 3;
  o.threads = 1;
  run_hashes(&d, &o, got, 5);
  for (int i = 3; i < 8; i++) EXPECT(got[i - 3] == want[i]);
  o.first_step = 0;
  o.augment_after = 100;
  run_hashes(&d, &o, fixed, 8); // not augmented yet
  int same = 0;
  for (int i = 0; i < 8; i++) same += fixed[i] == want[i];
  EXPECT(same < 8);
  // An evaluation takes the largest.
  LoaderOptions once = {.batch = 1, .world = 1, .threads = 2, .prefetch = 1};
  l = loader_open(&d, &once, &err);
  for (const Batch *b; (b = loader_next(l, &err));) {
    int rh, rw;
    resize_shape(&small_options.resize, b->info[0].h, b->info[0].w, &rh, &rw);
    EXPECT(b->info[0].rh == rh && b->info[0].rw == rw);
  }
  loader_close(l);
  dataset_close(&d);
}

// Boxes of moved objects against where their pixels are seen, whatever thread decodes, from the first step or later.
static void check_moved(const Dataset *d, const Batch *b, int position, int *left_out) {
  const ImageInfo *info = &b->info[position];
  const ImageView *v = &info->view;
  const int image = image_number(d, b->index[position]);
  int row = position * b->capacity;
  EXPECT(v->moved && !info->flip && v->coloured);
  for (int o = 0; o < image_objects(image); o++) {
    double x1 = INFINITY, y1 = INFINITY, x2 = 0, y2 = 0;
    int seen = 0;
    for (int i = 0; i < info->rh * info->rw; i++) {
      const double cx = i % info->rw + 0.5, cy = i / info->rw + 0.5;
      const double x = (double)v->map[0] * cx + (double)v->map[1] * cy + (double)v->map[2] - object_x(image, o);
      const double y = (double)v->map[3] * cx + (double)v->map[4] * cy + (double)v->map[5] - object_y(o);
      if (!(x > 0 && y > 0 && x < OBJECT_W && y < OBJECT_H)) continue;
      seen++;
      x1 = fmin(x1, cx - 0.5);
      y1 = fmin(y1, cy - 0.5);
      x2 = fmax(x2, cx + 0.5);
      y2 = fmax(y2, cy + 0.5);
    }
    // Pixels whose centres are seen are within a pixel of what is seen; thin corners may reach beyond. An object
    // without a mask has the box of its box's corners, which is larger.
    const float *box = b->box + 4 * row;
    const bool whole = row < position * b->capacity + b->count[position] && b->label[row] == (o % 2 ? 2 : 1) && seen &&
                       (double)box[0] < x1 + 1 && (double)box[1] < y1 + 1 && (double)box[2] > x2 - 1 &&
                       (double)box[3] > y2 - 1;
    const double det = fabs((double)v->map[0] * (double)v->map[4] - (double)v->map[1] * (double)v->map[3]);
    const double share = seen * det / (OBJECT_W * OBJECT_H);
    if (share < 0.08) EXPECT(!whole);
    if (share > 0.15 && x2 - x1 > 3 && y2 - y1 > 3) EXPECT(whole);
    *left_out += !whole;
    if (!whole) continue;
    EXPECT((double)box[0] >= 0 && (double)box[1] >= 0 && box[2] <= (float)info->rw && box[3] <= (float)info->rh);
    if (b->bitmap[row].parts != NO_MASK)
      EXPECT((double)box[0] > x1 - 1.5 && (double)box[1] > y1 - 1.5 && (double)box[2] < x2 + 1.5 &&
             (double)box[3] < y2 + 1.5);
    row++;
  }
  EXPECT_INT(row - position * b->capacity, b->count[position]);
  for (; row < (position + 1) * b->capacity; row++)
    EXPECT(b->label[row] == 0 && b->bitmap[row].w == 0 && b->box[4 * row + 2] == 0);
}

TEST(loader_augments) {
  enum { STEPS = 12, RESUMED = 5 };
  Dataset d;
  DatasetOptions wanted = small_options;
  if (!open_set(&d, small_set("augmented"), &wanted)) return;
  LoaderOptions o = training(3);
  o.augment = (Augment){.flip = 0.5f,
                        .turn = 0.5f,
                        .rotate = 20,
                        .scale_down = 0.3f,
                        .scale_up = 1,
                        .shift = 0.2f,
                        .brightness = 0.2f,
                        .contrast = 0.2f};
  o.memory = zeroed_memory;
  uint64_t want[STEPS], got[STEPS];
  Err err;
  int left_out = 0;
  Loader *l = loader_open(&d, &o, &err);
  for (int64_t step = 0; step < STEPS; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    want[step] = hash_batch(b);
    for (int position = 0; position < b->images; position++) check_moved(&d, b, position, &left_out);
  }
  EXPECT(left_out > 0);
  loader_close(l);
  for (int threads = 1; threads <= 4; threads += 3) {
    o.threads = threads;
    o.first_step = threads > 1 ? RESUMED : 0;
    run_hashes(&d, &o, got, STEPS - (int)o.first_step);
    for (int i = (int)o.first_step; i < STEPS; i++) EXPECT(got[i - o.first_step] == want[i]);
  }
  dataset_close(&d);
}

// Polygons go through the map point by point; boxes come from what the configuration says. With corners as pixels, the
// last ones inside are a pixel less.
TEST(loader_moves_polygons) {
  for (MovedBoxes boxes = MOVED_MASK; boxes <= MOVED_BOX; boxes++) {
    Dataset d;
    DatasetOptions wanted = small_options;
    wanted.polygons = true;
    wanted.box_extra = 1;
    wanted.moved_boxes = boxes;
    if (!open_set(&d, small_set("moved"), &wanted)) return;
    LoaderOptions o = training(3);
    o.augment = (Augment){.rotate = 30, .scale_down = 0.5f};
    Err err;
    int polygons = 0;
    Loader *l = loader_open(&d, &o, &err);
    for (int step = 0; step < 6; step++) {
      const Batch *b = loader_next(l, &err);
      for (int row = 0; row < b->images * b->capacity; row++) {
        const Bitmap *mask = &b->bitmap[row];
        const ImageInfo *info = &b->info[row / b->capacity];
        if (row % b->capacity >= b->count[row / b->capacity] || mask->parts <= 0) continue;
        const float *m = info->view.map, *box = b->box + 4 * row;
        float xy[8], x1 = INFINITY, y1 = INFINITY, x2 = 0, y2 = 0;
        EXPECT(mask->parts == 1 && b->bits[mask->offset] == 4);
        memcpy(xy, b->bits + mask->offset + 1, sizeof xy);
        for (int k = 0; k < 4; k++) { // back in the image, the corners are where pixels meet
          const float u = m[0] * xy[2 * k] + m[1] * xy[2 * k + 1] + m[2];
          const float v = m[3] * xy[2 * k] + m[4] * xy[2 * k + 1] + m[5];
          EXPECT_NEAR((double)u, rint((double)u), 1e-3);
          EXPECT_NEAR((double)v, rint((double)v), 1e-3);
          x1 = fminf(x1, xy[2 * k]);
          y1 = fminf(y1, xy[2 * k + 1]);
          x2 = fmaxf(x2, xy[2 * k]);
          y2 = fmaxf(y2, xy[2 * k + 1]);
        }
        polygons++;
        if (x1 < 0 || y1 < 0 || x2 > (float)info->rw || y2 > (float)info->rh) continue; // cut: loader_augments
        const float want[4] = {x1, y1, x2 - 1, y2 - 1};
        for (int k = 0; k < 4; k++) EXPECT_NEAR((double)box[k], (double)want[k], 1e-3);
      }
    }
    EXPECT(polygons > 10);
    loader_close(l);
    dataset_close(&d);
  }
}

// The ranks of a training step hold what one rank with the whole batch holds.
TEST(loader_ranks_partition_the_batch) {
  Dataset d;
  if (!open_set(&d, small_set("ranks"), &small_options)) return;
  Err err;
  LoaderOptions whole = training(4), half = training(2);
  half.world = 2;
  Loader *all = loader_open(&d, &whole, &err), *part[2];
  for (int r = 0; r < 2; r++) {
    half.rank = r;
    part[r] = loader_open(&d, &half, &err);
  }
  for (int step = 0; step < 8; step++) {
    const Batch *a = loader_next(all, &err);
    for (int r = 0; r < 2; r++) {
      const Batch *b = loader_next(part[r], &err);
      EXPECT_INT(b->canvas, a->canvas);
      for (int i = 0; i < 2; i++) {
        EXPECT_INT(b->index[i], a->index[2 * r + i]);
        EXPECT(b->info[i].key == a->info[2 * r + i].key && b->info[i].flip == a->info[2 * r + i].flip);
      }
    }
  }
  loader_close(all);
  loader_close(part[0]);
  loader_close(part[1]);
  dataset_close(&d);
}

TEST(loader_evaluates_each_image_once) {
  DatasetOptions options = small_options;
  options.keep_empty = true;
  Dataset d;
  if (!open_set(&d, small_set("evaluation"), &options)) return;
  Err err;
  int seen[IMAGES] = {0}, steps = 0;
  // Two batches in turn: places that stay empty held images before.
  LoaderOptions o = {
      .batch = 4, .world = 1, .threads = 3, .prefetch = 1, .augment = {.flip = 1}, .memory = zeroed_memory};
  Loader *l = loader_open(&d, &o, &err);
  for (const Batch *b; (b = loader_next(l, &err)); steps++) {
    int used = 0;
    for (int i = 0; i < b->images; i++) {
      if (b->index[i] < 0) {
        EXPECT(b->info[i].h == 0 && b->info[i].rw == 0 && b->count[i] == 0);
        continue;
      }
      seen[image_number(&d, b->index[i])]++;
      EXPECT_INT(b->info[i].flip, 0);
      used++;
    }
    EXPECT_INT(b->used, used);
    EXPECT_INT(b->num_words, 0);
  }
  EXPECT_STR(err.msg, "");
  EXPECT(!loader_next(l, &err)); // and stays at the end
  EXPECT_INT(steps, loader_steps_per_epoch(l));
  for (int n = 0; n < IMAGES; n++) EXPECT_INT(seen[n], 1);
  loader_close(l);
  dataset_close(&d);
}

// Opens a set of one JPEG whose EXIF orientation is 6, with or without its upright size in the annotations.
static bool open_turned(Dataset *d, const char *jpeg, bool sized, bool upright) {
  const char *dir = small_set("turned");
  char path[1024], text[2048], size[64] = "";
  Image im;
  Err err = {{0}};
  CHECK(image_load_as(&im, jpeg, true, (SampleRange){0}, &err));
  if (sized) snprintf(size, sizeof size, ",\"height\":%d,\"width\":%d", im.h, im.w);
  image_free(&im);
  snprintf(path, sizeof path, "%s/annotations/instances_train.json", dir);
  snprintf(text, sizeof text,
           "{\"categories\":[{\"id\":1,\"name\":\"a\"}],\"images\":[{\"id\":1,\"file_name\":\"turned.jpg\"%s}],"
           "\"annotations\":[{\"id\":1,\"image_id\":1,\"category_id\":1,\"bbox\":[1,2,30,40]}]}",
           size);
  write_text(path, text);
  snprintf(path, sizeof path, "%s/train/turned.jpg", dir);
  if (!path_is_file(path)) CHECK(symlink(jpeg, path) == 0);
  DatasetOptions options = small_options;
  options.exif = upright ? EXIF_YES : EXIF_NO;
  return open_set(d, dir, &options);
}

TEST(loader_turns_images_when_asked) {
  const char *shared = shared_path("odd_images/exif_Landscape_6.jpg");
  char *jpeg = shared ? realpath(shared, NULL) : NULL;
  if (!jpeg) {
    test_skip("no shared/data/odd_images");
    return;
  }
  Err err;
  LoaderOptions o = training(1);
  o.augment = (Augment){0};
  o.strict = true;
  for (int upright = 0; upright < 2; upright++) // the size from the file
    for (int sized = 0; sized <= upright; sized++) {
      Dataset d;
      Image im;
      if (!open_turned(&d, jpeg, sized, upright)) break;
      CHECK(image_load_as(&im, jpeg, upright, (SampleRange){0}, &err));
      Loader *l = loader_open(&d, &o, &err);
      const Batch *b = loader_next(l, &err);
      if (EXPECT(b) && EXPECT(b->info[0].h == im.h && b->info[0].w == im.w))
        EXPECT(!memcmp(b->bytes, im.rgb, (size_t)im.h * im.w * 3));
      loader_close(l);
      image_free(&im);
      dataset_close(&d);
    }
  Dataset d; // annotated upright, but not turned: the message says how
  if (!open_turned(&d, jpeg, true, false)) return;
  Loader *l = loader_open(&d, &o, &err);
  EXPECT(!loader_next(l, &err) && strstr(err.msg, "turned.jpg") &&
         strstr(err.msg, "; it would match if rotated by its EXIF orientation: --exif yes"));
  loader_close(l);
  dataset_close(&d);
  free(jpeg);
}

// Once a thread has met every image, another epoch allocates nothing: not for files, pixels, masks or batches.
static void check_allocations(const Dataset *d) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  LoaderOptions o = training(3);
  o.threads = 1;
  Err err;
  int64_t start = allocations();
  Loader *l = loader_open(d, &o, &err);
  const int64_t steps = loader_steps_per_epoch(l);
  for (int64_t step = 0; step < steps + o.prefetch; step++) EXPECT(loader_next(l, &err)); // the thread is ahead
  int64_t warm = allocations();
  EXPECT(warm > start); // they are counted
  for (int64_t step = 0; step < 2 * steps; step++) EXPECT(loader_next(l, &err));
  EXPECT_INT(allocations() - warm, 0);
  loader_close(l);
}

TEST(loader_allocates_nothing_in_steady_state) {
  Dataset d;
  if (!open_set(&d, small_set("steady"), &small_options)) return;
  check_allocations(&d);
  dataset_close(&d);
  const char *coco = shared_path("coco"); // JPEG, masks of many parts
  const DatasetOptions options = {.resize = {.size = 800, .max_size = 1333}, .max_canvases = 2, .limit = 24};
  if (!coco || !open_set(&d, coco, &options)) return;
  check_allocations(&d);
  dataset_close(&d);
}

// Batches that are held stay as they are while more are decoded.
TEST(loader_holds_batches) {
  enum { HELD = 3, STEPS = 12 };
  Dataset d;
  if (!open_set(&d, small_set("held"), &small_options)) return;
  LoaderOptions plain = training(2), holding = training(2);
  Err err;
  holding.held = HELD;
  holding.prefetch = 1;
  Loader *one = loader_open(&d, &plain, &err), *several = loader_open(&d, &holding, &err);
  const Batch *held[STEPS];
  for (int step = 0; step < STEPS; step++) {
    held[step] = loader_next(several, &err);
    if (step < HELD - 1) continue;
    usleep(2000); // for what is decoded too early to do harm
    const Batch *oldest = held[step - HELD + 1], *want = loader_next(one, &err);
    EXPECT(oldest->step == want->step && oldest->num_bytes == want->num_bytes);
    EXPECT(!memcmp(oldest->bytes, want->bytes, (size_t)want->num_bytes));
    EXPECT(!memcmp(oldest->index, want->index, (size_t)want->images * sizeof *want->index));
  }
  loader_close(one);
  loader_close(several);
  dataset_close(&d);
}

// Settled, nobody decodes; at the end of an evaluation, too, where fewer batches are left than there is room for.
TEST(loader_settles) {
  Dataset d;
  if (!open_set(&d, small_set("settle"), &small_options)) return;
  for (int train = 0; train < 2; train++) {
    LoaderOptions o = training(2);
    o.train = train;
    o.prefetch = 3;
    Err err;
    Loader *l = loader_open(&d, &o, &err);
    for (int step = 0; step < 8 && loader_next(l, &err); step++) {
      double before[LOADER_STAGES], after[LOADER_STAGES];
      loader_settle(l);
      loader_seconds(l, before);
      usleep(2000);
      loader_seconds(l, after);
      EXPECT(!memcmp(before, after, sizeof before));
    }
    loader_close(l);
  }
  dataset_close(&d);
}

TEST(loader_closes_at_any_moment) {
  Dataset d;
  if (!open_set(&d, small_set("close"), &small_options)) return;
  Err err;
  for (int trial = 0; trial < 24; trial++) {
    LoaderOptions o = training(1 + trial % 3);
    o.threads = 1 + trial % 4;
    o.prefetch = 1 + trial % 2;
    Loader *l = loader_open(&d, &o, &err);
    for (int step = 0; step < trial % 6; step++) EXPECT(loader_next(l, &err));
    loader_close(l);
  }
  dataset_close(&d);
}

static float word_float(uint32_t word) {
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

// Polygons are wanted: the third of the objects that have one bring its four corners, which are those of the box; the
// others bring bits as ever.
TEST(loader_polygons) {
  Dataset d;
  DatasetOptions wanted = small_options;
  wanted.polygons = true;
  wanted.box_extra = 1;
  if (!open_set(&d, small_set("polygons"), &wanted)) return;
  LoaderOptions o = training(3);
  Err err;
  Loader *l = loader_open(&d, &o, &err);
  int polygons = 0, bitmaps = 0, none = 0, flipped = 0;
  for (int64_t step = 0; step < 2 * loader_steps_per_epoch(l); step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    for (int row = 0; row < b->images * b->capacity; row++) {
      const Bitmap *m = &b->bitmap[row];
      const ImageInfo *info = &b->info[row / b->capacity];
      if (row % b->capacity >= b->count[row / b->capacity]) continue;
      bitmaps += m->parts == 0;
      none += m->parts == NO_MASK;
      if (m->parts == NO_MASK) continue;
      if (m->parts == 0) {
        EXPECT(m->w == OBJECT_W && m->h == OBJECT_H);
        for (int y = 0; y < m->h; y++) EXPECT_INT(b->bits[m->offset + y], (1 << OBJECT_W) - 1);
        continue;
      }
      polygons++;
      flipped += info->flip;
      EXPECT_INT(m->parts, 1);
      EXPECT_INT(b->bits[m->offset], 4);
      // x y, r y, r b, x b; r and b a pixel beyond the box's last. Mirrored, r is a pixel before the box's first.
      double ratio_w = (double)info->rw / info->w, ratio_h = (double)info->rh / info->h;
      const float *box = b->box + 4 * row;
      double x = info->flip ? box[2] : box[0], r = info->flip ? box[0] - ratio_w : box[2] + ratio_w;
      const double want[] = {x, box[1], r, box[1], r, box[3] + ratio_h, x, box[3] + ratio_h};
      for (int i = 0; i < 8; i++) EXPECT_NEAR(word_float(b->bits[m->offset + 1 + i]), want[i], 1e-4);
    }
  }
  EXPECT(polygons > 3 && bitmaps > 3 && none > 3 && flipped > 0);
  loader_close(l);
  dataset_close(&d);
}

// Real annotations: polygons of many parts, runs, crowds. Every mask's bits are those of its runs.
static void check_real(const char *folder) {
  const char *dir = shared_path(folder);
  if (!dir) {
    test_skip("../shared/data is not there");
    return;
  }
  const DatasetOptions options = {.resize = {.size = 800, .max_size = 1333}, .max_canvases = 2, .limit = 24};
  Dataset d;
  if (!open_set(&d, dir, &options)) return;
  LoaderOptions o = training(4);
  Err err;
  Loader *l = loader_open(&d, &o, &err);
  for (int64_t step = 0; step < loader_steps_per_epoch(l); step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    for (int i = 0; i < b->images; i++)
      for (int k = 0; k < b->count[i]; k++) {
        const Bitmap *mask = &b->bitmap[i * b->capacity + k];
        const Object *object = &d.object[d.first_object[b->index[i]] + k];
        Rle rle = dataset_mask(&d, b->index[i], object);
        uint64_t set = 0;
        for (int64_t word = 0; word < bitmap_words(mask->h, mask->w); word++)
          set += (uint64_t)__builtin_popcount(b->bits[mask->offset + word]);
        EXPECT(set == rle_area(&rle) && set > 0);
        rle_free(&rle);
      }
  }
  EXPECT_INT(loader_bad_images(l), 0);
  loader_close(l);
  dataset_close(&d);
}
TEST(loader_reads_nuclei) { check_real("nuclei"); }
TEST(loader_reads_coco) { check_real("coco"); }
