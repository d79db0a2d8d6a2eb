// What a file is that a reader was given in place of its own format: an LFS pointer, a web page, an archive.
#pragma once
#include <stddef.h>

// Looks at a file's first bytes. Returns what it is and what to do, as "an HTML page; download the file itself", for
// the end of a message; NULL where it is none of those known. To be asked once a reader has failed.
const char *foreign_file(const void *bytes, size_t size);
