// Catches a lock file that replaces a file of the user's.
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/lock.h"
#include "test/harness/small_set.h"
#include "test/harness/test.h"

TEST(lock_leaves_other_files_alone) {
  Err err;
  size_t size;
  char *folder = xasprintf("%s/locked", test_tmp()), *path = xasprintf("%s/lock", folder);
  char *other = xasprintf("%s/lock-is-not-here", test_tmp());
  CHECK(dirs_make(folder, &err));
  write_text(path, "my own notes, longer than a name");
  EXPECT(!folder_lock(folder, &err) && strstr(err.msg, "/locked/lock exists and is not a lock file of this program; "));
  char *text = file_read(path, &size, &err);
  EXPECT(text && !strcmp(text, "my own notes, longer than a name"));
  free(text);
  // Nor does it go through a link.
  write_text(other, "process");
  CHECK(!unlink(path) && !symlink(other, path));
  EXPECT(!folder_lock(folder, &err) && strstr(err.msg, "cannot write "));
  CHECK(!unlink(path));
  EXPECT(folder_lock(folder, &err));
  text = file_read(path, &size, &err);
  EXPECT(text && !strncmp(text, "process ", 8));
  free(text);
  free(folder);
  free(path);
  free(other);
}
