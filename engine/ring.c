#include "engine/ring.h"

bool ring_allocate(Ring *r, Device *dev, size_t bytes) {
  *r = (Ring){.bytes = bytes};
  return !bytes || (r->block = device_host_alloc(dev, bytes));
}

void ring_free(Ring *r, Device *dev) {
  CHECK(!r->pieces);
  if (r->block) device_host_free(dev, r->block);
  *r = (Ring){0};
}

static void *ring_take(void *ring, size_t bytes) {
  Ring *r = ring;
  if (bytes > r->bytes - r->used) return NULL;
  r->pieces++;
  r->used += bytes;
  return r->block + r->used - bytes;
}

static void ring_give(void *ring, void *piece) {
  (void)piece;
  Ring *r = ring;
  if (--r->pieces == 0) r->used = 0;
}

HostMemory ring_memory(Ring *r) { return (HostMemory){ring_take, ring_give, r}; }
