// A library that is loaded before a program (LD_PRELOAD) and counts what it allocates, or refuses some of it. glibc lets
// a library define these functions; under other names it keeps its own. Its own calls come here too.
//
//   FAIL_AT=N      the N-th allocation fails, from 1 on
//   FAIL_FROM=N    and so do all after it
//   COUNT_TO=FILE  at its end the program writes there how many there were
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_llong count;
static long long fail_at = LLONG_MAX, fail_from = LLONG_MAX;

static void read_number(const char *name, long long *number) {
  const char *text = getenv(name);
  if (text) *number = atoll(text);
}

__attribute__((constructor)) static void begin(void) {
  read_number("FAIL_AT", &fail_at);
  read_number("FAIL_FROM", &fail_from);
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("COUNT_TO");
  int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
  if (file < 0) return;
  char text[32];
  int length = snprintf(text, sizeof text, "%lld\n", atomic_load(&count));
  if (write(file, text, (size_t)length) != length) _exit(1);
  close(file);
}

static bool refused(void) {
  long long n = atomic_fetch_add(&count, 1) + 1;
  if (n != fail_at && n < fail_from) return false;
  errno = ENOMEM;
  return true;
}

void *malloc(size_t bytes) { return refused() ? NULL : __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return refused() ? NULL : __libc_calloc(n, bytes); }
void *realloc(void *p, size_t bytes) { return refused() ? NULL : __libc_realloc(p, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return refused() ? NULL : __libc_memalign(alignment, bytes); }
int posix_memalign(void **p, size_t alignment, size_t bytes) {
  if (refused()) return ENOMEM;
  *p = __libc_memalign(alignment, bytes);
  return *p ? 0 : ENOMEM;
}
