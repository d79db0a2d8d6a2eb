// What a call sets for itself on its caller's thread, and gives back: the floating-point environment, since the caller
// may round otherwise or trap; the locale, since numbers in messages have a point; and that the thread is not cancelled
// while it holds a lock. What a call computes itself it computes with its thread alone.
#pragma once
#include <fenv.h>
#include <locale.h>
#include "include/maskrcnn.h"

typedef struct Guard {
  fenv_t floats;
  locale_t locale; // 0: it was not set
  int cancel;
  int threads; // of OpenMP
} Guard;

// Empties the error, which may be NULL.
Guard guard_enter(maskrcnn_error *error);
// Returns the status.
maskrcnn_status guard_leave(const Guard *g, maskrcnn_status status);
