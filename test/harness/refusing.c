// To be loaded into a program (LD_PRELOAD): a file system that refuses calls. REFUSE=link:524,sync_folder:22 makes hard
// links fail with errno 524 and fsync of a folder with 22; of link, sync, sync_folder, rename, lock, map, truncate. All
// of the program's files are on it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuses(const char *call) {
  const char *list = getenv("REFUSE");
  const size_t n = strlen(call);
  for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (!strncmp(at, call, n) && at[n] == ':') {
      errno = atoi(at + n + 1);
      return 1;
    }
  return 0;
}

#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

// Under names of their own here: tests replace some of the C library's themselves.
#define AS(name) __asm__(#name)
int refusing_link(const char *a, const char *b) AS(link);
int refusing_linkat(int d, const char *a, int e, const char *b, int flags) AS(linkat);
int refusing_fsync(int fd) AS(fsync);
int refusing_rename(const char *a, const char *b) AS(rename);
int refusing_renameat(int d, const char *a, int e, const char *b) AS(renameat);
int refusing_flock(int fd, int what) AS(flock);
int refusing_ftruncate(int fd, off_t size) AS(ftruncate);
void *refusing_mmap(void *at, size_t n, int protection, int flags, int fd, off_t from) AS(mmap);

int refusing_link(const char *a, const char *b) { return refuses("link") ? -1 : NEXT(link)(a, b); }
int refusing_linkat(int d, const char *a, int e, const char *b, int flags) {
  return refuses("link") ? -1 : NEXT(linkat)(d, a, e, b, flags);
}
int refusing_fsync(int fd) {
  struct stat st;
  const int is_folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
  return refuses(is_folder ? "sync_folder" : "sync") ? -1 : NEXT(fsync)(fd);
}
int refusing_rename(const char *a, const char *b) { return refuses("rename") ? -1 : NEXT(rename)(a, b); }
int refusing_renameat(int d, const char *a, int e, const char *b) {
  return refuses("rename") ? -1 : NEXT(renameat)(d, a, e, b);
}
int refusing_flock(int fd, int what) { return refuses("lock") ? -1 : NEXT(flock)(fd, what); }
int refusing_ftruncate(int fd, off_t size) { return refuses("truncate") ? -1 : NEXT(ftruncate)(fd, size); }
void *refusing_mmap(void *at, size_t n, int protection, int flags, int fd, off_t from) {
  return fd >= 0 && refuses("map") ? MAP_FAILED : NEXT(mmap)(at, n, protection, flags, fd, from);
}
