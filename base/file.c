#define _GNU_SOURCE // O_NOFOLLOW and the like
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/lock.h"

char *file_read(const char *path, size_t *size, Err *err) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    err_set(err, "cannot open %s: %s", path, strerror(errno));
    return NULL;
  }
  // The size is a hint only: a pipe says 0. Two bytes more let one read find both the end and room for the NUL.
  struct stat st;
  size_t hint = fstat(fileno(f), &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
  char *text = NULL;
  size_t cap = 0, used = 0, got;
  array_reserve((void **)&text, &cap, hint + 2, 1);
  while ((got = fread(text + used, 1, cap - used - 1, f)) > 0) {
    used += got;
    array_reserve((void **)&text, &cap, used + 2, 1);
  }
  if (ferror(f)) {
    err_set(err, "cannot read %s: %s", path, strerror(errno));
    free(text);
    text = NULL;
  } else {
    text[used] = '\0';
    *size = used;
  }
  fclose(f);
  return text;
}

bool path_is_dir(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool path_is_same(const char *a, const char *b) {
  struct stat x, y;
  return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int64_t file_length(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode) ? st.st_size : -1;
}

bool path_is_file(const char *path) { return file_length(path) >= 0; }

// A name is durable only once the folder that holds it is on disk.
static bool sync_folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? xasprintf("%.*s", (int)MAX(slash - path, 1), path) : xstrdup(".");
  int fd = open(folder, O_RDONLY);
  free(folder);
  if (fd < 0) return false;
  // EINVAL: a file system that cannot sync folders, where nothing better can be had.
  bool ok = fsync(fd) == 0 || errno == EINVAL;
  int reason = errno;
  close(fd);
  errno = reason;
  return ok;
}

bool dirs_make(const char *path, Err *err) {
  if (!*path) return err_set(err, "the folder's name is empty; is a shell variable unset?");
  char *partial = xstrdup(path);
  bool ok = true;
  for (char *end = partial; ok && *end;) {
    end += strspn(end, "/");
    end += strcspn(end, "/");
    char separator = *end;
    *end = '\0';
    if (mkdir(partial, 0777) == 0) {
      sync_folder_of(partial); // where that is not possible, the folder is there all the same
    } else {
      int reason = errno; // EEXIST is fine for a folder, so is EROFS or EACCES on one that stands already
      if (reason == EEXIST && !path_is_dir(partial))
        ok = err_set(err, "cannot create folder %s: a file of that name exists; choose another folder", partial);
      else if (!path_is_dir(partial))
        ok = err_set(err, "cannot create folder %s: %s", partial, strerror(reason));
    }
    *end = separator;
  }
  free(partial);
  return ok;
}

static const char temporary[] = ".tmp";

// What an AtomicFile at `path` replaces: a link stays one, its target is replaced. malloc'ed.
static char *target_of(const char *path) {
  char *real = realpath(path, NULL);
  if (!real && errno == ENOMEM) die_of_memory(strlen(path) + 1, HERE); // or a link would be replaced
  return real ? real : xstrdup(path);
}

// Beside its target: rename is atomic within a file system.
static char *temporary_of(const char *target, const char *ending) { return xasprintf("%s%s", target, ending); }

// Empty, and nobody else's. On a file system without locks others are trusted to keep away.
static FILE *open_temporary(const char *path) {
  int file = file_lock(path, false);
  if (file < 0 && errno != EWOULDBLOCK) file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return NULL;
  FILE *f = ftruncate(file, 0) == 0 ? fdopen(file, "wb") : NULL;
  if (!f) close(file);
  return f;
}

bool file_begin_as(AtomicFile *a, const char *path, const char *ending, Err *err) {
  struct stat st;
  bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode); // a pipe or /dev/stdout: renaming would replace it
  *a = (AtomicFile){.path = special ? xstrdup(path) : target_of(path), .found = ending != temporary};
  if (!special) a->tmp = temporary_of(a->path, ending);
  a->f = special ? fopen(a->path, "wb") : open_temporary(a->tmp);
  if (a->f) return true;
  int reason = errno;
  err_set(err, "cannot write %s: %s", path,
          reason == EWOULDBLOCK ? "another program is writing it; wait until it ends, or choose another name"
                                : strerror(reason));
  free(a->tmp);
  free(a->path);
  *a = (AtomicFile){0};
  errno = reason;
  return false;
}

bool file_begin(AtomicFile *a, const char *path, Err *err) { return file_begin_as(a, path, temporary, err); }

// Some file systems have no hard links, each has a limit of them, and none of them leads into another file system.
static bool has_no_links(int reason) {
  return reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS || reason == EMLINK || reason == EXDEV;
}

// As far as the reason in errno.
static bool copy_bytes(const char *path, const char *name) {
  static const size_t CHUNK = 1 << 20;
  char *bytes = malloc(CHUNK);
  FILE *from = fopen(path, "rb"), *to = fopen(name, "wb");
  bool ok = bytes && from && to;
  for (size_t n; ok && (n = fread(bytes, 1, CHUNK, from)) > 0;) ok = fwrite(bytes, 1, n, to) == n;
  ok = ok && !ferror(from) && fflush(to) == 0 && fsync(fileno(to)) == 0;
  int reason = errno;
  if (from) fclose(from);
  if (to) fclose(to);
  free(bytes);
  errno = reason;
  return ok;
}

bool file_link(const char *path, const char *name, Err *err) {
  char *tmp = temporary_of(name, temporary);
  unlink(tmp);
  // A symbolic link is no file of its own: its target is what gets the name, and keeps it.
  bool named =
      linkat(AT_FDCWD, path, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW) == 0 || (has_no_links(errno) && copy_bytes(path, tmp));
  bool ok = named && rename(tmp, name) == 0 && sync_folder_of(name);
  int reason = errno;
  unlink(tmp); // where both were names of one file already, rename has done nothing
  free(tmp);
  if (!ok) err_set(err, "cannot rename %s to %s: %s", path, name, strerror(reason));
  errno = reason;
  return ok;
}

static bool keep_previous(const AtomicFile *a) {
  return !a->previous || file_link(a->path, a->previous, NULL) || errno == ENOENT; // there may be nothing to keep
}

bool file_commit(AtomicFile *a, Err *err) {
  bool ok = !ferror(a->f) && fflush(a->f) == 0 &&
            (!a->tmp || (fsync(fileno(a->f)) == 0 && keep_previous(a) && rename(a->tmp, a->path) == 0));
  int reason = errno;
  if (ok && a->tmp) { // renamed while nobody else had it; what stands there from here on may be another program's
    free(a->tmp);
    a->tmp = NULL;
    ok = sync_folder_of(a->path);
    reason = errno;
  }
  if (fclose(a->f) != 0 && ok) {
    ok = false;
    reason = errno;
  }
  a->f = NULL;
  if (!ok) err_set(err, "cannot write %s: %s", a->path, strerror(reason));
  (a->found ? file_keep : file_abort)(a);
  errno = reason;
  return ok;
}

void file_abort(AtomicFile *a) {
  if (a->tmp) unlink(a->tmp);
  file_keep(a);
}

void file_keep(AtomicFile *a) {
  if (a->f) fclose(a->f);
  free(a->tmp);
  free(a->path);
  *a = (AtomicFile){0};
}

void file_clean(const char *path) {
  char *target = target_of(path), *tmp = temporary_of(target, temporary);
  unlink(tmp);
  free(tmp);
  free(target);
}
