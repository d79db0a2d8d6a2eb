#include "engine/memory.h"
#include <string.h>
#include "base/contained.h"
#include "base/memory.h"

void memory_add(MemoryPlan *m, const char *name, MemorySpace space, size_t bytes, const char *options) {
  if (!bytes) return;
  CHECK(m->rows < MAX_MEMORY_ROWS);
  m->row[m->rows++] = (MemoryRow){name, space, bytes, options, false};
}

void memory_add_beside(MemoryPlan *m, const char *name, size_t bytes, const char *options) {
  memory_add(m, name, ON_DEVICE, bytes, options);
  if (bytes) m->row[m->rows - 1].beside = true;
}

size_t memory_sum(const MemoryPlan *m, MemorySpace space) {
  size_t sum = 0;
  for (int i = 0; i < m->rows; i++)
    if (m->row[i].space == space) sum += m->row[i].bytes;
  return sum;
}

static double mb(size_t bytes) { return (double)bytes / 1e6; }

// ---- pools ----------------------------------------------------------------------------------------------------------

// Memory that several spaces share: the GPU's, or the host's.
typedef struct MemoryPool {
  const char *name;
  bool space[MEMORY_SPACES]; // spaces that belong to the pool
  size_t free;               // that may be taken; SIZE_MAX: unknown
  bool limited;              // it is less than what there is
} MemoryPool;

static void pool_limit(MemoryPool *pool, size_t most) {
  pool->limited = most && most < pool->free;
  if (pool->limited) pool->free = most;
}

static MemoryPool device_pool(Device *dev) {
  size_t free = device_available(dev);
  return (MemoryPool){.name = dev->description, .space = {[ON_DEVICE] = true}, .free = free ? free : SIZE_MAX};
}

static MemoryPool host_pool(const Device *dev) {
  return (MemoryPool){.name = "the host",
                      .space = {[ON_DEVICE] = !dev->gpu, [ON_HOST] = true, [ON_HOST_LOCKED] = true},
                      .free = memory_left("")};
}

// The number of ranks that share a pool: every rank has its own device, unless the device is the CPU.
static size_t sharers(const MemoryPlan *m, const MemoryPool *pool) {
  return pool->space[ON_HOST] ? (size_t)MAX(m->ranks, 1) : 1;
}

static void sharers_text(const MemoryPlan *m, const MemoryPool *pool, char *text, size_t room) {
  *text = '\0';
  if (sharers(m, pool) > 1) snprintf(text, room, " for %d ranks", m->ranks);
}

static size_t pool_sum(const MemoryPlan *m, const MemoryPool *pool) {
  size_t sum = 0;
  for (MemorySpace p = 0; p < MEMORY_SPACES; p++)
    if (pool->space[p]) sum += memory_sum(m, p);
  return sum * sharers(m, pool);
}

static const MemoryRow *largest(const MemoryPlan *m, const MemoryPool *pool) {
  const MemoryRow *most = NULL;
  for (int i = 0; i < m->rows; i++)
    if (pool->space[m->row[i].space] && (!most || m->row[i].bytes > most->bytes)) most = &m->row[i];
  return most;
}

static void beside_text(const MemoryPlan *m, const MemoryPool *pool, char *text, size_t room) {
  *text = '\0';
  for (int i = 0; i < m->rows; i++)
    if (m->row[i].beside && pool->space[m->row[i].space]) {
      const size_t used = strlen(text);
      snprintf(text + used, room - used, "%s%.1f MB for the %s", used ? ", " : "; besides ", mb(m->row[i].bytes),
               m->row[i].name);
    }
}

static bool pool_fits(const MemoryPlan *m, const MemoryPool *pool, Err *err) {
  const size_t sum = pool_sum(m, pool);
  if (sum <= pool->free) return true;
  const MemoryRow *most = largest(m, pool);
  char ranks[40], beside[256];
  sharers_text(m, pool, ranks, sizeof ranks);
  beside_text(m, pool, beside, sizeof beside);
  return err_set(
      err, "too little memory: %.1f MB needed%s, %.1f MB %s on %s; the largest part, %.1f MB, is for the %s%s%s%s",
      mb(sum), ranks, mb(pool->free), pool->limited ? "allowed" : "free", pool->name, mb(most->bytes), most->name,
      most->options ? ": reduce " : "", most->options ? most->options : "", beside);
}

bool memory_fits(const MemoryPlan *m, Device *dev, Err *err) {
  MemoryPool gpu = device_pool(dev), host = host_pool(dev);
  pool_limit(&gpu, m->most_device);
  pool_limit(&host, m->most_host);
  if ((dev->gpu && !pool_fits(m, &gpu, err)) || !pool_fits(m, &host, err)) return false;
  const size_t now = pool_sum(m, &host), later = memory_sum(m, ON_HOST_LATER) * sharers(m, &host);
  if (now + later > host.free)
    warn("memory may run out: %.1f MB are needed now and about %.1f MB more later, but %.1f MB are free on %s", mb(now),
         mb(later), mb(host.free), host.name);
  return true;
}

// ---- text -----------------------------------------------------------------------------------------------------------

static void print_pool(const MemoryPlan *m, const MemoryPool *pool, FILE *out) {
  char ranks[40];
  sharers_text(m, pool, ranks, sizeof ranks);
  fprintf(out, "  %10.1f MB of %s%s", mb(pool_sum(m, pool)), pool->name, ranks);
  if (pool->free < SIZE_MAX) fprintf(out, ", %.1f MB free", mb(pool->free));
  fputc('\n', out);
}

void memory_print(const MemoryPlan *m, Device *dev, FILE *out) {
  static const char *const names[][MEMORY_SPACES] = {{"host", "host", "host", "host, later (estimate)"},
                                                     {"device", "host", "host, page-locked", "host, later (estimate)"}};
  fprintf(out, "memory:\n");
  for (int i = 0; i < m->rows; i++) {
    const MemoryRow *r = &m->row[i];
    fprintf(out, "  %10.1f MB  %-22s  %s%s%s%s\n", mb(r->bytes), names[dev->gpu][r->space], r->name,
            r->options ? " (reduce with " : "", r->options ? r->options : "", r->options ? ")" : "");
  }
  const MemoryPool gpu = device_pool(dev), host = host_pool(dev);
  fprintf(out, "allocated before the first step:\n");
  if (dev->gpu) print_pool(m, &gpu, out);
  print_pool(m, &host, out);
}

void memory_print_sums(const MemoryPlan *m, Device *dev, FILE *out) {
  const MemoryPool gpu = device_pool(dev), host = host_pool(dev);
  char ranks[40];
  sharers_text(m, &host, ranks, sizeof ranks);
  fprintf(out, "memory: ");
  if (dev->gpu) fprintf(out, "%.0f MB of %s, ", mb(pool_sum(m, &gpu)), gpu.name);
  fprintf(out, "%.0f MB of %s%s (--plan lists it)\n", mb(pool_sum(m, &host)), host.name, ranks);
}
