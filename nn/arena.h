// Arena: offsets for blocks whose lifetimes are known beforehand, so that blocks never alive together share memory.
#pragma once
#include <stddef.h>
#include <stdio.h>

typedef struct ArenaBlock {
  const char *name;
  size_t bytes;
  int first, last;             // steps of the program, both inclusive
  int idle_after, idle_before; // steps between which its content is not needed; 0, 0: none
  size_t offset;               // set by arena_plan; multiple of 256
} ArenaBlock;

// Chooses offsets and returns the total size. Largest block first, each at the lowest offset where it collides with no
// block alive at the same time; one that lives while another is idle may lie on it (Pisarchyk, Lee, "Efficient memory
// management for deep neural net inference", 2020: greedy by size). Deterministic.
size_t arena_plan(ArenaBlock *blocks, int n);

// The map, largest blocks first, and the lower bound (the most bytes alive at any step) and the size reached.
void arena_print(const ArenaBlock *blocks, int n, size_t total, FILE *out);
