// A loader's batches in memory that is taken once.
#include "engine/ring.h"
#include "test/harness/test.h"

TEST(ring_is_handed_out_again) {
  Err err;
  Device *dev = device_open("cpu", &err);
  Ring r;
  CHECK(dev && ring_allocate(&r, dev, 300));
  const HostMemory m = ring_memory(&r);
  for (int round = 0; round < 2; round++) {
    char *a = m.alloc(m.context, 100), *b = m.alloc(m.context, 200);
    EXPECT(a == r.block && b == a + 100 && !m.alloc(m.context, 1));
    m.free(m.context, a);
    EXPECT(!m.alloc(m.context, 1)); // only once all are back
    m.free(m.context, b);
  }
  ring_free(&r, dev);
  EXPECT(ring_allocate(&r, dev, 0));
  EXPECT(!r.block && !ring_memory(&r).alloc(&r, 1));
  ring_free(&r, dev);
  device_close(dev);
}
