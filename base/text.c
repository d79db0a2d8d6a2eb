#define _GNU_SOURCE // fopencookie
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

// open_memstream drops what it finds no memory for and says nothing (glibc 2.36): neither ferror nor fclose.
typedef struct TextStream {
  char *bytes;
  size_t used, cap, lacked; // lacked: how many were refused; nothing is added after that
  char **text;              // where they go when the stream is closed
  size_t *size;
} TextStream;

static ssize_t text_write(void *stream, const char *from, size_t bytes) {
  TextStream *t = stream;
  const size_t need = t->used + bytes + 1;
  if (need > t->cap && !t->lacked) {
    const size_t grown = MAX(need, 2 * t->cap);
    char *larger = realloc(t->bytes, grown);
    if (larger) {
      t->bytes = larger;
      t->cap = grown;
    } else
      t->lacked = grown;
  }
  if (t->lacked) return 0;
  memcpy(t->bytes + t->used, from, bytes);
  t->used += bytes;
  t->bytes[t->used] = '\0';
  return (ssize_t)bytes;
}

static _Thread_local size_t text_lacked; // by the stream that this thread has closed last

static int text_end(void *stream) {
  TextStream *t = stream;
  *t->text = t->bytes;
  *t->size = t->used;
  text_lacked = t->lacked;
  free(t);
  return 0;
}

FILE *text_open_at(char **text, size_t *size, const char *where) {
  TextStream *t = xmalloc_at(sizeof *t, where);
  *t = (TextStream){xcalloc_at(1, 1, where), 0, 1, 0, text, size};
  FILE *f = fopencookie(t, "w", (cookie_io_functions_t){.write = text_write, .close = text_end});
  if (!f) die_of_memory(BUFSIZ, where);
  return f;
}

void text_close_at(FILE *f, const char *where) {
  fclose(f);
  if (text_lacked) die_of_memory(text_lacked, where);
}
