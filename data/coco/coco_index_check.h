// What is in an index is checked before it is used: sums show damage, not forgery.
#pragma once
#include "data/coco/coco.h"

// Whether a data set whose arrays lie in a mapped file could have been parsed: every place and count leads into the
// arrays, every flag and type is one, every coordinate is finite, and names, stored as their offset among `names` plus
// 1 (0: none), stand there one after another, in UTF-8. Takes time in proportion to the file.
bool coco_index_is_sound(const Coco *c, const char *names, size_t name_bytes);
