#include "base/alloc.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "out of memory: ";

int err_exit(const Err *err) { return strstr(err->msg, no_memory) ? EXIT_RUN : EXIT_USAGE; }

static _Thread_local const char *purpose, *shrinking;

void memory_for(const char *what, const char *options) {
  purpose = what;
  shrinking = options;
}

// "out of memory: cannot allocate 12.0 MB for the annotations (data/coco/coco.c:12); reduce --limit"
static void memory_message(char *text, size_t room, size_t bytes, const char *what, const char *where,
                           const char *options) {
  char size[32];
  bool large = bytes >= 100000;
  snprintf(size, sizeof size, large ? "%.1f MB" : "%.0f bytes", (double)bytes / (large ? 1e6 : 1));
  snprintf(text, room, "%scannot allocate %s%s%s%s%s%s%s%s", no_memory, size, what ? " for " : "", what ? what : "",
           where ? " (" : "", where ? where : "", where ? ")" : "", options ? "; reduce " : "", options ? options : "");
}

bool err_memory(Err *err, size_t bytes, const char *what, const char *options) {
  char text[512];
  memory_message(text, sizeof text, bytes, what, NULL, options);
  return err_set(err, "%s", text);
}

// Volatile, or a compiler leaves out memory that nobody uses, and says yes.
bool memory_suffices(size_t bytes) {
  void *volatile probe = malloc(bytes);
  const bool there = probe;
  free(probe);
  return there;
}

void die_of_memory(size_t bytes, const char *where) {
  char text[512];
  memory_message(text, sizeof text, bytes, purpose, where, shrinking);
  die_unforeseen("%s", text);
}

// malloc(0) may return NULL, which would read as a failure; one byte never does.
void *xmalloc_at(size_t bytes, const char *where) { return xrealloc_at(NULL, bytes, where); }

void *xcalloc_at(size_t count, size_t size, const char *where) {
  void *p = calloc(MAX(count, 1), MAX(size, 1));
  if (!p) die_of_memory(size && count > SIZE_MAX / size ? SIZE_MAX : count * size, where);
  return p;
}

void *xrealloc_at(void *p, size_t bytes, const char *where) {
  p = realloc(p, MAX(bytes, 1));
  if (!p) die_of_memory(bytes, where);
  return p;
}

char *xstrdup_at(const char *s, const char *where) {
  size_t bytes = strlen(s) + 1;
  return memcpy(xmalloc_at(bytes, where), s, bytes);
}

char *xasprintf_at(const char *where, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  CHECK(length >= 0);
  char *s = xmalloc_at((size_t)length + 1, where);
  vsnprintf(s, (size_t)length + 1, fmt, again);
  va_end(again);
  return s;
}

void array_reserve_at(void **items, size_t *cap, size_t need, size_t size, const char *where) {
  if (need <= *cap) return;
  size_t grown = MAX(need, MAX(2 * *cap, 16));
  if (grown > SIZE_MAX / size) die_of_memory(SIZE_MAX, where);
  *items = xrealloc_at(*items, grown * size, where);
  *cap = grown;
}
