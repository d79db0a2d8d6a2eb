#include "evaluation/engine_distribute.h"

bool engine_distribute_batches(Engine *e, const Dataset *d, int threads, BatchWork work, Err *err) {
  const LoaderOptions options = {.batch = e->infer.shapes.images,
                                 .threads = threads,
                                 .prefetch = e->infer.shapes.prefetch,
                                 .held = BATCHES_UNDER_WAY,
                                 .memory = ring_memory(&e->infer.ring)};
  work.ahead = BATCHES_UNDER_WAY;
  return distribute_batches(e->comm, d, &options, &work, err);
}
