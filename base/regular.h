// Regular files, told from what else may stand at a path: a pipe or a device may hold a program for ever, and another
// user's symbolic link may lead to a file that he may not write himself.
#pragma once
#include <stdio.h>
#include <sys/stat.h>
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// "a pipe", "a device", "a socket" or "a folder", whichever the path leads to; NULL: a regular file, or nothing.
const char *path_irregular(const char *path);
// Whether it names a file that this program was started with, as /dev/stdin, /dev/stdout and /dev/fd/63 do, or
// /dev/null.
bool path_is_stream(const char *path);
// Whether it is a symbolic link that neither this user nor root has made.
bool path_is_others_link(const char *path);

// Whether users other than this one and those of its own group may write what `st` is of.
bool others_write(const struct stat *st);

// open(2), close-on-exec, of a regular file; anything else is refused at once. -1 with errno, too.
int regular_open(const char *path, int flags, Err *err);
FILE *regular_read(const char *path, Err *err);
// To read what a user names: a stream (path_is_stream), too.
int input_open(const char *path, Err *err);

#ifdef __cplusplus
}
#endif
