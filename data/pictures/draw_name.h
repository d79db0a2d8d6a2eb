// Names of classes in the letters that overlays can draw, which are ASCII's.
#pragma once
#include <stdint.h>

// Letters lose their accents; Greek and Cyrillic ones, ligatures, dashes and quotes are transliterated. A name with a
// character that has no such form (Chinese, Arabic, an emoji) becomes "class ID". Caller frees.
char *draw_name(const char *name, int64_t id);
