// How often memory was allocated, by whatever code: to show that something allocates nothing.
#pragma once
#include <stdbool.h>
#include <stdint.h>

int64_t allocations(void);
bool allocations_counted(void); // false under AddressSanitizer, which has an allocator of its own
