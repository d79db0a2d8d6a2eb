// Files of JSON lines: a value on each, of which the last may be cut short, as by a crash.
#pragma once
#include "base/json.h"

// Reads the line's value; false: enough.
typedef bool JsonLineFn(Json *line, void *context);
// Calls `each` for the lines in their order. False with FILE:LINE:COLUMN and what is wrong there.
bool json_lines(const char *path, JsonLineFn *each, void *context, Err *err);

typedef struct JsonLinesAt { // a place between lines; zero: the beginning
  int64_t bytes, lines;
} JsonLinesAt;
// From that place, which moves behind the last line that was read.
bool json_lines_from(JsonLinesAt *at, const char *path, JsonLineFn *each, void *context, Err *err);
