// Catches images out of order or decoded into memory that is still in use.
#include <unistd.h>
#include "base/file.h"
#include "data/images/png.h"
#include "inference/decoders.h"
#include "test/harness/command.h"
#include "test/harness/test.h"

// A gray image whose value is its number, h × w.
static void write_gray(const char *path, int value, int h, int w) {
  Err err;
  Image im = image_alloc(h, w);
  memset(im.rgb, value, 3 * (size_t)h * (size_t)w);
  CHECK(png_write(path, &im, PNG_FAST, &err));
  image_free(&im);
}

enum { IMAGES = 24 };
static const char *folder_of_grays(void) {
  static char folder[512];
  if (*folder) return folder;
  snprintf(folder, sizeof folder, "%s", test_kept("grays"));
  CHECK(dirs_make(folder, NULL));
  for (int i = 0; i < IMAGES; i++) {
    char path[600];
    snprintf(path, sizeof path, "%s/%02d.png", folder, i);
    write_gray(path, i, 8 + i, 16);
  }
  CHECK(!command(NULL, "echo no image >%s/05.png", folder));
  return folder;
}

static DecodersState next(Decoders *d, Decoded **image) {
  Err err;
  return decoders_next(d, 30, image, &err);
}

// Whatever the threads and the bounds, images come in order, each as its file has it.
TEST(decoders_keep_the_order) {
  static const DecodersOptions options[] = {{.threads = 1, .ahead = 1, .bytes = 1},
                                            {.threads = 4, .ahead = 3, .bytes = 1},
                                            {.threads = 4, .ahead = 3, .bytes = 4000},
                                            {.threads = 3, .ahead = 64, .bytes = 1 << 30}};
  const char *folder = folder_of_grays();
  test_limit(60);
  for (int o = 0; o < COUNT(options); o++) {
    Err err;
    Decoded *image;
    Sources *s = sources_open(&folder, 1, -1, &err);
    Decoders *d = decoders_open(s, &options[o], &err);
    for (int i = 0; i < IMAGES; i++) {
      if (!EXPECT_INT(next(d, &image), DECODERS_IMAGE)) break;
      EXPECT_INT(image->number, i);
      if (i == 5)
        EXPECT(image->wrong && !image->image.rgb && strstr(image->wrong->msg, "05.png: cannot read the image"));
      else if (EXPECT(!image->wrong && image->image.h == 8 + i && image->image.w == 16))
        EXPECT_INT(image->image.rgb[3 * 16 * (8 + i) - 1], i);
      decoders_free(d, image);
    }
    EXPECT_INT(next(d, &image), DECODERS_END);
    decoders_close(d);
    sources_close(s);
  }
}

// What they would yield is told by their own time: whoever takes images slowly does not lower it.
TEST(decoders_tell_what_they_yield) {
  enum { HELD_MS = 50 };
  Err err;
  Decoded *image;
  const char *folder = folder_of_grays();
  Sources *s = sources_open(&folder, 1, -1, &err);
  const DecodersOptions options = {.threads = 1, .ahead = 1, .bytes = 1};
  Decoders *d = decoders_open(s, &options, &err);
  test_limit(60);
  while (next(d, &image) == DECODERS_IMAGE) {
    usleep(1000 * HELD_MS);
    decoders_free(d, image);
  }
  EXPECT(decoders_yield(d) > 4 * 1e3 / HELD_MS);
  decoders_close(d);
  sources_close(s);
}

// Pixels that are not given back keep the next image waiting, which says so; one larger than all room comes alone.
TEST(decoders_stay_within_their_bytes) {
  Err err;
  const char *folder = folder_of_grays();
  Sources *s = sources_open(&folder, 1, -1, &err);
  const DecodersOptions options = {.threads = 4, .ahead = 8, .bytes = 3 * 16 * (8 + 9)}; // images 0 and 1
  Decoders *d = decoders_open(s, &options, &err);
  Decoded *held[3], *image;
  test_limit(60);
  for (int i = 0; i < 2; i++) EXPECT_INT(next(d, &held[i]), DECODERS_IMAGE);
  DecodersState state;
  do state = decoders_next(d, 0, &image, &err);
  while (state == DECODERS_BUSY);
  EXPECT_INT(state, DECODERS_FULL);
  decoders_drop_pixels(d, held[0]);
  EXPECT(!held[0]->image.rgb);
  EXPECT_INT(decoders_next(d, 0.05, &image, &err), DECODERS_FULL); // image 2 is larger than image 0
  decoders_drop_pixels(d, held[1]);
  EXPECT_INT(next(d, &held[2]), DECODERS_IMAGE);
  EXPECT_INT(held[2]->number, 2);
  for (int i = 0; i < 3; i++) decoders_free(d, held[i]);
  decoders_close(d); // while others wait
  sources_close(s);
}

// Pixels that were given back serve an image that is smaller by an eighth at most, and count as they are; not where
// another image has needed their room since.
TEST(decoders_use_pixels_again) {
  enum { ROW = 3 * 16, MOST = 8 + 20 };
  static const struct {
    int image, rows; // rows: that it counts for
  } step[] = {{9, 8 + 9}, {8, 8 + 9}, {20, MOST}, {8, 8 + 8}};
  Err err;
  char path[COUNT(step)][600];
  const char *names[COUNT(step)];
  for (int i = 0; i < COUNT(step); i++) {
    snprintf(path[i], sizeof path[i], "%s/%02d.png", folder_of_grays(), step[i].image);
    names[i] = path[i];
  }
  Sources *s = sources_open(names, COUNT(step), -1, &err);
  const DecodersOptions options = {.threads = 1, .ahead = 1, .bytes = ROW * MOST};
  Decoders *d = decoders_open(s, &options, &err);
  Decoded *image;
  test_limit(60);
  for (int i = 0; i < COUNT(step) && EXPECT_INT(next(d, &image), DECODERS_IMAGE); i++) {
    EXPECT(image->image.h == 8 + step[i].image && image->image.rgb[0] == step[i].image);
    EXPECT_INT(image->bytes, ROW * step[i].rows);
    decoders_free(d, image);
  }
  decoders_close(d);
  sources_close(s);
}

// A list whose writer pauses: idle, then the next image, whoever waits for it.
TEST(decoders_wait_for_a_list) {
  Err err;
  int ends[2];
  CHECK(!pipe(ends));
  const char *const names[] = {"-"};
  Sources *s = sources_open(names, 1, ends[0], &err);
  const DecodersOptions options = {.threads = 3, .ahead = 4, .bytes = 1 << 20};
  Decoders *d = decoders_open(s, &options, &err);
  Decoded *image;
  test_limit(60);
  for (int i = 0; i < 3; i++) {
    EXPECT_INT(decoders_next(d, 0.1, &image, &err), DECODERS_IDLE);
    char line[600];
    const int length = snprintf(line, sizeof line, "%s/%02d.png\n", folder_of_grays(), i);
    CHECK(write(ends[1], line, (size_t)length) == length);
    if (EXPECT_INT(next(d, &image), DECODERS_IMAGE)) EXPECT_INT(image->image.rgb[0], i);
    decoders_free(d, image);
  }
  EXPECT_INT(decoders_next(d, 0.1, &image, &err), DECODERS_IDLE);
  decoders_close(d); // with a thread at the list
  sources_close(s);
  close(ends[0]);
  close(ends[1]);
}
