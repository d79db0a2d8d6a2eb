// Which of the names that are known somebody may have meant.
#pragma once
#include <stddef.h>

enum { SPELLING_MOST = 64 }; // bytes of a name that are looked at

// Edits (insert, delete, replace) that turn the one into the other.
int edit_distance(const char *a, size_t na, const char *b, size_t nb);
// The same, but 1 where `typed` is the beginning of `known`.
int spelling_distance(const char *typed, size_t length, const char *known);
