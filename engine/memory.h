// All memory that an engine and its loaders use, as one table. --plan prints it; before anything is allocated it is
// compared with what is free; and each row names the options that shrink it.
#pragma once
#include <stdio.h>
#include "base/error.h"
#include "nn/device.h"

typedef enum MemorySpace {
  ON_DEVICE,
  ON_HOST,        // ordinary memory of the host
  ON_HOST_LOCKED, // memory of the host that the device reads and writes by itself (page-locked)
  ON_HOST_LATER,  // an estimate of what is taken while the run goes on; nothing is refused for it
  MEMORY_SPACES
} MemorySpace;

typedef struct MemoryRow {
  const char *name; // "activations"
  MemorySpace space;
  size_t bytes;
  const char *options; // that shrink it, as in "--batch or --size"; NULL: none
} MemoryRow;

enum { MAX_MEMORY_ROWS = 16 };
typedef struct MemoryPlan { // zero-initialise
  MemoryRow row[MAX_MEMORY_ROWS];
  int rows;
  int ranks; // of this host that take as much each, before any of them does; 0 or 1: this one alone
} MemoryPlan;

// Adds a row, unless it is of 0 bytes; the strings are not copied.
void memory_add(MemoryPlan *m, const char *name, MemorySpace space, size_t bytes, const char *options);
size_t memory_sum(const MemoryPlan *m, MemorySpace space);
// The table, followed by the totals on the device and on the host and what is free there.
void memory_print(const MemoryPlan *m, Device *dev, FILE *out);
// Whether what is free is enough; of what comes later, stderr gets a warning where it is not. False with a message that
// names the largest row of what is too much. A device that is the CPU shares the host's memory.
bool memory_fits(const MemoryPlan *m, Device *dev, Err *err);
