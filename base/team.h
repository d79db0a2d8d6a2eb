// Team: the threads that run `#pragma omp`. Built by gcc, base/team.c takes the place of its runtime, libgomp: threads
// sleep soon after there is nothing to do, end with the thread that they work for, are never waited for after a fork,
// and where the system starts fewer, these do all. clang's pragmas call LLVM's runtime.
#pragma once
#include <stdbool.h>

#ifdef __clang__
static inline bool team_sleeps(void) { return false; }
static inline void team_leave(void) {}
#else
// Whether threads sleep soon without being told.
bool team_sleeps(void);
// For a thread that has left a parallel region by longjmp: waits until the others have done their part of it. They must
// not be waiting for this thread's.
void team_leave(void);
#endif
