// What a benchmark needs from a device: time stamps on the device's clock, and its peak rates.
#pragma once
#include "nn/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// A time stamp in the device's queue; one that is recorded is taken anew with every replay. Zero-initialise; used again
// and again.
typedef struct Mark {
  double seconds; // CPU
  void *event;    // CUDA, of one that is not recorded
  void *ticks;    // CUDA, device, of one that is: uint64_t nanoseconds
  bool recorded;
} Mark;

typedef struct Ceiling {
  double flops[DTYPES]; // a second, of matrix products with operands of this type; 0 = not known
  double bytes;         // a second, read or written
} Ceiling;

// What the device's own meter says.
typedef struct MeterReading {
  double joules; // drawn since the driver was loaded; in steps of tens of milliseconds
  int mhz;       // of the multiprocessors, now; 0: not known
} MeterReading;

// For the back ends: one row per device type.
typedef struct Timing {
  void (*mark)(Device *dev, Mark *m);
  double (*elapsed)(Device *dev, const Mark *from, const Mark *to); // seconds; waits for `to`
  void (*forget)(Device *dev, Mark *m);
  void (*ceiling)(Device *dev, Ceiling *c);
  void *(*meter_open)(Device *dev); // NULL: this device has none. The function is NULL, and the others: no device has
  bool (*meter_read)(void *meter, MeterReading *r); // false: it does not say
  void (*meter_close)(void *meter);
} Timing;
extern const Timing timing_cpu, timing_cuda;

#ifdef __cplusplus
}
#endif
