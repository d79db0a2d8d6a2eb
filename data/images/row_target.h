// Where a decoder writes an image's rows.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct RowTarget {
  uint8_t *memory;       // 3 h w bytes, written in any order; a decoder may use them for other things before
  uint8_t *first;        // the first pixel of the first row
  ptrdiff_t down, right; // bytes from a pixel to the one below, and to the next of its row
} RowTarget;

static inline uint8_t *row_target_at(const RowTarget *to, int y, int x) {
  return to->first + y * to->down + x * to->right;
}
