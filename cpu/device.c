// The CPU as a device: copies are synchronous, there is no stream.
#include "nn/device.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include "nn/timing.h"

enum { ALIGN = 64 };

static bool cpu_open(Device *dev, Err *err) {
  (void)err;
  const int threads = omp_get_max_threads();
  snprintf(dev->description, sizeof dev->description, "CPU, %d thread%s", threads, threads == 1 ? "" : "s");
  return true;
}
static void cpu_nothing(Device *dev) { (void)dev; }
static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN; }
static void *cpu_host_alloc(Device *dev, size_t bytes) {
  (void)dev;
  return aligned_alloc(ALIGN, padded(bytes));
}
static void *cpu_alloc(Device *dev, size_t bytes) {
  void *p = cpu_host_alloc(dev, bytes);
  return p ? memset(p, 0, padded(bytes)) : NULL;
}
static void cpu_free(Device *dev, void *p) {
  (void)dev;
  free(p);
}
static void cpu_copy(Device *dev, void *dst, const void *src, size_t bytes) {
  (void)dev;
  if (bytes) memcpy(dst, src, bytes);
}
static void cpu_zero(Device *dev, void *p, size_t bytes) {
  (void)dev;
  if (bytes) memset(p, 0, bytes);
}
static bool cpu_idle(Device *dev) {
  (void)dev;
  return true;
}
const Memory memory_cpu = {.open = cpu_open,
                           .close = cpu_nothing,
                           .alloc = cpu_alloc,
                           .free = cpu_free,
                           .upload = cpu_copy,
                           .download = cpu_copy,
                           .copy = cpu_copy,
                           .zero = cpu_zero,
                           .sync = cpu_nothing,
                           .idle = cpu_idle,
                           .host_alloc = cpu_host_alloc,
                           .host_free = cpu_free,
                           .fetch = cpu_copy,
                           .save = cpu_copy,
                           .save_wait = cpu_idle,
                           .stage = cpu_copy,
                           .stage_wait = cpu_nothing,
                           .stage_join = cpu_nothing,
                           .stage_next = cpu_nothing,
                           .timing = &timing_cpu};
