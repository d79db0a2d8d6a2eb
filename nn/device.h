// Device: where memory lives and ops run. "cpu", "cpu64" (double, for gradient checks and goldens) or "cuda:0".
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "nn/tensor.h"
#include "nn/util.h"

typedef struct Ops Ops;

typedef struct Device {
  const Ops *ops;
  DType real; // dtype of masters, boxes and losses: F64 on cpu64, F32 elsewhere
  void *scratch;
  size_t scratch_bytes;
  // While true, ops only state what scratch they would take: scratch_bytes grows to the largest, nothing is computed,
  // no data is touched. The graph walks its list once like this before the memory plan is made.
  bool measuring;
} Device;

// NULL with a message when the name is unknown, the device is absent or its table has a missing entry.
Device *device_open(const char *name, Err *err);
void device_close(Device *dev);

void *device_alloc(Device *dev, size_t bytes); // zeroed; NULL when there is not enough
void device_free(Device *dev, void *p);
void device_upload(Device *dev, void *dst, const void *host, size_t bytes);
void device_download(Device *dev, void *host, const void *src, size_t bytes);
void device_zero(Device *dev, void *p, size_t bytes);
void device_sync(Device *dev);

// The op's workspace, uninitialised, 64-byte aligned. Every op that needs one calls this first and returns when it is
// NULL; every op that needs none begins with `if (dev->measuring) return;`.
void *device_scratch(Device *dev, size_t bytes);
bool device_reserve_scratch(Device *dev, Err *err); // allocates what was measured
