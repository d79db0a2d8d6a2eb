// Catches a way through another user's symbolic link, in reading or in writing a folder of results.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/own_files.h"
#include "base/regular.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

enum { NOBODY = 65534 };

static void expect_text(const char *path, const char *text) {
  size_t size;
  char *found = file_read(path, &size, NULL);
  if (EXPECT(found)) EXPECT_STR(found, text);
  free(found);
}

TEST(regular_follows_no_link_of_another_user) {
  char *precious = xasprintf("%s/regular-precious", test_tmp()), *link = xasprintf("%s/regular-link", test_tmp());
  char *further = xasprintf("%s/regular-further", test_tmp()), *again = xasprintf("%s/regular-again", test_tmp());
  Err err;
  AtomicFile f;
  size_t size;
  write_text(precious, "precious\n");
  CHECK(!symlink("regular-precious", link) && !symlink(link, again));
  char *to = path_follow(again);
  EXPECT(to && path_is_same(to, precious) && !path_is_others_link(again));
  free(to);
  int file = regular_open(again, O_RDWR, &err);
  EXPECT(file >= 0 && !close(file));
  CHECK(file_begin(&f, again, &err) && fputs("precious\n", f.f) >= 0 && file_commit(&f, &err)); // a link stays one
  EXPECT(path_is_same(link, precious) && file_link(link, further, &err) && path_is_same(further, precious));
  CHECK(!unlink(further));
  if (geteuid() == 0 && lchown(link, NOBODY, NOBODY) == 0) {
    EXPECT(path_is_others_link(again) && !path_follow(again) && errno == EPERM);
    EXPECT(regular_open(link, O_RDWR, &err) < 0 && strstr(err.msg, "it is another user's symbolic link; remove it"));
    EXPECT(!regular_read(again, &err) && !file_read_own(link, &size, &err));
    EXPECT(!file_begin(&f, link, &err) && strstr(err.msg, "it is another user's symbolic link; remove it"));
    EXPECT(!file_link(link, further, &err) && !path_is_file(further));
    expect_text(link, "precious\n"); // which a data set may hold
  }
  expect_text(precious, "precious\n");
  char *all[] = {precious, link, further, again};
  for (int i = 0; i < COUNT(all); i++) {
    unlink(all[i]);
    free(all[i]);
  }
}

// Whatever is put in the folder's place once it is open.
TEST(regular_folder_stays_the_one_that_was_opened) {
  char *folder = xasprintf("%s/regular-folder", test_tmp()), *moved = xasprintf("%s/regular-moved", test_tmp());
  char *other = xasprintf("%s/regular-other", test_tmp());
  char *written = xasprintf("%s/a.jpg", moved), *precious = xasprintf("%s/a.jpg", other);
  Err err;
  CHECK(dirs_make(folder, &err) && dirs_make(other, &err));
  write_text(precious, "precious\n");
  DIR *dir = folder_open_own(folder, &err);
  CHECK(dir && !rename(folder, moved) && !symlink(other, folder) && !symlink(precious, written));
  EXPECT(folder_write_file(dir, "a.jpg", "new\n", 4));
  closedir(dir);
  expect_text(written, "new\n");
  expect_text(precious, "precious\n");
  EXPECT((dir = folder_open_own(folder, &err)) && !closedir(dir));
  if (geteuid() == 0 && lchown(folder, NOBODY, NOBODY) == 0)
    EXPECT(!folder_open_own(folder, &err) && strstr(err.msg, "it is another user's symbolic link; remove it"));
  CHECK(!unlink(folder));
  char *all[] = {folder, moved, other, written, precious};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}

TEST(regular_lock_and_pictures_are_nobody_elses) {
  char *folder = xasprintf("%s/regular-run", test_tmp()), *lock = xasprintf("%s/lock", folder);
  char *other = xasprintf("%s/regular-empty", test_tmp()), *pictures = xasprintf("%s/pictures", folder);
  Err err;
  CHECK(dirs_make(folder, &err));
  write_text(other, "");
  CHECK(!link(other, lock));
  EXPECT(!folder_lock(folder, &err) && strstr(err.msg, "/lock is a hard link, as cp -l makes: "));
  expect_text(other, "");
  CHECK(!unlink(lock) && !symlink(test_tmp(), pictures));
  EXPECT(!folder_is_own(folder, NULL, 0, false, &err) && strstr(err.msg, "/pictures is a symbolic link to "));
  EXPECT(folder_is_own(folder, NULL, 0, true, &err));
  CHECK(!unlink(pictures));
  write_text(pictures, "");
  EXPECT(!folder_is_own(folder, NULL, 0, true, &err) && strstr(err.msg, "/pictures is not a folder; "));
  CHECK(!unlink(pictures));
  char *all[] = {folder, lock, other, pictures};
  for (int i = 0; i < COUNT(all); i++) free(all[i]);
}
