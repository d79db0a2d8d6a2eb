#include "base/regular.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *irregular(mode_t mode) {
  switch (mode & S_IFMT) {
  case S_IFREG: return NULL;
  case S_IFDIR: return "a folder";
  case S_IFIFO: return "a pipe";
  case S_IFSOCK: return "a socket";
  default: return "a device";
  }
}

const char *path_irregular(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 ? irregular(st.st_mode) : NULL;
}

bool path_is_stream(const char *path) {
  static const char *const begins[] = {"/dev/std", "/dev/fd/", "/dev/null", "/proc/self/fd/"};
  for (int i = 0; i < COUNT(begins); i++)
    if (!strncmp(path, begins[i], strlen(begins[i]))) return true;
  return false;
}

bool path_is_others_link(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != 0 && st.st_uid != geteuid();
}

bool others_write(const struct stat *st) {
  return st->st_uid != geteuid() || st->st_mode & S_IWOTH || (st->st_mode & S_IWGRP && st->st_gid != getegid());
}

static int reason_of(const char *what) { return !strcmp(what, "a folder") ? EISDIR : EINVAL; }

static int refuse(const char *path, int reason, const char *what, Err *err) {
  if (what && reason != EISDIR)
    err_set(err, "cannot open %s: it is %s, not a regular file", path, what);
  else
    err_set(err, "cannot open %s: %s", path, strerror(reason));
  errno = reason;
  return -1;
}

// Looked at before it is opened, because that alone may move a tape, and afterwards, because it may have been replaced.
static int open_file(const char *path, int flags, bool streams, Err *err) {
  struct stat st;
  streams = streams && path_is_stream(path);
  const char *what = streams ? NULL : path_irregular(path);
  if (what) return refuse(path, reason_of(what), what, err);
  const int file = open(path, flags | O_CLOEXEC | O_NOCTTY | (streams ? 0 : O_NONBLOCK), 0666);
  if (file < 0) return refuse(path, errno, NULL, err);
  what = fstat(file, &st) == 0 ? irregular(st.st_mode) : NULL;
  if (!what || (streams && !S_ISDIR(st.st_mode))) return file;
  close(file);
  return refuse(path, reason_of(what), what, err);
}

int regular_open(const char *path, int flags, Err *err) { return open_file(path, flags, false, err); }

int input_open(const char *path, Err *err) { return open_file(path, O_RDONLY, true, err); }

FILE *regular_read(const char *path, Err *err) {
  const int file = regular_open(path, O_RDONLY, err);
  FILE *f = file >= 0 ? fdopen(file, "rb") : NULL;
  if (file >= 0 && !f) {
    refuse(path, errno, NULL, err);
    close(file);
  }
  return f;
}
