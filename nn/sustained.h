// Time, energy and clock of a piece of work under sustained load, that is when it runs back to back for long. A GPU at
// its power limit lowers its clock, so the implementation that is fastest from idle need not be the fastest under load;
// there, the one that needs the least energy is.
#pragma once
#include "nn/timing.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SustainedTimes { // seconds
  double rest;                  // before the first call, so that clock and power are a rested device's
  double settle;                // of work before the window, until they are a busy one's
  double window;                // at least; it begins and ends where the meter's count goes up
} SustainedTimes;

typedef struct Sustained {
  int64_t calls;  // in the window
  double cold;    // seconds a call, of the first after the rest: as many as take a millisecond, or one
  double seconds; // of a call in the window
  double watts;   // mean over the window, whose ends are known to some five readings of the meter (25 ms on an H200);
                  // NaN: the device has no meter
  double joules;  // of a call; NaN likewise
  double mhz;     // of the multiprocessors, mean over the window; NaN likewise, or where the meter tells no clock
} Sustained;

typedef void SustainedWork(void *context);

// Measures what queue(context) queues on the device, which must do the same however often it runs. The device is synced
// before and after. meter: an open one of the device's, or NULL.
Sustained sustained_measure(Device *dev, void *meter, const SustainedTimes *times, SustainedWork *queue, void *context);

#ifdef __cplusplus
}
#endif
