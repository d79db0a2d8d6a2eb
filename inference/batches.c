#include "inference/batches.h"
#include <stdlib.h>
#include "base/alloc.h"

Image batches_image(const Batch *batch, int position) {
  const ImageInfo *info = &batch->info[position];
  return (Image){.h = info->h, .w = info->w, .rgb = batch->bytes + info->offset};
}

void batches_begin(BatchQueue *q, const Batch *batch) {
  Err err;
  int n = 0;
  Image *image = xcalloc((size_t)batch->images, sizeof *image);
  const Image **each = xcalloc((size_t)batch->images, sizeof *each);
  for (int i = 0; i < batch->images; i++) {
    if (batch->index[i] < 0) continue;
    image[n] = batches_image(batch, i);
    each[n] = &image[n];
    n++;
  }
  // Prints the message without a prefix: it already names the reason.
  if (!queue_begin(q, batch->canvas, each, n, (void *)batch, &err)) die(EXIT_RUN, "%s", err.msg);
  free(each);
  free(image);
}

QueuedBatch *batches_next(BatchQueue *q) {
  QueuedBatch *b;
  Err err;
  const QueueState state = queue_next(q, true, &b, &err);
  if (state == QUEUE_FAILS) die(EXIT_RUN, "%s", err.msg);
  CHECK(state == QUEUE_DONE);
  if (!b->results) die_unforeseen("%s", b->why->msg);
  return b;
}
