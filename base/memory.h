// How much memory there still is for this process.
#pragma once
#include <stddef.h>

// Bytes that can be taken before the next are refused, or the process is killed for them: the least of what the machine
// has available, what every control group around the process leaves (v1 and v2; file cache can be given back and counts
// as left), and what ulimit -v and -d leave. SIZE_MAX where nothing says. `root` stands before /proc and /sys: "" but
// in tests.
size_t memory_left(const char *root);
