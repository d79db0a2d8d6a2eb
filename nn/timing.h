// What measuring asks of a device: time on its own clock, and how fast it could be at best.
#pragma once
#include "nn/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// A place in the device's queue. Zero-initialise; used again and again.
typedef struct Mark {
  double seconds; // CPU
  void *event;    // CUDA
} Mark;

typedef struct Ceiling {
  double flops[DTYPES]; // a second, of matrix products with operands of this type; 0 = not known
  double bytes;         // a second, read or written
} Ceiling;

// For the back ends: one row per kind of device.
typedef struct Timing {
  void (*mark)(Device *dev, Mark *m);
  double (*elapsed)(Device *dev, const Mark *from, const Mark *to); // seconds; waits for `to`
  void (*forget)(Device *dev, Mark *m);
  void (*ceiling)(Device *dev, Ceiling *c);
} Timing;
extern const Timing timing_cpu, timing_cuda;

#ifdef __cplusplus
}
#endif
