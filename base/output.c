#include "base/output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"

// Written by one call, so that lines of several threads stay lines.
static void print(FILE *f, const char *fmt, va_list args, const char *end) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, fmt, again);
  va_end(again);
  CHECK(length >= 0);
  char *text = xmalloc((size_t)length + strlen(end) + 1);
  vsnprintf(text, (size_t)length + 1, fmt, args);
  fputs(strcat(text_clean(text), end), f);
  free(text);
}

void text_vprint(FILE *f, const char *fmt, va_list args) { print(f, fmt, args, ""); }

void text_print(FILE *f, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  print(f, fmt, args, "");
  va_end(args);
}

void line_print(FILE *f, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  print(f, fmt, args, "\n");
  va_end(args);
}

void stdout_close(void) {
  bool failed = ferror(stdout); // of an earlier write, whose reason is gone
  errno = 0;
  if (fclose(stdout) == 0 && !failed) return;
  die(EXIT_RUN, "could not write all of standard output%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
}
