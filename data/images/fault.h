// The reason why a reader cannot read a file; data/images/image.c makes a message of it.
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include "base/error.h"

typedef enum FaultType {
  FAULT_CUT,         // the file is truncated
  FAULT_CORRUPT,     // `text` describes the error
  FAULT_UNSUPPORTED, // `text` says what it is and what to do
  FAULT_MEMORY,      // out of memory
} FaultType;

typedef struct ImageFault {
  FaultType type;
  char text[128];
} ImageFault;

// Fills *f and returns false, like err_set.
static inline bool PRINTF_LIKE(3, 4) fault_set(ImageFault *fault, FaultType type, const char *fmt, ...) {
  fault->type = type;
  va_list args;
  va_start(args, fmt);
  vsnprintf(fault->text, sizeof fault->text, fmt, args);
  va_end(args);
  return false;
}
