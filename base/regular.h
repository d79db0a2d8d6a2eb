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
// Where the symbolic links at the end of a path lead, malloc'ed; only links that this user or root has made are
// followed. NULL, with errno: EPERM at another user's link, ELOOP.
char *path_follow(const char *path);
bool path_is_others_link(const char *path); // or leads to one: path_follow fails with EPERM

// Whether users other than this one and those of its own group may write what `st` is of.
bool others_write(const struct stat *st);

// open(2), close-on-exec, of a regular file in a folder of ours; anything else, and another user's link, is refused at
// once, even if it is put there meanwhile. -1 with errno, too.
int regular_open(const char *path, int flags, Err *err);
FILE *regular_read(const char *path, Err *err);
// To read what a user names or a data set holds: any link is followed, and a stream (path_is_stream) is read, too.
int input_open(const char *path, Err *err);

#ifdef __cplusplus
}
#endif
