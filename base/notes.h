// Notes on what was read, a line each: oddities that do not prevent its use.
#pragma once
#include "base/error.h"

enum { MOST_NOTES = 16 };
typedef struct Notes { // zero-initialise
  char *line[MOST_NOTES];
  int n;
} Notes;

void notes_add(Notes *notes, const char *fmt, ...) PRINTF_LIKE(2, 3);
void notes_free(Notes *notes);
