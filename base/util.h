// Small things everyone needs: errors as one line, memory that cannot fail, time, paths.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define NORETURN __attribute__((noreturn)) // C and C++ spell the keyword differently
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

// A failure that a user may have caused: one line that says what, where and what to do, without a newline.
// Functions that can fail so return false (or NULL) and fill an Err; programs print it and exit 2.
typedef struct Err {
  char msg[4096]; // long enough for a list of names
} Err;

// Writes the message and returns false, so that `return err_set(err, ...)` reads as what it does. Control characters
// but tabs, of what it quotes (file names, contents), become '?': the message stays one line, and a terminal shows it
// as it is. err may be NULL.
bool err_set(Err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

// "out of memory: ", how much was asked for, what for and which options shrink it, as in "the activations", "--batch or
// --size"; no options: NULL. Returns false.
bool err_memory(Err *err, size_t bytes, const char *what, const char *options);
// Makes every control character but tabs a '?', in place. Returns the text.
char *text_clean(char *text);

enum { EXIT_RUN = 1, EXIT_USAGE = 2 }; // 1: failed while running; 2: unusable arguments or input
// With which a program ends: 1 where err_memory wrote the message, or a part of it, else 2.
int err_exit(const Err *err);

// Prints "name: message" as one line on stderr, cleaned as an Err's, and exits.
NORETURN void die(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);

// A failure that nobody can foresee where it occurs (a GPU error, memory out): die(EXIT_RUN, …), and in parentheses
// what the program is at and what it leaves, as die_context said last. fmt NULL: nothing.
NORETURN void die_unforeseen(const char *fmt, ...) PRINTF_LIKE(1, 2);
void die_context(const char *fmt, ...) PRINTF_LIKE(1, 2);
void die_about(char *text, size_t room); // what die_context said last, for any thread

// What die and die_unforeseen do first when a program fails while running, once: to end what goes on beside, which the
// message may tell of. For programs of one run; NULL: nothing.
void die_first(void (*settle)(void *context), void *context);

// For a process that is one of several, of which one says why all end: the line that die, die_unforeseen or
// check_failed would print goes to `tell` first, which may put in front whose line it is, and may change the code.
// True: somebody says it, this process ends without a word. May be called on several threads at a time. NULL: lines are
// printed.
typedef bool DieTell(void *context, int *code, char *line, size_t room);
void die_tells(DieTell *tell, void *context);
enum { DIE_LINE = 8192 };            // room for such a line
void die_print(const char *message); // "name: message" as one line on stderr; goes on

// CHECK guards memory and invariants and stays in optimised builds; a failure is our bug, not the user's.
NORETURN void check_failed(const char *expr, const char *file, int line);
#define CHECK(expr) ((expr) ? (void)0 : check_failed(#expr, __FILE__, __LINE__))

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

// A stream that writes into memory; once it is closed *text is whole, NUL-terminated, `size` long and the caller's to
// free. Opening and closing end the program when memory is out. It has no positions (ftell).
#define text_open(text, size) text_open_at(text, size, HERE)
#define text_close(stream) text_close_at(stream, HERE)
FILE *text_open_at(char **text, size_t *size, const char *where);
void text_close_at(FILE *stream, const char *where);

// Grows *items (capacity *cap elements of `size` bytes) so that `need` elements fit; doubles.
#define array_reserve(items, cap, need, size) array_reserve_at(items, cap, need, size, HERE)
void array_reserve_at(void **items, size_t *cap, size_t need, size_t size, const char *where);

double now_seconds(void); // monotonic

// Whole file into memory, NUL-terminated past its end; *size without the NUL. Caller frees. NULL on failure.
char *file_read(const char *path, size_t *size, Err *err);
bool path_is_dir(const char *path);
bool path_is_file(const char *path);
bool dirs_make(const char *path, Err *err); // like mkdir -p; durable

// Atomic replacement: write to the returned stream, then file_commit flushes, fsyncs, renames onto `path` and fsyncs
// the folder; file_abort removes the temporary file. Whatever stood at `path` stays whole until the rename. The
// temporary file takes one program at a time: for others, file_begin fails. A killed program leaves it behind; the next
// to write there takes its place, and file_clean removes it. What is no regular file, such as a pipe or /dev/stdout, is
// written directly. Failures leave their reason in errno, too.
typedef struct AtomicFile {
  FILE *f;
  char *path, *tmp;     // tmp: NULL when written directly
  const char *previous; // set after file_begin: the name that file_commit gives to what stood at `path`; NULL = none
  bool found;           // file_begin_as: the temporary file is for people to find
} AtomicFile;
bool file_begin(AtomicFile *a, const char *path, Err *err);
// The same with a temporary file that is called `path` and `ending` (".tmp" is file_begin's), for people to find: a
// file_commit that fails leaves it.
bool file_begin_as(AtomicFile *a, const char *path, const char *ending, Err *err);
bool file_commit(AtomicFile *a, Err *err);
void file_abort(AtomicFile *a);
void file_keep(AtomicFile *a);     // leaves the temporary file as it is
void file_clean(const char *path); // nobody may be writing there
// Gives the file at `path`, or the one that a symbolic link there leads to, a further name (a hard link, or a copy
// where that is not possible), in place of what has that name, whole at any moment and durable; file_clean(name) after
// a kill. False with the reason in errno, too.
bool file_link(const char *path, const char *name, Err *err);

int compare_int(const void *a, const void *b); // qsort

#ifdef __cplusplus
}
#endif
