#include "base/scratch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"

enum { ALIGN = 64 };

typedef struct ScratchMore {
  struct ScratchMore *next;
  _Alignas(ALIGN) char bytes[];
} ScratchMore;

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static void *take(Scratch *s, size_t bytes) {
  if (bytes > SIZE_MAX / 4) return NULL;
  const size_t rounded = round_up(MAX(bytes, 1)); // so that no piece is NULL
  if (s->room - s->used >= rounded) {
    s->used += rounded;
    return s->block + s->used - rounded;
  }
  void *p; // not rounded, so that AddressSanitizer sees the end of a piece
  if (posix_memalign(&p, ALIGN, sizeof(ScratchMore) + bytes)) {
    s->lacking = MAX(bytes, 1);
    return NULL;
  }
  ScratchMore *more = p;
  more->next = s->more;
  s->more = more;
  s->more_bytes += rounded;
  return more->bytes;
}

void *scratch_take(Scratch *s, size_t bytes) {
  void *p = take(s, bytes);
  return p ? memset(p, 0, bytes) : NULL;
}

void *scratch_resize(Scratch *s, void *p, size_t old, size_t bytes) {
  if (bytes <= old) return p;
  const size_t kept = round_up(old);
  bool last = p && s->used >= kept && (char *)p == s->block + s->used - kept;
  if (last && bytes <= SIZE_MAX / 4 && s->room - s->used >= round_up(bytes) - kept) {
    s->used += round_up(bytes) - kept;
    return p;
  }
  void *grown = take(s, bytes);
  if (grown && old) memcpy(grown, p, old);
  return grown;
}

void *scratch_read_file(Scratch *s, const char *path, size_t *size, Err *err) {
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe that nobody writes to must not hold a run
  if (file < 0) {
    err_set(err, "cannot open %s: %s", path, strerror(errno));
    return NULL;
  }
  struct stat st;
  if (fstat(file, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(file);
    err_set(err, "cannot read %s: not a regular file%s", path, path_is_dir(path) ? " but a folder" : "");
    return NULL;
  }
  // The size is a hint only: the file may grow. A byte more lets the second read find the end.
  size_t room = st.st_size > 0 ? (size_t)st.st_size + 1 : 65536, used = 0;
  char *bytes = take(s, room);
  ssize_t got = 0;
  while (bytes && (got = read(file, bytes + used, room - used)) > 0) {
    used += (size_t)got;
    if (used < room) continue;
    bytes = scratch_resize(s, bytes, room, 2 * room);
    room *= 2;
  }
  if (!bytes) err_memory(err, room, path, NULL);
  if (got < 0) err_set(err, "cannot read %s: %s", path, strerror(errno));
  close(file);
  *size = used;
  return got < 0 ? NULL : bytes;
}

void scratch_reset(Scratch *s) {
  s->lacking = 0;
  if (s->more) {
    size_t room = s->room + s->more_bytes;
    scratch_free(s);
    void *p = NULL;
    if (posix_memalign(&p, ALIGN, room)) return;
    s->block = p;
    s->room = room;
  }
  s->used = 0;
}

void scratch_free(Scratch *s) {
  while (s->more) {
    ScratchMore *next = s->more->next;
    free(s->more);
    s->more = next;
  }
  free(s->block);
  *s = (Scratch){0};
}
