// Errors: one line that says what, where and what to do, and how a program ends by one.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include "base/basics.h"

#ifdef __cplusplus
extern "C" {
#endif

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

// Makes every control character but tabs, and every byte that is not of UTF-8, a '?', in place. Returns the text.
char *text_clean(char *text);

enum { EXIT_RUN = 1, EXIT_USAGE = 2 }; // 1: failed while running; 2: unusable arguments or input

// Prints "name: message" as one line on stderr, cleaned as an Err's, and exits.
NORETURN void die(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);

// A failure that nobody can foresee where it occurs (a GPU error, memory out): die(EXIT_RUN, …), and in parentheses
// what the program is at and what it leaves, as die_context said last. fmt NULL: nothing.
NORETURN void die_unforeseen(const char *fmt, ...) PRINTF_LIKE(1, 2);
void die_context(const char *fmt, ...) PRINTF_LIKE(1, 2);
void die_about(char *text, size_t room); // what die_context said last, for any thread

// What die and die_unforeseen do first when a program fails while running, once: to end concurrent work, which the
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

// In place of ending the program, this thread calls `caught` with the line, from which it does not return: for
// base/contained.h. NULL: the program ends.
typedef void DieCaught(const char *line);
void die_catch(DieCaught *caught);

#ifdef __cplusplus
}
#endif
