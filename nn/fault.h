// GPU faults explained to the user: what happened, what was being computed, what to do. The text is derived from the
// name of CUDA's error, without CUDA, so that it can be tested on any machine.
#pragma once
#include <stdbool.h>
#include "base/error.h"

#ifdef __cplusplus
extern "C" {
#endif

// What is known of the GPUs of a machine when one of them cannot be opened.
typedef struct GpuOffer {
  int driver, runtime; // CUDA's version that the driver supports, and of this build: 13010 is 13.1; 0: no driver
  int count, index;    // GPUs that are there; the one asked for
  char name[64];       // "": not known
  int major, minor;    // compute capability; 0: not known
} GpuOffer;

// Fills err with why the GPU cannot be used and what to do, and returns false. `error`: the name that
// cudaGetErrorName has for what failed, "cudaSuccess" where only the offer does; `text`: what cudaGetErrorString says.
bool fault_opening(const GpuOffer *offer, const char *error, const char *text, Err *err);

// Says what the device computes, for fault_die. `exact`: every kernel is waited for, so that an error is of the one
// that was queued last; otherwise it may be of any that was queued before. fmt NULL: nothing.
void fault_context(bool exact, const char *fmt, ...) PRINTF_LIKE(2, 3);

// Ends the program with exit code 1, as die_unforeseen: `call`, at that file and line, reported the error.
NORETURN void fault_die(const char *error, const char *text, const char *call, const char *file, int line);

#ifdef __cplusplus
}
#endif
