#include "base/line_read.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include "base/alloc.h"

static bool grow(char **line, size_t *cap) {
  const size_t more = MAX(2 * *cap, 128);
  char *longer = realloc(*line, more);
  if (!longer) return false;
  *line = longer;
  *cap = more;
  return true;
}

ssize_t line_read(char **line, size_t *cap, FILE *f) {
  enum { MOST = 64 << 20 };
  size_t n = 0;
  int c = 0;
  flockfile(f);
  while (c != '\n' && n < MOST && (c = getc_unlocked(f)) != EOF) {
    if (n + 1 >= *cap && !grow(line, cap)) break;
    (*line)[n++] = (char)c;
  }
  funlockfile(f);
  const bool is_whole = c == '\n' || c == EOF;
  if (n == MOST && !is_whole) errno = EFBIG;
  if (!is_whole || n == 0 || ferror(f)) return -1;
  (*line)[n] = '\0';
  return (ssize_t)n;
}
