// Files and folders: read whole, replaced whole or not at all, durable under their names.
#pragma once
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// Whole file into memory, NUL-terminated past its end; *size without the NUL. Caller frees. NULL on failure.
char *file_read(const char *path, size_t *size, Err *err);
char *file_read_own(const char *path, size_t *size, Err *err); // in a folder of results: by regular_open
bool path_is_dir(const char *path);
bool path_is_same(const char *a, const char *b); // both are there, and are one file or folder
bool path_is_file(const char *path);
int64_t file_length(const char *path);      // -1: there is no such file
bool dirs_make(const char *path, Err *err); // like mkdir -p; durable
// opendir of a folder of results, never through another user's link.
DIR *folder_open_own(const char *path, Err *err);
// Replaces a file of such a folder, or a link in its place, whatever is put in the folder's place meanwhile. Not
// durable: for what can be made again. False with the reason in errno.
bool folder_write_file(DIR *dir, const char *name, const void *bytes, size_t size);

// Atomic replacement: write to the returned stream, then file_commit flushes, fsyncs, renames onto `path` and fsyncs
// the folder; file_abort removes the temporary file. Whatever stood at `path` stays whole until the rename. The
// temporary file takes one program at a time: for others, file_begin fails. A killed program leaves it behind; the next
// to write there takes its place, and file_clean removes it. What is no regular file, such as a pipe or /dev/stdout, is
// written directly. Failures leave their reason in errno, too.
typedef struct AtomicFile {
  FILE *f;
  char *path, *tmp;     // tmp: NULL when written directly
  const char *previous; // set after file_begin: the name that file_commit gives to what stood at `path`; NULL = none
  bool found;           // file_begin_as: the temporary file is for people to find
  bool unsynced; // set after file_begin: whole after a kill, but not after a power cut; for what can be had again
} AtomicFile;
bool file_begin(AtomicFile *a, const char *path, Err *err);
bool file_begin_waiting(AtomicFile *a, const char *path, Err *err); // waits for another program that writes it
// The same with a temporary file that is called `path` and `ending` (".tmp" is file_begin's), for people to find: a
// file_commit that fails leaves it.
bool file_begin_as(AtomicFile *a, const char *path, const char *ending, Err *err);
bool file_commit(AtomicFile *a, Err *err);
void file_abort(AtomicFile *a);
void file_keep(AtomicFile *a);     // leaves the temporary file as it is
void file_clean(const char *path); // nobody may be writing there
// Gives the file at `path`, or the one that a symbolic link there leads to, a further name (a hard link, or a copy
// where that is not possible), in place of what has that name, whole at any moment and durable; file_clean(name) after
// a kill. False with the reason in errno, too.
bool file_link(const char *path, const char *name, Err *err);
// Renames a file that nobody is writing to the first of PATH-1, PATH-2, … that is free, and returns that name,
// malloc'ed. NULL, with the reason in errno, when it cannot be renamed.
char *file_set_aside(const char *path);

#ifdef __cplusplus
}
#endif
