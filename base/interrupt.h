// Signals that ask a program to end: they are noted, so that it can save its work first.
#pragma once
#include <stdatomic.h>
#include <stdbool.h>

// From here on a first SIGINT, SIGTERM or SIGHUP is noted, and one more of them ends the program at once, unless it
// comes within 0.2 s, as the second that timeout(1) sends. A signal that the program was started to ignore stays
// ignored, as SIGHUP is under nohup.
void interrupt_catch(void);
// From here on the first of them also ends a call that waits, such as writing to a full pipe or opening a FIFO that
// nobody reads, which fails with EINTR. What standard output and standard error do not take then is dropped.
// Called before interrupt_catch, which otherwise only drops.
void interrupt_ends_waits(void);
// From here on what cannot be written is an error of writing, not the program's end: SIGXFSZ (ulimit -f), and SIGPIPE,
// which is noted, however often it comes: nobody reads what the program says any more.
void interrupt_by_writing(void);
// From here on what another process puts there, in memory that both have, counts like a signal once it is not 0.
void interrupt_also(const atomic_int *request);
bool interrupted(void); // one was noted
// From here on, when `seconds` have passed since one was noted, a thread calls `end`, which ends the program, whatever
// it is at. NULL: no more; waits where `end` is under way. A later call replaces an earlier one.
typedef void InterruptEnd(void *context);
void interrupt_limit(double seconds, InterruptEnd *end, void *context);
double interrupted_for(void); // seconds, in `end`
// Ends the program with exit status `code`, for `end`: other threads may hold the locks of stdio. `line` is printed on
// standard error, if that does not wait; of several processes (die_tells) one prints its line, and all end. "": the
// others go on, and nothing is printed.
_Noreturn void interrupt_leave(int code, const char *line);
