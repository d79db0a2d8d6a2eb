// Page-locked memory for loaders' batches, allocated when the engine opens, so that a loader opened later, such as an
// evaluation's, needs no more.
#pragma once
#include "data/batches/loader.h"
#include "nn/device.h"

typedef struct Ring { // zero-initialise
  char *block;
  size_t bytes, used;
  int pieces; // allocations handed out
} Ring;

bool ring_allocate(Ring *r, Device *dev, size_t bytes); // false if out of memory; 0 bytes: nothing to hand out
void ring_free(Ring *r, Device *dev);
// The allocator for one loader at a time. The ring must outlive it.
HostMemory ring_memory(Ring *r);
