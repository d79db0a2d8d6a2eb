// How many ranks --gpus N asks for, and which device is whose.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "base/error.h"
#include "nn/device.h"

// Finds the GPUs that --gpus asks for (0: all) of --device, and how many ranks there will be: one a GPU, or on the CPU
// as many as are asked for. One rank asks nothing of the machine: `list` stays empty. False where there are too few, or
// where the options contradict each other.
bool ranks_count(int gpus, const char *device, GpuList *list, int *ranks, Err *err);

// The GPUs that ranks of another starter see, which may be none: opening one tells why.
void ranks_locate(const char *device, GpuList *list);

// The name of a rank's device, for device_open. Where a starter shows each rank its own GPU alone, that is it.
void ranks_device(char *name, size_t room, const char *device, const GpuList *list, int local_rank);
