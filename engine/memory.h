// All memory that an engine and its loaders use, as one table. --plan prints it; before anything is allocated it is
// compared with the free memory; each row names the options that reduce it.
#pragma once
#include <stdio.h>
#include "base/error.h"
#include "nn/device.h"

typedef enum MemorySpace {
  ON_DEVICE,
  ON_HOST,        // ordinary memory of the host
  ON_HOST_LOCKED, // host memory that the device reads and writes directly (page-locked)
  ON_HOST_LATER,  // an estimate of what is allocated during the run; only leads to a warning
  MEMORY_SPACES
} MemorySpace;

typedef struct MemoryRow {
  const char *name; // "activations"
  MemorySpace space;
  size_t bytes;
  const char *options; // options that reduce it, "--batch or --size"; NULL: none
  bool beside;         // what it costs that nodes run side by side on the device
} MemoryRow;

enum { MAX_MEMORY_ROWS = 24 };
typedef struct MemoryPlan { // zero-initialise
  MemoryRow row[MAX_MEMORY_ROWS];
  int rows;
  int ranks;                     // ranks on this host, each of which will use as much; 0 or 1: a single rank
  size_t most_device, most_host; // that may be taken of a GPU and of the host; 0: what is free
} MemoryPlan;

// Adds a row unless `bytes` is 0; the strings are not copied.
void memory_add(MemoryPlan *m, const char *name, MemorySpace space, size_t bytes, const char *options);
void memory_add_beside(MemoryPlan *m, const char *name, size_t bytes, const char *options); // of MemoryRow.beside
size_t memory_sum(const MemoryPlan *m, MemorySpace space);
// Prints the table, followed by the totals and the free memory on the device and on the host.
void memory_print(const MemoryPlan *m, Device *dev, FILE *out);
void memory_print_sums(const MemoryPlan *m, Device *dev, FILE *out); // the totals, in one line
// Whether the free memory is enough; if only ON_HOST_LATER does not fit, prints a warning to stderr. False with a
// message that names the largest row of the memory that does not suffice, and what it costs that nodes run side by
// side. The CPU as a device shares the host's memory.
bool memory_fits(const MemoryPlan *m, Device *dev, Err *err);
