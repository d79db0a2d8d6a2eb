#define _GNU_SOURCE // O_NOFOLLOW and the like
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "base/lock.h"
#include "base/regular.h"

// `most`: bytes; 0: any number.
static char *read_all(int file, const char *path, size_t most, size_t *size, Err *err) {
  if (file < 0) return NULL;
  FILE *f = fdopen(file, "rb");
  if (!f) {
    err_set(err, "cannot read %s: %s", path, strerror(errno));
    close(file);
    return NULL;
  }
  // The size is a hint only: a pipe says 0. Two bytes more let one read find both the end and room for the NUL.
  struct stat st;
  size_t hint = fstat(fileno(f), &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
  size_t cap = hint + 2, used = 0, got;
  const bool fits = !most || hint <= most;
  char *text = fits ? malloc(cap) : NULL;
  if (!text) {
    if (fits)
      err_memory(err, cap, path, NULL);
    else
      err_set(err, "%s has %zu MB, more than any such file of a run; remove it", path, hint >> 20);
    fclose(f);
    return NULL;
  }
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

char *file_read(const char *path, size_t *size, Err *err) {
  return read_all(input_open(path, err), path, 0, size, err);
}

char *file_read_own(const char *path, size_t *size, Err *err) {
  enum { MOST = 1 << 28 };
  return read_all(regular_open(path, O_RDONLY, err), path, MOST, size, err);
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
      durable_sync_name(partial); // where that is not possible, the folder is there all the same
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

DIR *folder_open_own(const char *path, Err *err) {
  char *to = path_follow(path);
  const int file = to ? open(to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
  DIR *dir = file >= 0 ? fdopendir(file) : NULL;
  const int reason = errno;
  if (file >= 0 && !dir) close(file);
  free(to);
  if (!dir)
    err_set(err, "cannot open folder %s: %s", path,
            reason == EPERM ? "it is another user's symbolic link; remove it" : strerror(reason));
  errno = reason;
  return dir;
}

static bool write_new(int folder, const char *name, const char *bytes, size_t size) {
  const int file = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  bool ok = file >= 0;
  for (size_t done = 0; ok && done < size;) {
    const ssize_t n = write(file, bytes + done, size - done);
    if (n > 0) done += (size_t)n;
    ok = n > 0 || (n < 0 && errno == EINTR);
  }
  const int reason = errno;
  if (file >= 0 && close(file) != 0 && ok) return false;
  errno = reason;
  return ok;
}

bool folder_write_file(DIR *dir, const char *name, const void *bytes, size_t size) {
  const int folder = dirfd(dir);
  char *tmp = xasprintf("%s.tmp", name);
  unlinkat(folder, tmp, 0); // of a killed program
  bool ok = write_new(folder, tmp, bytes, size);
  if (ok && renameat(folder, tmp, folder, name) != 0) {
    ok = durable_unsupported(FS_RENAME, errno) && (unlinkat(folder, name, 0) == 0 || errno == ENOENT) &&
         write_new(folder, name, bytes, size);
  }
  const int reason = errno;
  unlinkat(folder, tmp, 0);
  free(tmp);
  errno = reason;
  return ok;
}

static const char temporary[] = ".tmp";

// Beside its target: rename is atomic within a file system.
static char *temporary_of(const char *target, const char *ending) { return xasprintf("%s%s", target, ending); }

// A stream, a device below /dev and, for results, a pipe that somebody reads. -1, with errno, for what else is there.
static int open_special(const char *path, mode_t type, bool results) {
  char *real = realpath(path, NULL);
  const bool is_device = S_ISCHR(type) && real && !strncmp(real, "/dev/", 5);
  const bool may = path_is_stream(path) || is_device || (results && S_ISFIFO(type));
  free(real);
  errno = S_ISDIR(type) ? EISDIR : EINVAL;
  if (!may || S_ISDIR(type)) return -1;
  int file = -1;
  for (int tries = 100; tries-- && (file = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) < 0;) {
    if (errno != ENXIO) break;
    usleep(10000); // its reader was perhaps started with us
  }
  struct stat st;
  if (file >= 0 && (fstat(file, &st) != 0 || S_ISREG(st.st_mode))) { // put there meanwhile
    close(file);
    errno = EINVAL;
    return -1;
  }
  if (file >= 0) fcntl(file, F_SETFL, 0);
  return file;
}

static const char *why_not(const char *path, int reason) {
  if (path_is_others_link(path)) return "it is another user's symbolic link; remove it";
  const char *what = path_irregular(path);
  const bool is_pipe = what && !strcmp(what, "a pipe");
  switch (reason) {
  case EWOULDBLOCK: return "another program is writing it; wait until it ends, or choose another name";
  case ENXIO: return is_pipe ? "nobody reads this pipe; start its reader first" : strerror(reason);
  case EINVAL: return what ? "it is a pipe, a device or a socket; remove it, or choose another name" : strerror(reason);
  default: return strerror(reason);
  }
}

static bool begin(AtomicFile *a, const char *path, const char *ending, bool wait, Err *err) {
  struct stat st;
  char *target = path_follow(path);                                            // a link stays one
  const bool special = target && stat(path, &st) == 0 && !S_ISREG(st.st_mode); // renaming would replace a pipe
  int reason = errno;
  *a = (AtomicFile){.path = special ? xstrdup(path) : target, .found = ending != temporary};
  if (special) free(target);
  if (target && !special) a->tmp = temporary_of(target, ending);
  errno = reason;
  const int file = !target ? -1 : special ? open_special(path, st.st_mode, a->found) : file_make(a->tmp, wait);
  a->f = file >= 0 ? fdopen(file, "wb") : NULL;
  if (a->f) return true;
  reason = errno;
  if (file >= 0) close(file);
  err_set(err, "cannot write %s: %s", path, why_not(path, reason));
  free(a->tmp);
  free(a->path);
  *a = (AtomicFile){0};
  errno = reason;
  return false;
}

bool file_begin(AtomicFile *a, const char *path, Err *err) { return begin(a, path, temporary, false, err); }

bool file_begin_waiting(AtomicFile *a, const char *path, Err *err) { return begin(a, path, temporary, true, err); }

bool file_begin_as(AtomicFile *a, const char *path, const char *ending, Err *err) {
  return begin(a, path, ending, false, err);
}

bool file_link(const char *path, const char *name, Err *err) {
  char *tmp = temporary_of(name, temporary);
  unlink(tmp);
  bool ok = durable_link(path, tmp) && durable_rename(tmp, name) && durable_sync_name(name);
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

// Another user may have put another file in its place.
static bool is_still_there(const AtomicFile *a) {
  const bool stands = file_stands_at(fileno(a->f), a->tmp);
  if (!stands) errno = ENOENT;
  return stands;
}

bool file_commit(AtomicFile *a, Err *err) {
  bool ok = !ferror(a->f) && fflush(a->f) == 0 &&
            (!a->tmp || ((a->unsynced || durable_sync(fileno(a->f))) && keep_previous(a) && is_still_there(a) &&
                         durable_rename(a->tmp, a->path)));
  int reason = errno;
  const bool overwrites = !ok && a->tmp && durable_is_unsupported(FS_RENAME); // what stood there may be damaged
  if (ok && a->tmp) { // renamed while nobody else had it; what stands there from here on may be another program's
    free(a->tmp);
    a->tmp = NULL;
    ok = a->unsynced || durable_sync_name(a->path);
    reason = errno;
  }
  if (fclose(a->f) != 0 && ok) {
    ok = false;
    reason = errno;
  }
  a->f = NULL;
  if (!ok) err_set(err, "cannot write %s: %s", a->path, strerror(reason));
  durable_note(a->path);
  (a->found || overwrites ? file_keep : file_abort)(a);
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
  char *target = path_follow(path);
  if (!target) return;
  char *tmp = temporary_of(target, temporary);
  durable_rename_finish(tmp, target);
  unlink(tmp);
  free(tmp);
  free(target);
}

char *file_set_aside(const char *path) {
  struct stat st;
  for (int number = 1;; number++) {
    char *name = xasprintf("%s-%d", path, number);
    if (lstat(name, &st) != 0 && durable_rename(path, name)) return name;
    const int reason = errno;
    const bool taken = lstat(name, &st) == 0;
    free(name);
    errno = reason;
    if (!taken) return NULL;
  }
}
