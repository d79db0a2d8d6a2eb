#include "engine/inputs.h"
#include <stdlib.h>
#include "base/alloc.h"

// ---- memory -----------------------------------------------------------------------------------------------------

static size_t device_element(const Device *dev, BatchArray array) {
  return batch_layout[array].is_real ? dtype_size(dev->real) : batch_layout[array].element;
}

// The CPU has computed a step before the next batch is staged.
static int copies(const Device *dev) { return dev->gpu ? 2 : 1; }

size_t inputs_plan(Inputs *in, const Device *dev, const BatchSize *size, unsigned arrays) {
  size_t total = 0;
  *in = (Inputs){.images = size->images, .capacity = size->capacity};
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    if (arrays & BATCH_BIT(a)) in->array[a].room = batch_elements(size, a) * device_element(dev, a);
    total += (size_t)copies(dev) * in->array[a].room;
  }
  return total;
}

bool inputs_allocate(Inputs *in, Device *dev, Err *err) {
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    if (!in->array[a].room) continue;
    in->array[a].data = device_alloc(dev, in->array[a].room);
    in->array[a].staged = copies(dev) == 1 ? in->array[a].data : device_alloc(dev, in->array[a].room);
    if (!in->array[a].data || !in->array[a].staged)
      return err_memory(err, (size_t)copies(dev) * in->array[a].room, "the inputs", "--batch");
  }
  device_stage_next(dev); // device_alloc has queued zeros
  return true;
}

static void free_array(Inputs *in, Device *dev, BatchArray a) {
  device_free(dev, in->array[a].data);
  if (in->array[a].staged != in->array[a].data) device_free(dev, in->array[a].staged);
}

void inputs_free(Inputs *in, Device *dev) {
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) free_array(in, dev, a);
}

bool inputs_grow(Inputs *in, Device *dev, BatchArray a, size_t bytes) {
  void *data = device_alloc(dev, bytes), *staged = copies(dev) == 1 || !data ? data : device_alloc(dev, bytes);
  if (!staged) {
    device_free(dev, data);
    return false;
  }
  free_array(in, dev, a);
  in->array[a].data = data;
  in->array[a].staged = staged;
  in->array[a].room = bytes;
  device_stage_next(dev); // device_alloc has queued zeros
  return true;
}

// ---- copying a batch to the device ------------------------------------------------------------------------------

void send_reals(Device *dev, DeviceSend *send, void *dst, const float *src, size_t n) {
  if (dev->real == F32) {
    send(dev, dst, src, n * sizeof *src);
    return;
  }
  double *wide = xmalloc(n * sizeof *wide);
  for (size_t i = 0; i < n; i++) wide[i] = src[i];
  send(dev, dst, wide, n * sizeof *wide); // the CPU copies synchronously
  free(wide);
}

void fetch_reals(Device *dev, double *dst, const void *src, size_t n) {
  if (dev->real == F64) {
    device_download(dev, dst, src, n * sizeof *dst);
    return;
  }
  float *narrow = xmalloc(n * sizeof *narrow);
  device_download(dev, narrow, src, n * sizeof *narrow);
  for (size_t i = 0; i < n; i++) dst[i] = narrow[i];
  free(narrow);
}

void inputs_stage(Inputs *in, Device *dev, const Batch *b) {
  const BatchSize size = batch_size(b);
  CHECK(b->images == in->images);
  in->canvas = b->canvas;
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) {
    if (!in->array[a].room) continue;
    CHECK(batch_layout[a].extent != PER_OBJECT || b->capacity == in->capacity);
    const size_t n = batch_elements(&size, a);
    in->array[a].used = n * device_element(dev, a);
    CHECK(in->array[a].used <= in->array[a].room);
    if (batch_layout[a].is_real)
      send_reals(dev, device_stage, in->array[a].staged, batch_array(b, a), n);
    else
      device_stage(dev, in->array[a].staged, batch_array(b, a), in->array[a].used);
  }
}

void inputs_take(const Inputs *in, Device *dev, bool wait) {
  (wait ? device_stage_wait : device_stage_join)(dev);
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++)
    if (in->array[a].staged != in->array[a].data)
      device_copy(dev, in->array[a].data, in->array[a].staged, in->array[a].used);
  device_stage_next(dev);
}

void inputs_connect(const Inputs *in, Network *n) {
  const void *array[BATCH_ARRAYS];
  for (BatchArray a = 0; a < BATCH_ARRAYS; a++) array[a] = in->array[a].data;
  network_connect(n, array);
}
