#include "inference/start.h"
#include "base/alloc.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "nn/device.h"

int start_batch_of(const InferOptions *o, int named, bool list) {
  enum { ON_GPU = 8 };
  Err err;
  Device *dev = (o->sync_nodes ? device_open_waiting : device_open)(o->device, &err);
  if (!dev) die(err_exit(&err), "%s", err.msg);
  const bool gpu = dev->gpu;
  device_close(dev);
  const char *needs = o->amp ? "amp" : o->tf32 ? "tf32" : NULL;
  if (needs && !gpu) die(EXIT_USAGE, "--%s needs a GPU, but this run uses the CPU", needs);
  if (o->batch) return o->batch;
  const int batch = gpu ? ON_GPU : 1;
  return list ? batch : MIN(batch, MAX(named, 1));
}

Decoders *start_decoders(const InferOptions *o, SampleRange range, Sources *sources, int images, int batch) {
  // The limit on decoded pixels in bytes: two batches and sixteen images of 24 megapixels, and at most an eighth of the
  // remaining memory.
  static const size_t MOST = (size_t)5 << 29, PART = 8;
  Err err;
  DecodersOptions options = {
      .threads = o->threads ? o->threads : parallel_cores(), .upright = o->exif == EXIF_YES, .range = range};
  options.ahead = 2 * options.threads + batch;
  options.bytes = MIN(MOST, memory_left("") / PART);
  if (images) options.threads = MIN(options.threads, images);
  Decoders *d = decoders_open(sources, &options, &err);
  if (!d) die(EXIT_RUN, "%s", err.msg);
  return d;
}
