// The files that a program reads, by what they are rather than by name, so that it writes over none of them.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"

typedef struct FileSet { // zero-initialise
  struct FileId *ids;
  size_t n, cap;
  bool sorted;
} FileSet;

// A regular file; at a path that holds none there is nothing to lose.
void file_set_add(FileSet *s, const char *path);
// False, saying so, when writing to the path would replace a file of the set, by another name or through a link.
bool file_set_spares(FileSet *s, const char *path, Err *err);
void file_set_free(FileSet *s);
