#include "test/harness/allocations.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_llong count;
static atomic_bool refusing;
static atomic_llong fail_at = INT64_MAX;

int64_t allocations(void) { return atomic_load(&count); }
void allocations_fail(int64_t nth) { atomic_store(&fail_at, allocations() + nth); }
void allocations_refuse(bool refuse) { atomic_store(&refusing, refuse); }

#ifndef __has_feature // gcc 13 and older
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||               \
    __has_feature(thread_sanitizer)
bool allocations_counted(void) { return false; }
#else
bool allocations_counted(void) { return true; }

// ---- a program's environment ----------------------------------------------------------------------------------------

static atomic_llong fail_from = INT64_MAX;

static void read_number(const char *name, atomic_llong *number) {
  const char *text = getenv(name);
  if (text) atomic_store(number, atoll(text));
}

__attribute__((constructor)) static void begin(void) {
  read_number("FAIL_AT", &fail_at);
  read_number("FAIL_FROM", &fail_from);
}

__attribute__((destructor)) static void end(void) {
  const char *path = getenv("COUNT_TO");
  int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
  if (file < 0) return;
  dprintf(file, "%lld\n", (long long)allocations());
  close(file);
}

// ---- in the place of the C library's --------------------------------------------------------------------------------

// glibc lets others define these; under other names it keeps its own. Its own calls come here too.
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

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
  if (refused() || atomic_load(&refusing)) return ENOMEM;
  *p = __libc_memalign(alignment, bytes);
  return *p ? 0 : ENOMEM;
}
#endif
