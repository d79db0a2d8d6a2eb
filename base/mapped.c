#define _GNU_SOURCE // SA_SIGINFO
#include "base/mapped.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "base/error.h"

// What is mapped, for messages; what finds no room here has none.
static struct {
  const char *bytes;
  size_t size;
  char *path;
} maps[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void remember(const void *bytes, size_t size, const char *path) {
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < COUNT(maps) && maps[i].path) i++;
  if (i < COUNT(maps)) {
    maps[i].bytes = bytes;
    maps[i].size = size;
    maps[i].path = strdup(path);
  }
  pthread_mutex_unlock(&lock);
}

static void forget(const void *bytes) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < COUNT(maps); i++)
    if (maps[i].path && maps[i].bytes == bytes) {
      free(maps[i].path);
      maps[i].path = NULL;
    }
  pthread_mutex_unlock(&lock);
}

static bool read_all(int file, char *to, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = pread(file, to + done, size - done, (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) errno = EIO; // cut short meanwhile
    if (n <= 0) return false;
    done += (size_t)n;
  }
  return true;
}

void *mapped_open(int file, size_t size, const char *path) {
  void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (bytes != MAP_FAILED) {
    remember(bytes, size, path);
    return bytes;
  }
  if (!durable_unsupported(FS_MAP, errno)) return NULL;
  bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return NULL;
  if (read_all(file, bytes, size)) return bytes;
  const int reason = errno;
  munmap(bytes, size);
  errno = reason;
  return NULL;
}

void mapped_close(void *bytes, size_t size) {
  forget(bytes);
  munmap(bytes, size);
}

// On the thread that read: neither a lock of this file nor the allocator is held while mapped bytes are read.
static void end(int signal, siginfo_t *info, void *context) {
  (void)context;
  static atomic_flag ending = ATOMIC_FLAG_INIT;
  while (atomic_flag_test_and_set(&ending)) pause(); // another thread ends the program
  const char *at = info->si_addr;
  for (int i = 0; i < COUNT(maps); i++)
    if (maps[i].path && at >= maps[i].bytes && at < maps[i].bytes + maps[i].size)
      die_unforeseen("%s was cut short by another program while it was in use", maps[i].path);
  struct sigaction none = {.sa_handler = SIG_DFL};
  sigaction(signal, &none, NULL); // the instruction is run again, and ends the program
}

void mapped_guard(void) {
  struct sigaction act = {.sa_sigaction = end, .sa_flags = SA_SIGINFO};
  sigaction(SIGBUS, &act, NULL);
}
