#include "evaluation/engine_rounds.h"

bool engine_rounds(Engine *e, const Dataset *d, int threads, RoundWork work, Err *err) {
  const LoaderOptions options = {.batch = e->infer.shapes.images,
                                 .threads = threads,
                                 .prefetch = e->infer.shapes.prefetch,
                                 .held = BATCHES_UNDER_WAY,
                                 .memory = ring_memory(&e->infer.ring)};
  work.ahead = BATCHES_UNDER_WAY;
  return rounds_run(e->comm, d, &options, &work, err);
}
