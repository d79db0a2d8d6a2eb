// What ends a program, tested in a process of its own; and what is reported on purpose, out of sight.
#pragma once

// Hangup and interrupt end this process, whatever it was started to ignore: under nohup, in a script's background.
void signals_end_this(void);
// Runs `run` in a child that signals end, whose stderr is kept: `said` is valid until the next call. Returns the exit
// status (0 where it returns), or minus the signal that ended it.
int run_in_child(void (*run)(void *context), void *context, const char **said);
// Sends stderr to a file for as long as something is reported on purpose; quiet_end takes what quiet_begin returned.
int quiet_begin(const char *path);
void quiet_end(int kept);
