// Catches a lock file that replaces a file of the user's, and a folder refused because of one who asks about it.
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
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
  EXPECT(!folder_lock(folder, &err) && strstr(err.msg, "/locked/lock exists and is not a lock file of"));
  CHECK(!unlink(path) && !link(other, path)); // of a run that was copied with cp -al
  EXPECT(!folder_lock(folder, &err) && strstr(err.msg, "/locked/lock is a hard link, as cp -l makes: "));
  CHECK(!unlink(path));
  EXPECT(folder_lock(folder, &err));
  text = file_read(path, &size, &err);
  EXPECT(text && !strncmp(text, "process ", 8));
  free(text);
  free(folder);
  free(path);
  free(other);
}

static void *close_soon(void *file) {
  usleep(30000);
  close(*(int *)file);
  return NULL;
}

// folder_is_locked, which report asks, takes the lock itself for an instant.
TEST(lock_waits_for_who_asks) {
  Err err;
  pthread_t thread;
  char *folder = xasprintf("%s/lock-asked", test_tmp()), *path = xasprintf("%s/lock", folder);
  CHECK(dirs_make(folder, &err));
  int file = open(path, O_RDWR | O_CREAT, 0666);
  CHECK(file >= 0 && flock(file, LOCK_SH) == 0 && !pthread_create(&thread, NULL, close_soon, &file));
  EXPECT(folder_lock(folder, &err));
  pthread_join(thread, NULL);
  free(folder);
  free(path);
}
