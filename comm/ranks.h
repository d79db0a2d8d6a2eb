// How many ranks --gpus N means, and which device each rank gets.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"
#include "nn/device.h"

// Finds the GPUs for --gpus (0: all) and --device, and the number of ranks: one per GPU, or on the CPU as many as
// requested. For one rank the machine is not queried: `list` stays empty. False if there are too few GPUs, or the
// options contradict each other.
bool ranks_count(int gpus, const char *device, GpuList *list, int *ranks, Err *err);

// Finds the GPUs that ranks started by a launcher see; there may be none, then opening one reports why.
void ranks_locate(const char *device, GpuList *list);

// The name of a rank's device, for device_open. If the launcher shows each rank only its own GPU, it is that one.
void ranks_device(char *name, size_t room, const char *device, const GpuList *list, int local_rank);
