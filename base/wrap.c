// Text wrapped to the width of a terminal.
#include "base/wrap.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "base/basics.h"

int wrap_columns(FILE *out) {
  struct winsize size;
  if (!isatty(fileno(out))) return WRAP_USUAL;
  const char *variable = getenv("COLUMNS");
  char *end;
  const long said = variable ? strtol(variable, &end, 10) : 0;
  long columns = said > 0 && !*end ? said : 0;
  if (!columns && ioctl(fileno(out), TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (!columns) columns = WRAP_USUAL; // a terminal that does not know
  return (int)MIN(MAX(columns, WRAP_NARROWEST), WRAP_WIDEST);
}

static bool begins_character(char c) { return (c & 0xc0) != 0x80; }

static int width_of(const char *text, size_t bytes) {
  int width = 0;
  for (size_t i = 0; i < bytes; i++) width += begins_character(text[i]);
  return width;
}

int wrap_width(const char *text) { return width_of(text, strlen(text)); }

// Bytes of the word's beginning that fit into `room` columns: up to a separator, or else as many as there is room for.
static size_t part_that_fits(const char *word, size_t bytes, int room) {
  size_t whole = 0, separated = 0;
  int width = 0;
  for (size_t i = 0; i < bytes; i++) {
    if (begins_character(word[i]) && ++width > room) break;
    whole = i + 1;
    if (strchr("|/,", word[i])) separated = i + 1;
  }
  return separated ? separated : whole;
}

static int new_line(FILE *out, int indent) {
  fprintf(out, "\n%*s", indent, "");
  return indent;
}

void wrap_print(FILE *out, const char *text, int column, int indent, int columns) {
  bool first = true; // of its line, so that no blank stands before it
  while (*text) {
    if (*text == '\n') {
      column = new_line(out, indent);
      first = true;
      text++;
      continue;
    }
    size_t bytes = strcspn(text, " \n");
    const int width = width_of(text, bytes);
    if (!first && column + 1 + width > columns) {
      column = new_line(out, indent);
      first = true;
    }
    if (!first) column += fputc(' ', out) == ' ';
    for (int room; (room = MAX(columns - column, 1)) < width_of(text, bytes);) {
      const size_t part = part_that_fits(text, bytes, room);
      fwrite(text, 1, part, out);
      text += part;
      bytes -= part;
      column = new_line(out, indent);
    }
    fwrite(text, 1, bytes, out);
    column += width_of(text, bytes);
    text += bytes;
    if (*text == ' ') text++;
    first = false;
  }
  fputc('\n', out);
}
