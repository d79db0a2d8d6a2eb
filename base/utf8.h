// UTF-8, as Unicode's table 3-7 has it.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// Bytes of the sequence at p, which ends before `end`: 1 for ASCII; 0 where it is malformed, overlong, a surrogate or
// past U+10FFFF.
size_t utf8_length(const char *p, const char *end);
// Whether all of a text is.
bool utf8_is(const char *text);
