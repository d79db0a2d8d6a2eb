// Names that look the same but have different bytes.
#pragma once
#include <stdbool.h>

// Whether two UTF-8 texts differ only in spaces, including zero-width ones, and in the encoding of accents: "é" as one
// code point or as "e" with a combining accent.
bool looks_same(const char *a, const char *b);
