// Detects folder names that differ only in case or Unicode normalisation, as after a copy through a file system that
// ignores these.
#pragma once

// A key that is equal for such names: Latin letters (U+0000 … U+017F) are lower-cased, they and Hangul are decomposed
// (Unicode's form D). Other letters, and bytes that are not UTF-8, are kept. Caller frees.
char *class_name_key(const char *name);
