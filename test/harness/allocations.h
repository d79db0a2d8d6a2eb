// How often memory was allocated, by whatever code: to show that something allocates nothing.
#pragma once
#include <stdbool.h>
#include <stdint.h>

int64_t allocations(void);
void allocations_refuse(bool refuse); // or no longer: those of posix_memalign, which scratch memory is made of
bool allocations_counted(void);       // false under AddressSanitizer, which has an allocator of its own
