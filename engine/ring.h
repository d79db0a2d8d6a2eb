// A loader's batches in memory that the device copies from by itself, taken when the engine opens: a loader that is
// opened later, as that of an evaluation, asks for no more.
#pragma once
#include "data/batches/loader.h"
#include "nn/device.h"

typedef struct Ring { // zero-initialise
  char *block;
  size_t bytes, used;
  int pieces; // handed out
} Ring;

bool ring_allocate(Ring *r, Device *dev, size_t bytes); // false when memory is out; 0 bytes: nothing to hand out
void ring_free(Ring *r, Device *dev);
// For one loader at a time. The ring must outlive it.
HostMemory ring_memory(Ring *r);
