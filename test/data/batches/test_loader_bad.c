// Catches unreadable images that stop a run, or that are counted in an evaluation.
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/alloc.h"
#include "data/images/image.h"
#include "data/images/png.h"
#include "test/harness/allocations.h"
#include "test/harness/batches.h"
#include "test/harness/child.h"
#include "test/harness/small_set.h"

static void replace_image(const char *dir, int image, int h, int w) {
  char path[1024];
  snprintf(path, sizeof path, "%s/train/%d.png", dir, image);
  Image im = image_alloc(h, w);
  CHECK(png_write(path, &im, PNG_FAST, NULL));
  image_free(&im);
}

// Makes images 0 to 3 of an open set bad: gone since, no image, another width, another height than the annotations say.
enum { BAD = 4 };
static void spoil(const char *dir) {
  char path[1024];
  snprintf(path, sizeof path, "%s/train/0.png", dir);
  CHECK(unlink(path) == 0);
  snprintf(path, sizeof path, "%s/train/1.png", dir);
  write_text(path, "version https://git-lfs.github.com/spec/v1\n");
  replace_image(dir, 2, 42, 61);
  replace_image(dir, 3, 61, 43);
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)); at++) count++;
  return count;
}

// An image that memory has no room for is not a bad one: whether it is trained on must not depend on the machine.
TEST(loader_stops_without_memory) {
  if (!allocations_counted()) {
    test_skip("AddressSanitizer has its own allocator");
    return;
  }
  Dataset d;
  if (!open_set(&d, small_set("no-memory"), &small_options)) return;
  for (int train = 0; train < 2; train++) {
    Err err;
    LoaderOptions o = training(3);
    o.train = train;
    allocations_refuse(true);
    Loader *l = loader_open(&d, &o, &err);
    EXPECT(!loader_next(l, &err));
    allocations_refuse(false);
    EXPECT(strstr(err.msg, "step 1: out of memory: ") == err.msg && strstr(err.msg, " bytes for decoding ") &&
           strstr(err.msg, ".png; reduce --threads"));
    EXPECT_INT(err_exit(&err), EXIT_RUN);
    EXPECT_INT(loader_bad_images(l), 0);
    loader_close(l);
  }
  dataset_close(&d);
}

TEST(loader_replaces_bad_images) {
  enum { STEPS = 24 };
  const char *dir = small_set("bad");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  spoil(dir);
  Err err;
  uint64_t want[STEPS], got[STEPS];
  char log[1024];
  snprintf(log, sizeof log, "%s/bad/stderr", test_tmp());
  int kept = quiet_begin(log);
  LoaderOptions o = training(3);
  Loader *l = loader_open(&d, &o, &err);
  for (int step = 0; step < STEPS; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    want[step] = hash_batch(b);
    EXPECT_INT(b->used, 3);
    for (int i = 0; i < b->images; i++) {
      int n = image_number(&d, b->index[i]);
      EXPECT(n >= BAD);
      EXPECT_INT(d.image_canvas[b->index[i]], b->canvas);
    }
  }
  EXPECT_INT(loader_bad_images(l), BAD);
  loader_close(l);
  quiet_end(kept);
  char *text = file_read(log, &(size_t){0}, NULL);
  EXPECT_INT(count_of(text, "\n"), BAD); // once each, however many epochs
  EXPECT_INT(count_of(text, "bad/train/0.png"), 1);
  EXPECT_INT(count_of(text, "bad/train/1.png"), 1);
  EXPECT_INT(count_of(text, "bad/train/2.png: the image has 61 x 42 pixels, but 60 x 42 in "), 1);
  EXPECT_INT(count_of(text, "bad/train/3.png: the image has 43 x 61 pixels, but 43 x 60 in "), 1);
  free(text);

  kept = quiet_begin(log);
  o.threads = 1;
  o.prefetch = 4;
  run_hashes(&d, &o, got, STEPS);
  quiet_end(kept);
  for (int i = 0; i < STEPS; i++) EXPECT(got[i] == want[i]);
  dataset_close(&d);
}

// A run of two steps reads no file for a third: all others are bad.
TEST(loader_ends_with_the_run) {
  enum { STEPS = 2 };
  const char *dir = small_set("end-step");
  Dataset d;
  Err err;
  bool used[IMAGES] = {false};
  if (!open_set(&d, dir, &small_options)) return;
  LoaderOptions o = training(3);
  Loader *l = loader_open(&d, &o, &err);
  for (int step = 0; step < STEPS; step++) {
    const Batch *b = loader_next(l, &err);
    for (int i = 0; i < b->images; i++) used[image_number(&d, b->index[i])] = true;
  }
  loader_close(l);
  for (int image = 0; image < IMAGES; image++)
    if (!used[image]) replace_image(dir, image, 42, 61);
  o.end_step = STEPS;
  o.prefetch = 4;
  l = loader_open(&d, &o, &err);
  loader_settle(l);
  for (int step = 0; step < STEPS; step++) EXPECT(loader_next(l, &err) != NULL);
  EXPECT(!loader_next(l, &err) && !err.msg[0]);
  EXPECT_INT(loader_bad_images(l), 0);
  loader_close(l);
  dataset_close(&d);
}

// Calls of read by this process; -1 where the system does not count.
static int64_t reads(void) {
  char *text = file_read("/proc/self/io", &(size_t){0}, NULL), *at = text ? strstr(text, "syscr: ") : NULL;
  const int64_t n = at ? atoll(at + 7) : -1;
  free(text);
  return n;
}

// To find out that a file is bad may take seconds: none is read again in place of another.
TEST(loader_reads_bad_images_once_as_replacements) {
  enum { DRAWS = 64 };
  const char *dir = small_set("all-bad");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  for (int i = 0; i < d.num_images; i++) {
    char *path = dataset_path(&d, i);
    write_text(path, "no image\n");
    free(path);
  }
  Err err;
  char log[1024];
  snprintf(log, sizeof log, "%s/all-bad/stderr", test_tmp());
  const int kept = quiet_begin(log);
  const int64_t before = reads();
  LoaderOptions o = training(1);
  o.threads = o.prefetch = 1;
  Loader *l = loader_open(&d, &o, &err);
  EXPECT(!loader_next(l, &err) && strstr(err.msg, "step 1: ") == err.msg);
  loader_close(l); // after at most two batches
  quiet_end(kept);
  if (before < 0)
    test_skip("this system does not count calls of read");
  else
    EXPECT(reads() - before < DRAWS);
  dataset_close(&d);
}

TEST(loader_strict_stops_at_bad_images) {
  const char *dir = small_set("strict");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  spoil(dir);
  Err err;
  LoaderOptions o = training(2);
  o.strict = true;
  Loader *l = loader_open(&d, &o, &err);
  for (const Batch *b; (b = loader_next(l, &err));) EXPECT_INT(b->used, 2); // no batch with a gap comes before
  EXPECT(strstr(err.msg, "strict/train/"));
  Err again;
  EXPECT(!loader_next(l, &again));
  EXPECT_STR(again.msg, err.msg);
  loader_close(l);
  dataset_close(&d);
}

TEST(loader_leaves_bad_images_out_of_an_evaluation) {
  const char *dir = small_set("left_out");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  spoil(dir);
  Err err;
  char log[1024];
  snprintf(log, sizeof log, "%s/left_out/stderr", test_tmp());
  int kept = quiet_begin(log);
  LoaderOptions o = {.batch = 1, .world = 1, .threads = 2, .prefetch = 1, .memory = zeroed_memory};
  for (int evaluation = 0; evaluation < 2; evaluation++) {
    int used = 0;
    Loader *l = loader_open(&d, &o, &err);
    for (const Batch *b; (b = loader_next(l, &err)); used += b->used)
      EXPECT(b->used == 1 || (b->index[0] < 0 && b->info[0].h == 0 && b->count[0] == 0 && b->num_bytes == 0));
    EXPECT_STR(err.msg, "");
    EXPECT_INT(used, d.num_images - BAD);
    EXPECT_INT(loader_bad_images(l), BAD);
    loader_close(l);
  }
  quiet_end(kept);
  EXPECT_INT(dataset_bad_images(&d), BAD);
  char *text = file_read(log, &(size_t){0}, NULL);
  EXPECT_INT(count_of(text, "\n"), BAD); // once each, however many loaders
  free(text);
  dataset_close(&d);
}

static char *folder_of(const char *dir, const char *name) { return xasprintf("%s/%s", dir, name); }

static void *bring_back(void *dir) {
  char *away = folder_of(dir, "away"), *train = folder_of(dir, "train");
  usleep(300000);
  CHECK(!rename(away, train));
  free(away);
  free(train);
  return NULL;
}

// A storage that is away for a moment changes no batch, makes no image a bad one, and is said once.
TEST(loader_waits_for_files_that_were_there) {
  enum { STEPS = 6 };
  const char *dir = small_set("away");
  char *away = folder_of(dir, "away"), *train = folder_of(dir, "train"), *log = folder_of(dir, "stderr");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  uint64_t want[STEPS], got[STEPS];
  LoaderOptions o = training(2);
  run_hashes(&d, &o, want, STEPS);
  CHECK(!rename(train, away));
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, bring_back, (void *)dir));
  d.patience = 60;
  int kept = quiet_begin(log);
  run_hashes(&d, &o, got, STEPS);
  quiet_end(kept);
  CHECK(!pthread_join(thread, NULL));
  for (int i = 0; i < STEPS; i++) EXPECT(got[i] == want[i]);
  EXPECT_INT(dataset_bad_images(&d), 0);
  char *text = file_read(log, &(size_t){0}, NULL);
  EXPECT_INT(count_of(text, "\n"), 1);
  EXPECT_INT(count_of(text, ".png: No such file or directory; retrying for up to 60 s"), 1);
  char *all[] = {away, train, log, text};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
  dataset_close(&d);
}

// One that stays away stops the loader, instead of making every image a bad one; a file that is gone alone is replaced.
TEST(loader_gives_up_files_that_were_there) {
  const char *dir = small_set("gone");
  char *away = folder_of(dir, "away"), *train = folder_of(dir, "train"), *log = folder_of(dir, "stderr");
  char *file = folder_of(dir, "train/0.png");
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  LoaderOptions o = training(3);
  o.threads = 1;
  d.patience = 0.25;
  Err err;
  CHECK(!unlink(file));
  int kept = quiet_begin(log);
  Loader *l = loader_open(&d, &o, &err);
  for (int step = 0; step < 12; step++) {
    const Batch *b = loader_next(l, &err);
    if (!EXPECT(b)) break;
    EXPECT_INT(b->used, 3);
  }
  EXPECT_INT(loader_bad_images(l), 1);
  loader_close(l);
  CHECK(!rename(train, away));
  l = loader_open(&d, &o, &err);
  EXPECT(!loader_next(l, &err));
  EXPECT(strstr(err.msg, "No such file"));
  EXPECT_INT(loader_bad_images(l), 0);
  loader_close(l);
  quiet_end(kept);
  char *all[] = {away, train, log, file};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
  dataset_close(&d);
}

TEST(loader_waits_for_no_file_that_was_never_there) {
  const char *dir = small_set("never");
  char *log = folder_of(dir, "stderr"), *file = folder_of(dir, "train/0.png");
  CHECK(!unlink(file));
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  LoaderOptions o = training(3);
  Err err;
  d.patience = 0.25;
  int kept = quiet_begin(log);
  Loader *l = loader_open(&d, &o, &err);
  for (int step = 0; step < 12; step++) EXPECT(loader_next(l, &err));
  EXPECT_INT(loader_bad_images(l), 1);
  loader_close(l);
  quiet_end(kept);
  char *text = file_read(log, &(size_t){0}, NULL);
  EXPECT_INT(count_of(text, "\n"), 1); // that it was replaced, without another try
  char *all[] = {log, file, text};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
  dataset_close(&d);
}

TEST(loader_fails_when_nothing_can_be_read) {
  const char *dir = small_set("nothing");
  char path[1024];
  Dataset d;
  if (!open_set(&d, dir, &small_options)) return;
  for (int i = 0; i < IMAGES; i++) {
    snprintf(path, sizeof path, "%s/train/%d.png", dir, i);
    CHECK(unlink(path) == 0);
  }
  Err err;
  snprintf(path, sizeof path, "%s/stderr", dir);
  int kept = quiet_begin(path);
  LoaderOptions o = training(2);
  o.first_step = 7;
  Loader *l = loader_open(&d, &o, &err);
  EXPECT(!loader_next(l, &err) && strstr(err.msg, "nothing/train/"));
  EXPECT(!strncmp(err.msg, "step 8: ", 8)); // counted from 1, over the whole run
  loader_close(l);
  quiet_end(kept);
  dataset_close(&d);
}
