#include "base/lock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/output.h"

enum { HOLDER = 320 }; // "process N on HOST", where a host's name has at most 255 characters

// Written before it is cut, so that who reads meanwhile finds a name. A full disk has no room for it; it is for a
// message only.
static bool write_holder(int file) {
  char host[256] = "", text[HOLDER];
  gethostname(host, sizeof host - 1);
  int n = snprintf(text, sizeof text, "process %ld on %s", (long)getpid(), host);
  return pwrite(file, text, (size_t)n, 0) == n && ftruncate(file, n) == 0;
}

static bool refuse(int file, const char *folder, Err *err) {
  char text[HOLDER] = "";
  if (pread(file, text, sizeof text - 1, 0) <= 0) strcpy(text, "another process");
  return err_set(err, "%s is in use by %s; wait until it ends, or give another folder", folder, text);
}

bool folder_lock(const char *folder, Err *err) {
  char *path = xasprintf("%s/lock", folder);
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  bool ok = file >= 0 || err_set(err, "cannot write %s: %s", path, strerror(errno));
  free(path);
  if (!ok) return false;
  if (flock(file, LOCK_EX | LOCK_NB) == 0) {
    write_holder(file); // stays open, and locked
    return true;
  }
  int reason = errno;
  ok = reason != EWOULDBLOCK || refuse(file, folder, err);
  if (ok) line_print(stderr, "%s cannot be locked (%s): keep other runs out of it", folder, strerror(reason));
  close(file);
  return ok;
}

bool file_stands_at(int file, const char *path) {
  struct stat ours, there;
  return fstat(file, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

int file_lock(const char *path, bool wait) {
  for (;;) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) return -1;
    bool locked = flock(file, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0;
    if (locked && file_stands_at(file, path)) return file;
    int reason = errno;
    close(file);
    errno = reason;
    if (!locked) return -1;
  }
}
