// What programs print: lines that a terminal shows as they are, and whether all of standard output arrived.
#pragma once
#include <stdio.h>
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// printf, but control characters of what is quoted (names of files, of categories) become '?', newlines among them.
void text_print(FILE *f, const char *fmt, ...) PRINTF_LIKE(2, 3);
void text_vprint(FILE *f, const char *fmt, va_list args) PRINTF_LIKE(2, 0);
// The same as a line of its own: the newline at the end is added.
void line_print(FILE *f, const char *fmt, ...) PRINTF_LIKE(2, 3);

// Ends standard output. A disk that is full, a pipe that nobody reads: dies with EXIT_RUN, for a program whose results
// are lost has not succeeded. The last thing that a main calls.
void stdout_close(void);

#ifdef __cplusplus
}
#endif
