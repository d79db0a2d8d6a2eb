// Catches overlays that overwrite each other or a file of the user's.
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "data/images/png.h"
#include "data/pictures/overlays.h"
#include "test/harness/test.h"

TEST(overlays_have_names_of_their_own) {
  static const char *const files[] = {"a/x.png", "b/x.jpg", "a/x-2.png", "x", "c/x-2.jpg", "a.b/y", ".png", "x-3.x"};
  static const char *const want[] = {"x", "x-4", "x-2", "x-5", "x-2-2", "y", ".png", "x-3"};
  Overlays o;
  overlays_open(&o, "out", files, COUNT(files));
  EXPECT_INT(o.n, COUNT(files));
  for (int i = 0; i < o.n; i++) {
    char path[64];
    snprintf(path, sizeof path, "out/%s.png", want[i]);
    EXPECT_STR(o.path[i], path);
  }
  overlays_close(&o);
}

// As many as there may be in a data set, all of one name: linear, or this takes minutes.
TEST(overlays_number_many) {
  enum { N = 100000 };
  const char **files = xmalloc(N * sizeof *files);
  for (int i = 0; i < N; i++) files[i] = "x.png";
  Overlays o;
  overlays_open(&o, "o", files, N);
  EXPECT_STR(o.path[0], "o/x.png");
  EXPECT_STR(o.path[N - 1], "o/x-100000.png");
  overlays_close(&o);
  free(files);
}

TEST(overlays_replace_whole_files) {
  const char *files[] = {"whole.png", "no/such/folder.png"};
  char *at = xasprintf("%s/whole.png", test_tmp()), *tmp = xasprintf("%s/overlay.tmp", test_tmp());
  Image image = image_alloc(8, 8), read;
  FileSet inputs = {0};
  Overlays o;
  Err err;
  overlays_open(&o, test_tmp(), files, COUNT(files));
  EXPECT(overlays_spare(&o, &inputs, &err));
  EXPECT(overlays_write(&o, 0, &image, NULL, 0, &err));
  if (EXPECT(image_load(&read, at, &err))) image_free(&read);
  EXPECT(!path_is_file(tmp));
  file_set_add(&inputs, at);
  EXPECT(!overlays_spare(&o, &inputs, &err) && strstr(err.msg, "/whole.png is an input of this run"));
  // What is no overlay may be the user's.
  file_set_free(&inputs);
  EXPECT(overlays_spare(&o, &inputs, &err));
  CHECK(png_write(at, &image, PNG_FAST, &err));
  EXPECT(!overlays_spare(&o, &inputs, &err) && strstr(err.msg, "/whole.png exists and is not an overlay"));
  CHECK(!truncate(at, 0));
  EXPECT(!overlays_spare(&o, &inputs, &err));
  CHECK(!unlink(at) && !mkfifo(at, 0600));
  EXPECT(!overlays_spare(&o, &inputs, &err) && strstr(err.msg, "/whole.png exists and is not an overlay"));
  CHECK(!unlink(at) && !symlink("nowhere", at));
  EXPECT(!overlays_spare(&o, &inputs, &err) && strstr(err.msg, "/whole.png exists and is not an overlay"));
  CHECK(!unlink(at) && !symlink(test_tmp(), at));
  EXPECT(!overlays_spare(&o, &inputs, &err));
  CHECK(!unlink(at) && !mkdir(at, 0777));
  EXPECT(overlays_spare(&o, &inputs, &err)); // costs that overlay
  CHECK(!rmdir(at));
  overlays_close(&o);
  overlays_open(&o, "/nowhere", files, 1);
  EXPECT(!overlays_write(&o, 0, &image, NULL, 0, &err) && strstr(err.msg, "/nowhere/"));
  overlays_close(&o);
  image_free(&image);
  free(at);
  free(tmp);
}
