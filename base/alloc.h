// Memory that cannot fail: allocation that ends the program, by one line, when there is none.
#pragma once
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// "out of memory: ", how much was asked for, what for and which options shrink it, as in "the activations", "--batch or
// --size"; no options: NULL. Returns false.
bool err_memory(Err *err, size_t bytes, const char *what, const char *options);
// With which a program ends: 1 where err_memory wrote the message, or a part of it, else 2.
int err_exit(const Err *err);

// What this thread takes memory for from here on, and which options shrink it, for the message when memory is out.
// Neither is copied; NULL, NULL: unknown.
void memory_for(const char *what, const char *options);

// Allocation that ends the program when memory is out, by one line with the size, what it was for and where in the
// sources it was asked for. Zero sizes are fine.
#define xmalloc(bytes) xmalloc_at(bytes, HERE)
#define xcalloc(count, size) xcalloc_at(count, size, HERE)
#define xrealloc(p, bytes) xrealloc_at(p, bytes, HERE)
#define xstrdup(s) xstrdup_at(s, HERE)
#define xasprintf(...) xasprintf_at(HERE, __VA_ARGS__) // caller frees
#define HERE __FILE__ ":" AS_TEXT(__LINE__)
#define AS_TEXT(x) AS_TEXT_ITSELF(x) // of what x stands for
#define AS_TEXT_ITSELF(x) #x
void *xmalloc_at(size_t bytes, const char *where);
void *xcalloc_at(size_t count, size_t size, const char *where);
void *xrealloc_at(void *p, size_t bytes, const char *where);
char *xstrdup_at(const char *s, const char *where);
char *xasprintf_at(const char *where, const char *fmt, ...) PRINTF_LIKE(2, 3);
NORETURN void die_of_memory(size_t bytes, const char *where);

// Whether that much could be had now, for what a program would rather leave out than end for.
bool memory_suffices(size_t bytes);

// Grows *items (capacity *cap elements of `size` bytes) so that `need` elements fit; doubles.
#define array_reserve(items, cap, need, size) array_reserve_at(items, cap, need, size, HERE)
void array_reserve_at(void **items, size_t *cap, size_t need, size_t size, const char *where);

#ifdef __cplusplus
}
#endif
