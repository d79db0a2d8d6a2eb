// Where a record comes from: when, which build, which command, which machine. A figure that cannot say so cannot be
// compared with another, so every benchmark adds it to every record, and lab/tables.py refuses records without it.
#pragma once
#include <stdbool.h>
#include "base/record.h"

// Of this build, written by the Makefile: include/maskrcnn.h's version; what `git describe --always --dirty` says.
extern const char build_version[], build_commit[];

// What a device driver reports. Unknown numbers are 0, unknown texts are empty; both become null in JSON.
typedef struct GpuFacts {
  char name[96], driver[64];
  char runtime[16], toolkit[32]; // CUDA's versions: of the library that runs, of the compiler that built
  int count;                     // GPUs that the process sees
  double memory_gib;
  // As they are when it is asked, and the most that the GPU allows.
  int sm_mhz, sm_mhz_max, memory_mhz, memory_mhz_max;
  double power_limit_w;
} GpuFacts;

// Adds to a record that is being built:
//   "date"     UTC, as 2026-01-31T12:00:00Z
//   "commit"   build_commit
//   "clean"    whether it names a tree: false for one with changes and where no commit is known
//   "command"  as the process was started; null where /proc is missing
//   "machine"  an object: cpu, cores (that the process may use), ram_gib, os, kernel, compiler (of the C code), gpu,
//              gpus, gpu_memory_gib, sm_mhz, sm_mhz_max, memory_mhz, memory_mhz_max, power_limit_w, driver,
//              cuda_runtime, cuda_toolkit; null is what is not known or not there
// gpu NULL: none takes part.
void record_origin(Record *r, const GpuFacts *gpu);

bool commit_clean(const char *commit);
// What stands in the way of keeping records of this build, as one line for stderr without a newline; NULL: nothing.
const char *commit_complaint(const char *commit);
// Prints that line, if there is one. A benchmark calls it before it begins, when there is time to commit first.
void commit_warn(void);
