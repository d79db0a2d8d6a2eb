// A thread that works in a process of somebody else's, as a library does: what would end the program ends its work.
#pragma once
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// Runs work(context) in this thread as a guest's. True: it came to its end. False: it came to where a program would end
// (die, die_unforeseen, memory out, a failed CHECK), and err has the line that the program would have printed; what the
// work held is lost, and what it was changing may be half changed. Other threads that the work starts are no guests.
// Calls do not nest.
bool contained_call(void (*work)(void *context), void *context, Err *err);

// Whether this thread is a guest's.
bool is_contained(void);

// One line on stderr, or nothing where this thread is a guest's: of what goes on otherwise than was asked.
void warn(const char *fmt, ...) PRINTF_LIKE(1, 2);

#ifdef __cplusplus
}
#endif
