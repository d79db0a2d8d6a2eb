// A file in memory, for readers that take a path.
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/error.h"

// The path of a file that holds the bytes until the next call.
static inline const char *memory_file(const void *bytes, size_t size) {
  static char path[64];
  static int file = -1;
  if (file < 0) {
    char name[64];
    snprintf(name, sizeof name, "/maskrcnn-fuzz-%ld", (long)getpid());
    file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && !shm_unlink(name));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  }
  CHECK(pwrite(file, bytes, size, 0) == (ssize_t)size && !ftruncate(file, (off_t)size));
  return path;
}
