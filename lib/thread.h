// Threads of the library's own. No signal is theirs; each begins with guard_enter, so that its floating-point
// environment and locale are the plain ones, whatever those of who starts it.
#pragma once
#include <pthread.h>
#include "base/error.h"

// Returns 0, or the system's error.
int thread_start(pthread_t *id, void *(*body)(void *context), void *context);
// Runs work(context) as contained_call does, in a thread of its own, and waits for it.
bool thread_aside(void (*work)(void *context), void *context, Err *err);
