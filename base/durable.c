#include "base/durable.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/output.h"
#include "base/regular.h"

// ---- what the file system does not support --------------------------------------------------------------------------

// Of this process: why a call was refused first, 0: it was not; and whether durable_note has said so.
static atomic_int refusal[FS_CALLS];
static atomic_bool said[FS_CALLS];

static bool is_fault(int reason) {
  return reason == ENOSPC || reason == EDQUOT || reason == EIO || reason == EROFS || reason == ENOENT;
}

static bool is_refusal(int reason) {
  enum { KERNEL_ENOTSUPP = 524 }; // some drivers let it out; no header of the C library has it
  static const int reasons[] = {EPERM,           EACCES, EINVAL, ENOSYS, EOPNOTSUPP,
                                KERNEL_ENOTSUPP, EXDEV,  EMLINK, ENOTTY, ENODEV};
  for (int i = 0; i < COUNT(reasons); i++)
    if (reason == reasons[i]) return true;
  return false;
}

static bool is_unsupported(FileSystemCall call, int reason) {
  switch (call) {
  case FS_LINK: return !is_fault(reason);                                           // a copy fails for what is else
  case FS_RENAME: return is_refusal(reason) || reason == EBUSY || reason == EEXIST; // of a mount point; of a file there
  case FS_LOCK: return !is_fault(reason) && reason != EWOULDBLOCK && reason != EINTR;
  case FS_MAP: return reason != ENOMEM;
  default: return is_refusal(reason);
  }
}

bool durable_unsupported(FileSystemCall call, int reason) {
  if (!is_unsupported(call, reason)) return false;
  int none = 0;
  atomic_compare_exchange_strong(&refusal[call], &none, reason);
  return true;
}

bool durable_is_unsupported(FileSystemCall call) { return atomic_load(&refusal[call]); }

void durable_note(const char *where) {
  static const char *const name[FS_CALLS] = {
      [FS_LINK] = "hard links", [FS_SYNC] = "fsync", [FS_SYNC_FOLDER] = "fsync of folders", [FS_RENAME] = "rename",
      [FS_LOCK] = "locks",      [FS_MAP] = "mmap",   [FS_TRUNCATE] = "ftruncate",
  };
  char *list = xstrdup("");
  bool is_new[FS_CALLS] = {0};
  for (int i = 0; i < FS_CALLS; i++) {
    const int reason = atomic_load(&refusal[i]);
    if (!reason || atomic_exchange(&said[i], true)) continue;
    is_new[i] = true;
    char *longer = xasprintf("%s%s%s (%s)", list, *list ? ", " : "", name[i], strerror(reason));
    free(list);
    list = longer;
  }
  const bool may_lose = is_new[FS_SYNC] || is_new[FS_SYNC_FOLDER] || is_new[FS_RENAME];
  if (*list)
    line_print(stderr, "note: %s: its file system does not support %s%s%s%s", where, list,
               is_new[FS_LINK] ? "; files are copied instead" : "",
               may_lose ? "; a power failure may lose the latest data" : "",
               is_new[FS_LOCK] ? "; do not start another run in this folder" : "");
  free(list);
}

// ---- bytes and names ------------------------------------------------------------------------------------------------

bool durable_sync(int file) { return fsync(file) == 0 || durable_unsupported(FS_SYNC, errno); }

bool durable_sync_folder(int folder) { return fsync(folder) == 0 || durable_unsupported(FS_SYNC_FOLDER, errno); }

bool durable_sync_name(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? xasprintf("%.*s", (int)MAX(slash - path, 1), path) : xstrdup(".");
  const int fd = open(folder, O_RDONLY | O_CLOEXEC);
  free(folder);
  const bool ok = fd >= 0 ? durable_sync_folder(fd) : durable_unsupported(FS_SYNC_FOLDER, errno);
  const int reason = errno;
  if (fd >= 0) close(fd);
  errno = reason;
  return ok;
}

// The copy is on disk. `how`: O_TRUNC, over what stands there, or O_EXCL, as a new file.
static bool copy_bytes(const char *path, const char *name, int how) {
  static const size_t CHUNK = 1 << 20;
  char *bytes = malloc(CHUNK);
  FILE *from = regular_read(path, NULL);
  const int file = from ? open(name, O_WRONLY | O_CREAT | how | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666) : -1;
  FILE *to = file >= 0 ? fdopen(file, "wb") : NULL;
  if (file >= 0 && !to) close(file);
  bool ok = bytes && from && to;
  for (size_t n; ok && (n = fread(bytes, 1, CHUNK, from)) > 0;) ok = fwrite(bytes, 1, n, to) == n;
  ok = ok && !ferror(from) && fflush(to) == 0 && durable_sync(fileno(to));
  const int reason = errno;
  if (from) fclose(from);
  if (to) fclose(to);
  free(bytes);
  errno = reason;
  return ok;
}

bool durable_rename(const char *from, const char *to) {
  if (rename(from, to) == 0) return true;
  struct stat st;
  if (!durable_unsupported(FS_RENAME, errno) || (stat(to, &st) == 0 && !S_ISREG(st.st_mode))) return false;
  if (!copy_bytes(from, to, O_TRUNC)) return false;
  unlink(from);
  return true;
}

// Whether the file's bytes are the beginning of those of another one, which is longer.
static bool is_beginning(const char *path, const char *of) {
  FILE *a = regular_read(path, NULL), *b = regular_read(of, NULL);
  int x = EOF, y = EOF;
  while (a && b) {
    x = getc(a);
    y = getc(b);
    if (x == EOF || x != y) break;
  }
  const bool is_so = a && b && !ferror(a) && x == EOF && y != EOF;
  if (a) fclose(a);
  if (b) fclose(b);
  return is_so;
}

bool durable_rename_finish(const char *from, const char *to) {
  return durable_is_unsupported(FS_RENAME) && is_beginning(to, from) && copy_bytes(from, to, O_TRUNC);
}

bool durable_link(const char *path, const char *name) {
  // A symbolic link is no file of its own: its target is what gets the name, and keeps it.
  char *target = path_follow(path);
  if (!target) return false;
  const bool ok = linkat(AT_FDCWD, target, AT_FDCWD, name, 0) == 0 ||
                  (durable_unsupported(FS_LINK, errno) && copy_bytes(target, name, O_EXCL));
  const int reason = errno;
  free(target);
  errno = reason;
  return ok;
}

// ---- trying ---------------------------------------------------------------------------------------------------------

static bool try_file(const char *path) {
  const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) return false;
  bool ok = write(file, "12", 2) == 2;
  if (ok && ftruncate(file, 1) != 0) ok = durable_unsupported(FS_TRUNCATE, errno);
  ok = ok && durable_sync(file);
  void *map = ok ? mmap(NULL, 1, PROT_READ, MAP_PRIVATE, file, 0) : NULL;
  if (map == MAP_FAILED) durable_unsupported(FS_MAP, errno);
  const int reason = errno;
  if (map && map != MAP_FAILED) munmap(map, 1);
  close(file);
  errno = reason;
  return ok;
}

bool durable_try(const char *folder) {
  char *path = xasprintf("%s/lock.try", folder), *linked = xasprintf("%s-1", path), *renamed = xasprintf("%s-2", path);
  char *all[] = {path, linked, renamed};
  for (int i = 0; i < COUNT(all); i++) unlink(all[i]); // of a killed program
  const bool ok =
      try_file(path) && durable_link(path, linked) && durable_rename(linked, renamed) && durable_sync_name(renamed);
  const int reason = errno;
  for (int i = 0; i < COUNT(all); i++) {
    unlink(all[i]);
    free(all[i]);
  }
  errno = reason;
  return ok || reason == ENOSPC || reason == EDQUOT;
}
