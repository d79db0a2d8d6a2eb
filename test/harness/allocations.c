#include "test/harness/allocations.h"
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

// glibc lets a program define these; under other names it keeps its own. Its own calls come here too.
static atomic_llong count;
static atomic_bool refusing;

#ifdef __SANITIZE_ADDRESS__
bool allocations_counted(void) { return false; }
#else
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

void *malloc(size_t bytes) {
  atomic_fetch_add(&count, 1);
  return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes) {
  atomic_fetch_add(&count, 1);
  return __libc_calloc(n, bytes);
}
void *realloc(void *p, size_t bytes) {
  atomic_fetch_add(&count, 1);
  return __libc_realloc(p, bytes);
}
int posix_memalign(void **p, size_t alignment, size_t bytes) {
  atomic_fetch_add(&count, 1);
  *p = refusing ? NULL : __libc_memalign(alignment, bytes);
  return *p ? 0 : ENOMEM;
}
bool allocations_counted(void) { return true; }
#endif

void allocations_refuse(bool refuse) { atomic_store(&refusing, refuse); }

int64_t allocations(void) { return atomic_load(&count); }
