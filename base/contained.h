// Work that a library does in another program's process: an error that would end a program ends the work alone.
#pragma once
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// Runs work(context) in this thread. True: it returned. False: it met an error that would end a program (die,
// die_unforeseen, memory out, a failed CHECK), and err has the line that the program would have printed; what the work
// held is lost, and what it was changing may be half changed. Threads that the work starts are not contained. Calls do
// not nest.
bool contained_call(void (*work)(void *context), void *context, Err *err);

// Whether this thread is within contained_call.
bool is_contained(void);

// A warning as one line on stderr; within contained_call it goes to what this thread said last, NULL: nowhere.
typedef void WarnTold(void *context, const char *line);
void warn_tells(WarnTold *told, void *context);
void warn(const char *fmt, ...) PRINTF_LIKE(1, 2);

#ifdef __cplusplus
}
#endif
