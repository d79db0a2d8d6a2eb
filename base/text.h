// Streams that write into memory.
#pragma once
#include <stdio.h>
#include "base/alloc.h"

#ifdef __cplusplus
extern "C" {
#endif

// A stream that writes into memory; once it is closed *text is whole, NUL-terminated, `size` long and the caller's to
// free. Opening and closing end the program when memory is out. It has no positions (ftell).
#define text_open(text, size) text_open_at(text, size, HERE)
#define text_close(stream) text_close_at(stream, HERE)
FILE *text_open_at(char **text, size_t *size, const char *where);
void text_close_at(FILE *stream, const char *where);

#ifdef __cplusplus
}
#endif
