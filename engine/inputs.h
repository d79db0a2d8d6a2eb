// Inputs: device memory for one batch, each array twice, because the next batch is copied to the device while the graph
// still reads this one. A batch is copied to `staged` while the previous step computes; its own step begins by moving
// it to `data`.
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
    void *data, *staged;
    size_t room, used;   // bytes
  } array[BATCH_ARRAYS]; // room 0: the model does not read it
} Inputs;

// How much there is of each array that `arrays` (BATCH_BIT) names, for batches up to `size`; returns the bytes of all.
size_t inputs_plan(Inputs *in, const Device *dev, const BatchSize *size, unsigned arrays);
bool inputs_allocate(Inputs *in, Device *dev, Err *err); // false when memory is out
void inputs_free(Inputs *in, Device *dev);
// Gives an array more room, while nothing reads it; what it held is lost, and networks have to be connected again.
// False when memory is out, and nothing has changed.
bool inputs_grow(Inputs *in, Device *dev, BatchArray array, size_t bytes);

// Begins to copy a batch to the device. It must stay as it is until inputs_take has waited for it, or what is queued
// then is known to have run.
void inputs_stage(Inputs *in, Device *dev, const Batch *batch);
// The staged batch becomes the one that graphs read from here on. `wait`: once the host has seen it arrive.
void inputs_take(const Inputs *in, Device *dev, bool wait);
// Lets a network read from here.
void inputs_connect(const Inputs *in, Network *n);

// `n` floats as reals of the device, by device_upload or device_stage; and back, as doubles.
typedef void DeviceSend(Device *dev, void *dst, const void *host, size_t bytes);
void send_reals(Device *dev, DeviceSend *send, void *dst, const float *src, size_t n);
void fetch_reals(Device *dev, double *dst, const void *src, size_t n);
