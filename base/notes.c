#include "base/notes.h"
#include <stdarg.h>
#include <stdlib.h>
#include "base/text.h"

void notes_add(Notes *notes, const char *fmt, ...) {
  char *text;
  size_t size;
  FILE *f = text_open(&text, &size);
  va_list args;
  va_start(args, fmt);
  vfprintf(f, fmt, args);
  va_end(args);
  text_close(f);
  CHECK(notes->n < MOST_NOTES);
  notes->line[notes->n++] = text;
}

void notes_free(Notes *notes) {
  for (int i = 0; i < notes->n; i++) free(notes->line[i]);
  *notes = (Notes){0};
}
