// When two folders have one name: they differ in case or in Unicode's normal form only, as after a copy by way of a
// file system that tells neither apart.
#pragma once

// Equal for such names: Latin letters (U+0000 … U+017F) lower-case, they and Hangul decomposed (Unicode's form D).
// Other letters, and bytes that are no UTF-8, stand for themselves. Caller frees.
char *class_name_key(const char *name);
