// The CPU as a device: copies are synchronous, there is no stream.
#include "nn/device.h"
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/cpu_level.h"
#include "nn/ops.h"
#include "nn/rung.h"
#include "nn/timing.h"

// Both are cpu/conv/; `reference` reads filters as they are.
static const Rung reference = {.name = "reference"}, packed = {.name = "packed", .packs = true};
static const Rung *const rungs[] = {&reference, &packed, NULL};

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

// The highest level that this CPU has and that the ops were compiled for; 0: they were compiled for MARCH alone.
static int best_level(const Ops *const *levels) {
  int level = MIN(cpu_level(), MAX_CPU_LEVEL);
  while (level && !levels[level]) level--;
  return level;
}

const Ops *ops_of_cpu(void) {
  const int level = best_level(ops_cpu_levels);
  return level ? ops_cpu_levels[level] : &ops_cpu;
}

static bool cpu_open(Device *dev, Err *err) {
  const Ops *const *levels = dev->real == F64 ? ops_cpu64_levels : ops_cpu_levels;
  const int threads = omp_get_max_threads(), best = best_level(levels), level = dev->index ? dev->index : best;
  if (level > best || (level && !levels[level])) return err_set(err, "this CPU or this build has no x86-64-v%d", level);
  int n = snprintf(dev->description, sizeof dev->description, "CPU, %d thread%s", threads, threads == 1 ? "" : "s");
  if (level) snprintf(dev->description + n, sizeof dev->description - n, ", x86-64-v%d", level);
  if (level) dev->ops = levels[level];
  if (dev->real == F32) dev->conv_rungs = rungs;
  return true;
}
static void cpu_nothing(Device *dev) { (void)dev; }
static size_t padded(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN; }
// Large blocks in huge pages, where the system has them on request: with small ones the processor looks up addresses
// for much of the time in which it streams through activations and filters.
static void *cpu_host_alloc(Device *dev, size_t bytes) {
  (void)dev;
  if (bytes < 4 * (size_t)HUGE_PAGE) return aligned_alloc(ALIGN, padded(bytes));
  const size_t whole = (padded(bytes) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  void *p = aligned_alloc(HUGE_PAGE, whole);
  if (p) madvise(p, whole, MADV_HUGEPAGE);
  return p;
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
