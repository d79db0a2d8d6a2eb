// How rung 05 cuts the gradient of a filter into blocks: the tile, the slots, and who adds the slots up. By shapes alone,
// or the bits would differ from one GPU to the next.
#pragma once
#include <math.h>
#include "cuda/common.cuh"

struct FilterWork {
  int rows, panels; // output channels; panels of 64 channels of x under a tap
  int taps;         // of a row of the filter
  bool shareable;   // they may read one patch of pixels
  double stages[2]; // of all pixels; where panels share a patch
  double megabytes; // of both operands
};
struct FilterCut {
  int rows, panels; // of a tile
  bool shared;      // its panels are one patch
  bool cluster;     // the slots of a tile are the blocks of a cluster, which adds them up
  int slots;
};

// A tile's stage of 64 pixels, in microseconds, where memory does not bound it.
struct FilterTileCost {
  int rows, panels;
  double stage;
};
static const FilterTileCost filter_tiles[] = {{256, 3, 0.893}, {256, 2, 0.597}, {256, 1, 0.396}, {128, 4, 0.597},
                                              {128, 3, 0.452}, {128, 2, 0.307}, {64, 4, 0.32},   {64, 2, 0.207}};

// Blocks that run at once, by the slots of a cluster, which has to find room in one part of the GPU: an H200's, assumed on
// every GPU.
static const int blocks_at_once[] = {132, 132, 132, 117, 120, 110, 102, 105, 120};
enum { MAX_CLUSTER = COUNT(blocks_at_once) - 1 };

// What a product takes, in microseconds after it has started, fitted to an H200's times of all layers at batch 1 to 5
// and 16 with twelve likely cuts each: to 6 %, and the cut that is cheapest here is on average 0.5 % slower than the
// fastest. The loop takes what the tensor cores take, L2 (40 MB a microsecond to all blocks together, for some of which it
// reads once; those of a cluster read different pixels, and get half of that) or memory (5 MB), whichever takes longest, and
// a share of the others nevertheless. Then come the sums: to dw through a cluster's shared memory, to memory and through a
// second kernel, or straight to dw.
static inline double cost_of(const FilterWork &work, const FilterTileCost &tile, const FilterCut &cut) {
  double at_once = blocks_at_once[cut.cluster ? cut.slots : 1], stages = work.stages[cut.shared];
  double tiles = (double)blocks_for(work.panels, cut.panels) * blocks_for(work.rows, cut.rows);
  double blocks = tiles * cut.slots, waves = ceil(blocks / at_once);
  double fetched = tiles * stages * (cut.rows + (cut.shared ? 1 : cut.panels) * 64) * 128e-6;
  double multiply = waves * ceil(stages / cut.slots) * tile.stage, l2 = fetched / (cut.cluster ? 20 : 40),
         memory = work.megabytes / 5;
  double loop = 0.82 * MAX(multiply, MAX(l2, memory)) + 0.18 * (multiply + l2 + memory);
  double sums = cut.rows * cut.panels * 64 * 4e-6, at_end = MIN(blocks, at_once) * sums; // of a block; of a wave
  double end = cut.cluster     ? waves * (1.8 + 0.1 * cut.slots + 0.25 * at_end)
               : cut.slots > 1 ? waves * (0.6 + 0.24 * at_end) + 2 + 0.095 * blocks * sums
                               : waves * (2 + 0.11 * at_end);
  return waves * 1.6 + loop + end;
}

static inline FilterCut filter_cut(const FilterWork &work) {
  FilterCut best = {};
  double least = INFINITY;
  for (const FilterTileCost &tile : filter_tiles) {
    int blocks = blocks_for(work.panels, tile.panels) * blocks_for(work.rows, tile.rows);
    for (int shared = 0; shared <= (work.shareable && work.taps == tile.panels); shared++)
      for (int cluster = 0; cluster < 2; cluster++) {
        int most = cluster ? MAX_CLUSTER : MAX(1, 2 * blocks_at_once[1] / blocks);
        for (int slots = 1 + cluster; slots <= MIN(most, MAX(work.stages[shared], 1)); slots++) {
          FilterCut cut = {tile.rows, tile.panels, shared > 0, cluster > 0, slots};
          double cost = cost_of(work, tile, cut);
          if (cost < least) least = cost, best = cut;
        }
      }
  }
  return best;
}
