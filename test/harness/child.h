// What ends a program, tested in a process of its own.
#pragma once

// Runs `run` in a child, whose stderr is kept: `said` is valid until the next call. Returns the exit status (0 where it
// returns), or minus the signal that ended it.
int run_in_child(void (*run)(void *context), void *context, const char **said);
