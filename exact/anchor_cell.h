// Where the predictions of an anchor stand: its level, the cell of that level's grid, and which of the cell's anchors
// it is; shared by the CPU and CUDA implementations of all that looks at sampled anchors.
#pragma once
#include "exact/geometry.h"
#include "nn/ops.h"

typedef struct AnchorCell {
  int level, y, x, a;
} AnchorCell;
static inline HD AnchorCell anchor_cell(const Anchors *anchors, int index) {
  int l = 0;
  while (l + 1 < anchors->levels && index >= anchors->level[l + 1].first) l++;
  const int i = index - anchors->level[l].first, cell = i / anchors->per_cell, w = anchors->level[l].w;
  const AnchorCell at = {l, cell / w, cell % w, i % anchors->per_cell};
  return at;
}

// The tap of a 3 × 3 window about a sample's cell under which (y, x) lies; -1: none.
static inline HD int patch_tap(AnchorCell at, int y, int x) {
  const int ty = y - at.y + 1, tx = x - at.x + 1;
  return ty < 0 || ty > 2 || tx < 0 || tx > 2 ? -1 : 3 * ty + tx;
}
