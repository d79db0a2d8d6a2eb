#include "base/lock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "base/regular.h"

enum { HOLDER = 320 }; // "process N on HOST", where a host's name has at most 255 characters

static const char holder[] = "process ";

// A file that is new, or that some holder has written; any other is the user's.
static bool is_lock(int file) {
  char text[sizeof holder - 1];
  struct stat st;
  if (fstat(file, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink > 1) return false;
  ssize_t n = pread(file, text, sizeof text, 0); // less where the disk was full
  return n >= 0 && !memcmp(text, holder, (size_t)n);
}

// Written before it is cut, so that who reads meanwhile finds a name. A full disk has no room for it; it is for a
// message only.
static bool write_holder(int file) {
  char host[256] = "", text[HOLDER];
  gethostname(host, sizeof host - 1);
  int n = snprintf(text, sizeof text, "%s%ld on %s", holder, (long)getpid(), host);
  return pwrite(file, text, (size_t)n, 0) == n && ftruncate(file, n) == 0;
}

static bool refuse(int file, const char *folder, Err *err) {
  char text[HOLDER] = "";
  if (pread(file, text, sizeof text - 1, 0) <= 0) strcpy(text, "another process");
  return err_set(err, "%s is in use by %s; wait until it ends, or choose another folder", folder, text);
}

bool folder_lock(const char *folder, Err *err) {
  char *path = xasprintf("%s/lock", folder);
  int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666); // of a pipe: not waited for
  const bool other = file >= 0 ? !is_lock(file) : errno == ELOOP || errno == ENXIO;    // a link; a socket
  bool ok = file >= 0 || other || err_set(err, "cannot write %s: %s", path, strerror(errno));
  struct stat st;
  if (other && file >= 0 && fstat(file, &st) == 0 && st.st_nlink > 1)
    ok = err_set(err,
                 "%s is a hard link, as cp -l makes: a copy by links shares the files of the run; copy it with cp -a",
                 path);
  else if (other)
    ok = err_set(err, "%s exists and is not a lock file of this program; choose another folder", path);
  free(path);
  if (!ok) {
    if (file >= 0) close(file);
    return false;
  }
  // Who asks folder_is_locked holds it for an instant.
  int tries = 10;
  bool locked;
  while (!(locked = flock(file, LOCK_EX | LOCK_NB) == 0) && (errno == EWOULDBLOCK || errno == EINTR) && --tries)
    usleep(10000);
  if (locked) {
    write_holder(file); // stays open, and locked
    return true;
  }
  int reason = errno;
  if (reason == EWOULDBLOCK)
    ok = refuse(file, folder, err);
  else
    ok = durable_unsupported(FS_LOCK, reason) ||
         err_set(err, "cannot write in %s: flock of its lock file: %s", folder, strerror(reason));
  close(file);
  return ok;
}

bool folder_is_locked(const char *folder) {
  char *path = xasprintf("%s/lock", folder);
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const bool is_free = file < 0 ? errno == ENOENT : flock(file, LOCK_SH | LOCK_NB) == 0;
  free(path);
  if (file >= 0) close(file);
  return !is_free;
}

bool file_stands_at(int file, const char *path) {
  struct stat ours, there;
  return fstat(file, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

static bool lock(int file, bool wait) { return flock(file, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0; }

static int close_after(int file, int reason) {
  close(file);
  errno = reason;
  return -1;
}

int file_lock(const char *path, bool wait) {
  struct stat st;
  int file = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return -1;
  if (fstat(file, &st) != 0) return close_after(file, errno);
  if (!S_ISREG(st.st_mode) || st.st_nlink > 1 || st.st_uid != geteuid()) return close_after(file, EPERM);
  if (lock(file, wait)) return file;
  const int reason = errno;
  durable_unsupported(FS_LOCK, reason);
  return close_after(file, reason);
}

// What a killed program left, or somebody put there; whose it is, and where it leads, is not asked. False, with errno,
// where a program is writing it, or it cannot or must not be removed.
static bool take_away(const char *path, bool wait) {
  struct stat st;
  if (lstat(path, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) || path_is_stream(path))) {
    errno = EINVAL;
    return false;
  }
  const int file = file_lock(path, wait);
  if (file < 0 && errno == EWOULDBLOCK) return false;
  const bool ok = (file >= 0 && !file_stands_at(file, path)) || unlink(path) == 0 || errno == ENOENT;
  const int reason = errno;
  if (file >= 0) close(file);
  errno = reason;
  return ok;
}

int file_make(const char *path, bool wait) {
  for (;;) {
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0 && (errno != EEXIST || !take_away(path, wait))) return -1;
    if (file < 0) continue;
    if (!lock(file, wait) && !durable_unsupported(FS_LOCK, errno)) return close_after(file, errno);
    if (file_stands_at(file, path)) return file;
    close(file); // another program took it for one that a killed program left
  }
}
