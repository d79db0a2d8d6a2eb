#include "nn/device.h"
#include <stdlib.h>
#include <string.h>
#include "nn/ops.h"

enum { ALIGN = 64 };

Device *device_open(const char *name, Err *err) {
  const Ops *ops = !strcmp(name, "cpu") ? &ops_cpu : !strcmp(name, "cpu64") ? &ops_cpu64 : NULL;
  if (!ops) {
    err_set(err, "--device %s: this build knows cpu", name);
    return NULL;
  }
  // A table row left empty would be a jump to NULL in the middle of a run: refuse now.
  for (const char *p = (const char *)ops + sizeof ops->name; p < (const char *)(ops + 1); p += sizeof(void (*)(void))) {
    static const char zero[sizeof(void (*)(void))];
    CHECK(memcmp(p, zero, sizeof zero));
  }
  Device *dev = xcalloc(1, sizeof *dev);
  dev->ops = ops;
  dev->real = ops == &ops_cpu64 ? F64 : F32;
  return dev;
}

void device_close(Device *dev) {
  if (!dev) return;
  free(dev->scratch);
  free(dev);
}

void *device_alloc(Device *dev, size_t bytes) {
  (void)dev;
  size_t padded = (bytes + ALIGN - 1) / ALIGN * ALIGN + ALIGN;
  void *p = aligned_alloc(ALIGN, padded);
  return p ? memset(p, 0, padded) : NULL;
}

void device_free(Device *dev, void *p) {
  (void)dev;
  free(p);
}

void device_upload(Device *dev, void *dst, const void *host, size_t bytes) {
  (void)dev;
  if (bytes) memcpy(dst, host, bytes);
}

void device_download(Device *dev, void *host, const void *src, size_t bytes) {
  (void)dev;
  if (bytes) memcpy(host, src, bytes);
}

void device_zero(Device *dev, void *p, size_t bytes) {
  (void)dev;
  if (bytes) memset(p, 0, bytes);
}

void device_sync(Device *dev) { (void)dev; }

void *device_scratch(Device *dev, size_t bytes) {
  if (dev->measuring) {
    if (bytes > dev->scratch_bytes) dev->scratch_bytes = bytes;
    return NULL;
  }
  CHECK(bytes <= dev->scratch_bytes);
  return dev->scratch;
}

bool device_reserve_scratch(Device *dev, Err *err) {
  free(dev->scratch);
  dev->scratch = device_alloc(dev, dev->scratch_bytes);
  if (dev->scratch) return true;
  return err_set(err, "out of memory: %.1f MB of scratch asked for", (double)dev->scratch_bytes / 1e6);
}
