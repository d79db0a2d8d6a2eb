// Files as memory.
#pragma once
#include <stddef.h>

// The first `size` bytes of a regular file, for reading; where the file system cannot map files they are read. NULL
// with the reason in errno. `path` is for messages.
void *mapped_open(int file, size_t size, const char *path);
void mapped_close(void *bytes, size_t size);

// For programs: when another program cuts a mapped file short and this one reads the lost part, it ends with a line
// that names the file, in place of SIGBUS.
void mapped_guard(void);
