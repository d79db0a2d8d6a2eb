// Runs the programs as a user would.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <sys/types.h>

// Runs a shell command in the current folder; its output, both streams, is kept. Returns the exit status, -1 if it died
// of a signal. The text is valid until the next call.
int command(const char **output, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// Starts a line of the shell in the background. Signals end it as they end what a person starts, whatever this program
// was started to ignore: a hangup under nohup, an interrupt in a script's background.
pid_t command_start(const char *line);
// A mistake of a user's is answered with one line that contains `says`, and exit status 2. The command line is
// `program` and what `fmt` makes of the arguments.
void expect_mistake_of(const char *program, const char *says, const char *fmt, va_list args);
// Path of a tool in this build ("shapes"): $B, or build. Valid until the fourth call from here.
const char *tool(const char *name);
bool same_file(const char *a, const char *b); // both are there and hold the same bytes
const char *shapes_set(void);                 // folder of a small data set of shapes, made once
const char *in_tmp(const char *file);         // its path below test_tmp(); valid until the fourth call from here
// A folder that is made once and that several tests use: folder_fetch puts a copy of it into this test's folder, or
// returns false where no test has kept it; the test then makes it and calls folder_keep, which keeps a copy.
bool folder_fetch(const char *name);
void folder_keep(const char *name);
// ./train on that set; `env` stands before it, `more` are further options, `out` a folder under test_tmp(). Returns the
// exit status.
int train_shapes(const char *env, const char *out, const char *more);
