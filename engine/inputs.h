// Inputs: device memory for one batch, on a GPU each array twice, because the next batch is copied to the device while
// the graph still reads this one. A batch is copied to `staged` while the previous step computes; its own step begins
// by moving it to `data`.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "models/model.h"
#include "nn/batch.h"
#include "nn/device.h"

typedef struct Inputs {
  int images, capacity;
  int canvas; // of the staged batch
  struct {
    void *data, *staged; // on a CPU the same
    size_t room, used;   // bytes
  } array[BATCH_ARRAYS]; // room 0: the model does not read it
} Inputs;

// Sets the room for each array in `arrays` (BATCH_BIT) for batches up to `size`; returns the total of bytes.
size_t inputs_plan(Inputs *in, const Device *dev, const BatchSize *size, unsigned arrays);
bool inputs_allocate(Inputs *in, Device *dev, Err *err); // false if out of memory
void inputs_free(Inputs *in, Device *dev);
// Enlarges an array while nothing reads it; its contents are lost, and networks must be connected again. False if out
// of memory; then nothing has changed.
bool inputs_grow(Inputs *in, Device *dev, BatchArray array, size_t bytes);

// Starts copying a batch to the device. It must not change until inputs_take has waited for it, or until the work
// queued after it is known to have run.
void inputs_stage(Inputs *in, Device *dev, const Batch *batch);
// Makes the staged batch the one that graphs read. `wait`: waits until it has arrived.
void inputs_take(const Inputs *in, Device *dev, bool wait);
// Connects a network's inputs to this memory.
void inputs_connect(const Inputs *in, Network *n);

// Sends n floats to the device as its reals, by device_upload or device_stage; and reads them back as doubles.
typedef void DeviceSend(Device *dev, void *dst, const void *host, size_t bytes);
void send_reals(Device *dev, DeviceSend *send, void *dst, const float *src, size_t n);
void fetch_reals(Device *dev, double *dst, const void *src, size_t n);
