#include "data/coco/coco_index.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/regular.h"
#include "data/coco/coco_index_file.h"

// The source

static bool source_of(const char *path, IndexSource *s) {
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  *s = (IndexSource){.inode = (int64_t)st.st_ino,
                     .size = st.st_size,
                     .written = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec},
                     .changed = {st.st_ctim.tv_sec, st.st_ctim.tv_nsec}};
  return true;
}

// Whether a later change of the file is sure to have another time: timestamps have a resolution of up to ten
// milliseconds.
static bool source_settled(const IndexSource *s) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)(now.tv_sec - s->changed[0]) + 1e-9 * (double)(now.tv_nsec - s->changed[1]) > 0.1;
}

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

// The path of the index; NULL if the source does not exist.
static char *index_path(const char *folder, const char *source) {
  char *real = realpath(source, NULL);
  if (!real) return NULL;
  uint64_t hash = digest_all(real, strlen(real));
  free(real);
  return xasprintf("%s/index-%016llx.coco", folder, (unsigned long long)hash);
}

// Maps the data set of an index, if nobody else can have written it and it fits the source.
static bool map_index(Coco *c, const char *index, const char *path, const IndexSource *source) {
  struct stat st;
  const int file = regular_open(index, O_RDONLY | O_NOFOLLOW, NULL);
  const bool ok = file >= 0 && fstat(file, &st) == 0 && !others_write(&st) && index_map(c, file, index, source);
  if (file >= 0) close(file);
  if (ok) c->path = xstrdup(path);
  return ok;
}

// Writes the index of a data set that was just parsed, and replaces the data set's arrays by the index's. `before`: the
// file's state when parsing began; false, with c->origin, if it must be parsed again next time. If `out`
// could not be begun, `why` says why.
static bool keep(Coco *c, const char *index, AtomicFile *out, Err *why, const IndexSource *before) {
  IndexSource now;
  if (!source_of(c->path, &now) || memcmp(before, &now, sizeof now) || !source_settled(&now)) {
    c->origin = xasprintf("parsed; not cached, because the file was just written");
    return false;
  }
  unlink(index); // it is outdated; replacing an existing file would also make file systems flush the new one at once
  bool ok = out->f;
  if (ok) {
    out->unsynced = true; // its digests tell whether it is whole
    ok = index_write(fileno(out->f), c, before) || err_set(why, "cannot write %s: %s", index, strerror(errno));
  }
  if (ok) ok = file_commit(out, why);
  if (!ok) {
    c->origin = xasprintf("parsed; %s", why->msg);
    return false;
  }
  Coco mapped;
  if (map_index(&mapped, index, c->path, before)) {
    coco_free(c);
    *c = mapped;
  }
  return true;
}

// Parses the file unless another process does so meanwhile.
static bool parse(Coco *c, const char *path, const char *index, Err *err) {
  AtomicFile out;
  Err why;
  struct stat st;
  if (lstat(index, &st) == 0 && !S_ISREG(st.st_mode)) unlink(index); // where a link leads is no index of ours
  const bool begun = file_begin_waiting(&out, index, &why);
  IndexSource source = {0};
  bool ok = true;
  double start = now_seconds();
  if (source_of(path, &source) && begun && map_index(c, index, path, &source)) {
    c->origin = xasprintf("from %s, which another process wrote", name_of(index));
  } else {
    ok = coco_load(c, path, err);
    double seconds = now_seconds() - start;
    if (ok && keep(c, index, &out, &why, &source))
      c->origin = xasprintf("parsed in %.2f s, cached in %.2f s as %s", seconds, now_seconds() - start - seconds,
                            name_of(index));
  }
  if (out.f) file_abort(&out); // it was not needed, or is incomplete
  return ok;
}

bool coco_open(Coco *c, const char *path, const char *folder, Err *err) {
  char *index = folder ? index_path(folder, path) : NULL;
  if (!index) return coco_load(c, path, err);
  double start = now_seconds();
  IndexSource source;
  bool ok = true;
  if (source_of(path, &source) && map_index(c, index, path, &source))
    c->origin = xasprintf("from %s in %.2f s", name_of(index), now_seconds() - start);
  else
    ok = parse(c, path, index, err);
  free(index);
  return ok;
}
