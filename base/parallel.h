// Loops over threads of their own, which have ended when the loop returns: for what a program does before it forks, and
// for what the library does on a thread of its caller's. A fork takes one thread along; those that OpenMP keeps for its
// next loop would be missing, and waited for. A caller would have them for good.
#pragma once

// How many cores this process may use: its affinity, which containers, batch systems and comm/cores.h narrow. At least
// one.
int parallel_cores(void);
// How many threads a loop of n turns is worth: one a core, and no more than turns. At least 1.
int parallel_threads(int n);
// Calls body(context, i, thread) once for every i in 0 … n - 1, in any order, on so many threads, this one included;
// `thread` counts them from 0. Where the system gives fewer threads, or no memory, these do all: a library's caller is
// not ended by it. Signals stay with this thread and the program's others. What the body writes for one i must not
// depend on another.
void parallel_for(int n, int threads, void (*body)(void *context, int i, int thread), void *context);
// How many of so many threads the system lets stand at once, this one included: it starts them, and they end. For
// OpenMP, which ends the program where it is refused one.
int parallel_startable(int threads);
