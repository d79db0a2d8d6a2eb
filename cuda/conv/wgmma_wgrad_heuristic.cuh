// The heuristic of rung 05's wgrad: the threadblock tile, the slices of split-K, and whether a cluster or a second
// kernel reduces them. By shapes and the number of multiprocessors (SMs) that are not granted, or the bits would differ
// from one GPU to the next.
#pragma once
#include <math.h>
#include "cuda/common.cuh"

struct WgradShape {
  int rows, panels;  // output channels; panels of 64 channels of x under a tap
  int taps;          // of a row of the filter
  bool shareable;    // they may read one patch of pixels
  double k_tiles[2]; // of all pixels, without and with panels that share a patch
  double megabytes;  // of both operands
};
struct WgradConfig {
  int rows, panels;  // of a threadblock tile
  bool shared_patch; // its panels are one patch
  bool cluster;      // the slices of a tile are the blocks of a cluster, which reduces them
  int slices;
};

// A tile's stage of 64 pixels, in microseconds, where memory does not bound it.
struct WgradTileCost {
  int rows, panels;
  double k_tile_us;
};
static const WgradTileCost wgrad_tiles[] = {{256, 3, 0.893}, {256, 2, 0.597}, {256, 1, 0.396}, {128, 4, 0.597},
                                            {128, 3, 0.452}, {128, 2, 0.307}, {64, 4, 0.335},  {64, 2, 0.2}};

// Blocks that run at once, by the slices of a cluster, which has to find room in one GPC: an H200's, assumed on every
// GPU.
static const int resident_blocks[] = {132, 132, 132, 117, 120, 110, 102, 105, 120};
enum { MAX_CLUSTER = COUNT(resident_blocks) - 1 };

// The same where so many of its SMs are left to collectives: of the clusters there is room for the same share as of the
// SMs, in whole clusters, possibly none. That is the room on average: the hardware deals the collectives' blocks out to
// all GPCs, where some take SMs that no cluster fits on anyway, others a cluster's only ones; and between collectives
// clusters have all GPCs.
static inline int resident_of(int slices, int withheld) {
  int granted = MAX(resident_blocks[1] - withheld, 1);
  return resident_blocks[slices] / slices * granted / resident_blocks[1] * slices;
}

// Microseconds of a GEMM after it has started, fitted to an H200's times of the detector's layers and to an H100's of
// those of seven classifiers at 64 images (results/step-h100.txt, 21): there, the one that is cheapest here is on
// average 2 % slower than the fastest of some twenty. The mainloop takes what the tensor cores take, L2 (16 MB a
// microsecond to all blocks together, some of which read the same; 11 where other taps read the same pixels a few
// stages later; those of a cluster read different pixels, and get 8) or memory (3.5 MB), whichever takes longest, and
// a share of the others nevertheless. Then comes the epilogue: the split-K reduction through a cluster's distributed
// shared memory, through the workspace and a second kernel, or, unsplit, straight to dw.
static inline double wgrad_cost(const WgradShape &shape, const WgradTileCost &tile, const WgradConfig &config,
                                int withheld) {
  double resident = resident_of(config.cluster ? config.slices : 1, withheld);
  double k_tiles = shape.k_tiles[config.shared_patch];
  if (resident == 0) return INFINITY;
  double tiles = (double)blocks_for(shape.panels, config.panels) * blocks_for(shape.rows, config.rows);
  double blocks = tiles * config.slices, waves = ceil(blocks / resident);
  double loaded = tiles * k_tiles * (config.rows + (config.shared_patch ? 1 : config.panels) * 64) * 128e-6;
  double l2_rate = config.cluster ? 8 : shape.taps > 1 && !config.shared_patch ? 11 : 16;
  double mainloop = waves * ceil(k_tiles / config.slices) * tile.k_tile_us, l2 = loaded / l2_rate,
         memory = shape.megabytes / 3.5;
  double loop = 0.84 * MAX(mainloop, MAX(l2, memory)) + 0.16 * (mainloop + l2 + memory);
  double acc_megabytes = config.rows * config.panels * 64 * 4e-6,
         at_end = MIN(blocks, resident) * acc_megabytes; // of a block; of a wave
  double end = config.cluster      ? waves * (1.8 + 0.1 * config.slices + 0.25 * at_end)
               : config.slices > 1 ? waves * (0.6 + 0.31 * at_end) + 2 + 0.12 * blocks * acc_megabytes
                                   : waves * (2 + 0.14 * at_end);
  return waves * 1.6 + loop + end;
}

static inline WgradConfig wgrad_config(const WgradShape &shape, int withheld) {
  WgradConfig best = {};
  double least = INFINITY;
  for (const WgradTileCost &tile : wgrad_tiles) {
    int blocks = blocks_for(shape.panels, tile.panels) * blocks_for(shape.rows, tile.rows);
    for (int shared_patch = 0; shared_patch <= (shape.shareable && shape.taps == tile.panels); shared_patch++)
      for (int cluster = 0; cluster < 2; cluster++) {
        int most = cluster ? MAX_CLUSTER : MAX(1, 2 * resident_of(1, withheld) / blocks);
        for (int slices = 1 + cluster; slices <= MIN(most, MAX(shape.k_tiles[shared_patch], 1)); slices++) {
          WgradConfig config = {tile.rows, tile.panels, shared_patch > 0, cluster > 0, slices};
          double cost = wgrad_cost(shape, tile, config, withheld);
          if (cost < least) {
            least = cost;
            best = config;
          }
        }
      }
  }
  return best;
}
