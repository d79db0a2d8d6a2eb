#define _GNU_SOURCE // O_PATH
#include "base/regular.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"

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

bool others_write(const struct stat *st) {
  return st->st_uid != geteuid() || st->st_mode & S_IWOTH || (st->st_mode & S_IWGRP && st->st_gid != getegid());
}

// ---- symbolic links -------------------------------------------------------------------------------------------------

static bool is_trusted(const struct stat *st) { return st->st_uid == 0 || st->st_uid == geteuid(); }

// What a link at `path` leads to, malloc'ed; NULL with errno: EINVAL where it is none, EPERM where it is another
// user's. The link itself is opened, so that owner and target are those of one link, whatever stands there next.
static char *target_once(const char *path) {
  char to[PATH_MAX];
  struct stat st;
  const int link = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (link < 0) return NULL;
  ssize_t n = -1;
  errno = EINVAL;
  if (fstat(link, &st) == 0 && S_ISLNK(st.st_mode)) {
    errno = EPERM;
    if (is_trusted(&st)) n = readlinkat(link, "", to, sizeof to - 1);
  }
  const int reason = errno;
  close(link);
  errno = reason;
  if (n < 0) return NULL;
  to[n] = '\0';
  const char *slash = strrchr(path, '/');
  return *to == '/' || !slash ? xstrdup(to) : xasprintf("%.*s/%s", (int)(slash - path), path, to);
}

char *path_follow(const char *path) {
  enum { LINKS = 40 }; // as the kernel follows
  char *at = xstrdup(path), *to;
  for (int i = 0; i < LINKS && (to = target_once(at)); i++) {
    free(at);
    at = to;
    errno = ELOOP;
  }
  if (errno != EPERM && errno != ELOOP) return at;
  const int reason = errno;
  free(at);
  errno = reason;
  return NULL;
}

bool path_is_others_link(const char *path) {
  char *to = path_follow(path);
  const bool is_others = !to && errno == EPERM;
  free(to);
  return is_others;
}

// ---- opening --------------------------------------------------------------------------------------------------------

static int reason_of(const char *what) { return !strcmp(what, "a folder") ? EISDIR : EINVAL; }

static int refuse(const char *path, int reason, const char *what, Err *err) {
  if (what && reason != EISDIR)
    err_set(err, "cannot open %s: it is %s, not a regular file", path, what);
  else if (reason == EPERM && path_is_others_link(path))
    err_set(err, "cannot open %s: it is another user's symbolic link; remove it", path);
  else
    err_set(err, "cannot open %s: %s", path, strerror(reason));
  errno = reason;
  return -1;
}

// Looked at before it is opened, because that alone may move a tape, and afterwards, because it may have been replaced.
static int open_file(const char *path, int flags, bool streams, Err *err) {
  struct stat st;
  const char *what = streams ? NULL : path_irregular(path);
  if (what) return refuse(path, reason_of(what), what, err);
  const int file = open(path, flags | O_CLOEXEC | O_NOCTTY | (streams ? 0 : O_NONBLOCK), 0666);
  if (file < 0) return refuse(path, errno, NULL, err);
  what = fstat(file, &st) == 0 ? irregular(st.st_mode) : NULL;
  if (!what || (streams && !S_ISDIR(st.st_mode))) return file;
  close(file);
  return refuse(path, reason_of(what), what, err);
}

int regular_open(const char *path, int flags, Err *err) {
  char *to = flags & O_NOFOLLOW ? xstrdup(path) : path_follow(path);
  const int file = to ? open_file(to, flags | O_NOFOLLOW, false, err) : refuse(path, errno, NULL, err);
  const int reason = errno;
  free(to);
  errno = reason;
  return file;
}

int input_open(const char *path, Err *err) { return open_file(path, O_RDONLY, path_is_stream(path), err); }

FILE *regular_read(const char *path, Err *err) {
  const int file = regular_open(path, O_RDONLY, err);
  FILE *f = file >= 0 ? fdopen(file, "rb") : NULL;
  if (file >= 0 && !f) {
    refuse(path, errno, NULL, err);
    close(file);
  }
  return f;
}
