// How often memory was allocated, by whatever code: to show that something allocates nothing, or what it does when it
// cannot. Also built as allocations.so, which a program may be given to load before all else (LD_PRELOAD):
//
//   FAIL_AT=N      its N-th allocation fails, from 1 on
//   FAIL_FROM=N    and so do all after it
//   COUNT_TO=FILE  at its end it writes there how many there were
#pragma once
#include <stdbool.h>
#include <stdint.h>

int64_t allocations(void);
void allocations_fail(int64_t nth);   // of those from here on
void allocations_refuse(bool refuse); // or no longer: those of posix_memalign, which scratch memory is made of
bool allocations_counted(void);       // false under sanitizers that have allocators of their own
