#include "engine/slots.h"
#include <stdlib.h>
#include "base/alloc.h"

size_t slots_bytes(const Device *dev) {
  const StepSlot *s = NULL;
  return STEPS_UNDER_WAY * (SLOT_REALS * dtype_size(dev->real) + MAX_COUNTERS * sizeof *s->count + sizeof *s->step);
}

bool slots_allocate(StepSlot *slot, Device *dev, int images, Err *err) {
  for (int i = 0; i < STEPS_UNDER_WAY; i++) {
    StepSlot *s = &slot[i];
    s->real = device_host_alloc(dev, SLOT_REALS * dtype_size(dev->real));
    s->count = device_host_alloc(dev, MAX_COUNTERS * sizeof *s->count);
    s->step = device_host_alloc(dev, sizeof *s->step);
    s->index = xcalloc((size_t)images, sizeof *s->index);
    if (!s->real || !s->count || !s->step) return err_memory(err, slots_bytes(dev), "the results of steps", NULL);
  }
  return true;
}

void slots_free(StepSlot *slot, Device *dev) {
  for (int i = 0; i < STEPS_UNDER_WAY; i++) {
    device_host_free(dev, slot[i].real);
    device_host_free(dev, slot[i].count);
    device_host_free(dev, slot[i].step);
    free(slot[i].index);
  }
}

void *slot_at(const Device *dev, const StepSlot *s, int i) {
  return (char *)s->real + (size_t)i * dtype_size(dev->real);
}

double slot_real(const Device *dev, const StepSlot *s, int i) {
  return dev->real == F64 ? ((const double *)s->real)[i] : (double)((const float *)s->real)[i];
}

void slot_set(const Device *dev, StepSlot *s, int i, float v) {
  if (dev->real == F64)
    ((double *)s->real)[i] = v;
  else
    ((float *)s->real)[i] = v;
}
