#include "base/growing.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/lock.h"
#include "base/regular.h"

static const char partial[] = ".partial";

// From byte `at` of the file, or, where there is no going back in it, behind what was written last.
static bool put(const GrowingFile *g, const char *bytes, size_t size, int64_t at) {
  const int fd = fileno(g->file.f);
  while (size > 0) {
    ssize_t done = g->file.tmp ? pwrite(fd, bytes, size, at) : write(fd, bytes, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return false;
    bytes += done;
    at += done;
    size -= (size_t)done;
  }
  return true;
}

// What a write that failed has left is cut off, and the text whole again, in bytes that it has had already.
static void cut(const GrowingFile *g) {
  if (!g->file.tmp) return;
  if (ftruncate(fileno(g->file.f), g->end) == 0) put(g, g->closing, strlen(g->closing), g->end);
}

// `closing` behind it, where that can be overwritten.
static bool write_whole(GrowingFile *g, const char *text, size_t size) {
  const size_t head = strlen(g->opening), tail = g->file.tmp ? strlen(g->closing) : 0;
  char *bytes = xmalloc(head + size + tail);
  memcpy(bytes, g->opening, head);
  memcpy(bytes + head, text, size);
  memcpy(bytes + head + size, g->closing, tail);
  const bool ok = put(g, bytes, head + size + tail, g->end);
  const int reason = errno;
  free(bytes);
  errno = reason;
  if (!ok) return false;
  g->opening = "";
  g->end += (int64_t)(head + size);
  return true;
}

bool growing_add(GrowingFile *g, const char *text, size_t size, Err *err) {
  if (write_whole(g, text, size)) return true;
  const int reason = errno;
  cut(g);
  errno = reason;
  return err_set(err, "cannot write %s: %s", g->partial, strerror(reason));
}

static void release(GrowingFile *g) {
  free(g->partial);
  free(g->kept);
  *g = (GrowingFile){0};
}

// Of a regular file; 0 where there is none.
static int64_t size_of(const char *path) {
  struct stat st;
  return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
}

// What stands at FILE.partial is kept unless another program is writing it, who keeps it himself.
static bool keep_before(GrowingFile *g, const char *path, Err *err) {
  char *target = path_follow(path), *left = xasprintf("%s%s", target ? target : path, partial);
  free(target);
  bool ok = true;
  if (size_of(left) > (int64_t)(strlen(g->opening) + strlen(g->closing))) {
    const int file = file_lock(left, false);
    if (file >= 0 || errno != EWOULDBLOCK) ok = (g->kept = file_set_aside(left));
    const int reason = errno;
    if (file >= 0) close(file);
    if (!ok)
      err_set(err, "cannot rename %s, left by an earlier run, to keep it: %s; rename or remove it", left,
              strerror(reason));
  }
  free(left);
  return ok;
}

bool growing_open(GrowingFile *g, const char *path, const char *opening, const char *closing, Err *err) {
  *g = (GrowingFile){.opening = opening, .closing = closing};
  if (!keep_before(g, path, err)) return false;
  if (!file_begin_as(&g->file, path, partial, err)) {
    free(g->kept);
    g->kept = NULL;
    return false;
  }
  g->partial = xstrdup(g->file.tmp ? g->file.tmp : path);
  if (!g->file.tmp || growing_add(g, "", 0, err)) return true;
  growing_abort(g);
  return false;
}

bool growing_commit(GrowingFile *g, Err *err) {
  bool ok = g->file.tmp || growing_add(g, g->closing, strlen(g->closing), err);
  ok &= file_commit(&g->file, ok ? err : NULL);
  release(g);
  return ok;
}

void growing_keep(GrowingFile *g) {
  if (g->file.f && !g->file.tmp) growing_add(g, g->closing, strlen(g->closing), NULL);
  file_keep(&g->file);
  release(g);
}

void growing_abort(GrowingFile *g) {
  file_abort(&g->file);
  release(g);
}
