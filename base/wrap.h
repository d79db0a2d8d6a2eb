// Text wrapped to the width of a terminal.
#pragma once
#include <stdio.h>

enum { WRAP_NARROWEST = 40, WRAP_USUAL = 80, WRAP_WIDEST = 120 };

// The width to wrap what is printed on `out` to: where it is a terminal, $COLUMNS or else the terminal's own width, at
// least WRAP_NARROWEST and at most WRAP_WIDEST; WRAP_USUAL for files and pipes, so that they do not depend on where
// the program was started.
int wrap_columns(FILE *out);

// Prints the text, UTF-8, broken at blanks so that no line is wider than `columns`, and ends the line. `column` columns
// of the first line are taken already; further lines begin with `indent` blanks. A newline in the text begins a new
// line. A word that is too long for a line is broken after '|', '/' or ','.
void wrap_print(FILE *out, const char *text, int column, int indent, int columns);

// Columns of a text: its characters, each taken to be one wide.
int wrap_width(const char *text);
