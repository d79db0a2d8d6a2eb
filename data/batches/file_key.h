// Recognises equal files by a number.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Equal for equal files: a digest (base/digest.h). 0: it is empty.
uint64_t file_key(const char *bytes, size_t size);
// The same of the file at `path`; 0: it cannot be read, is empty, or is not a regular file.
uint64_t file_key_of(const char *path);
