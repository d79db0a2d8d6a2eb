#include "inference/handle_finder.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "inference/handle_options.h"

enum { AHEAD = 3 }; // batches: one that crosses, one that is computed, one whose results are made

typedef struct StartedBatch { // of a batch that was started
  const Batch *batch;
  maskrcnn_results *results; // what its detections are views of; NULL: not there yet
  Detection *item;           // [images × detections per image]
  int *place;                // [images] in the batch, of each image that was submitted
  double started;
} StartedBatch;

struct HandleFinder {
  maskrcnn *handle;
  int images; // of a batch
  maskrcnn_image *image;
  StartedBatch slot[AHEAD];    // batch s uses slot s % AHEAD
  int64_t started, handed_out; // batches
};

// ---- opening ----------------------------------------------------------------------------------------------------

static maskrcnn_status open_handle(HandleFinder *f, const InferOptions *o, const char *device, const Dataset *d,
                                   Err *err) {
  maskrcnn_size canvas[MAX_CANVASES];
  maskrcnn_options options = handle_options(o, device);
  for (int i = 0; i < d->num_canvases; i++) canvas[i] = (maskrcnn_size){d->canvas[i].h, d->canvas[i].w};
  options.batch = o->batch;
  options.queue = AHEAD * o->batch;
  options.max_pixels = MAX(d->max_bytes / 3, 1);
  options.canvases = d->kind->mapped ? NULL : canvas;
  options.num_canvases = d->kind->mapped ? 0 : d->num_canvases;
  return maskrcnn_open(&f->handle, &options, err->msg, sizeof err->msg);
}

HandleFinder *handle_finder_open(const InferOptions *o, const char *device, const Dataset *d, Err *err) {
  HandleFinder *f = xcalloc(1, sizeof *f);
  Err why;
  const maskrcnn_status status = open_handle(f, o, device, d, &why);
  if (status != MASKRCNN_OK) {
    free(f);
    if (status == MASKRCNN_BAD_DEVICE) device_close(device_open(device, err)); // it says so by itself
    program_words(&why);
    if (status != MASKRCNN_BAD_DEVICE) err_set(err, "%s", why.msg);
    return NULL;
  }
  const size_t rows = (size_t)o->batch * (size_t)maskrcnn_describe(f->handle)->detections_per_image;
  f->images = o->batch;
  f->image = xcalloc((size_t)o->batch, sizeof *f->image);
  for (int i = 0; i < AHEAD; i++) {
    f->slot[i].item = xcalloc(rows, sizeof *f->slot[i].item);
    f->slot[i].place = xcalloc((size_t)o->batch, sizeof *f->slot[i].place);
  }
  return f;
}

void handle_finder_close(HandleFinder *f) {
  if (!f) return;
  for (int i = 0; i < AHEAD; i++) {
    maskrcnn_results_free(f->slot[i].results);
    free(f->slot[i].item);
    free(f->slot[i].place);
  }
  maskrcnn_close(f->handle);
  free(f->image);
  free(f);
}

// ---- finding ----------------------------------------------------------------------------------------------------

// Where the network has failed, the line says already what stands: a handle's thread is one of this program's.
static NORETURN void fail(const HandleFinder *f, maskrcnn_status status) {
  Err err;
  err_set(&err, "%s", maskrcnn_message(f->handle));
  program_words(&err);
  if (status == MASKRCNN_DEAD) die(EXIT_RUN, "%s", err.msg);
  die_unforeseen("%s", err.msg);
}

// Empty places are left out.
static void find(void *context, const Batch *batch) {
  HandleFinder *f = context;
  StartedBatch *s = &f->slot[f->started++ % AHEAD];
  int n = 0;
  maskrcnn_results_free(s->results);
  *s = (StartedBatch){.batch = batch, .item = s->item, .place = s->place, .started = now_seconds()};
  for (int i = 0; i < batch->images; i++) {
    const ImageInfo *info = &batch->info[i];
    if (batch->index[i] < 0) continue;
    s->place[n] = i;
    f->image[n++] = (maskrcnn_image){.rgb = batch->bytes + info->offset, .width = info->w, .height = info->h};
  }
  const maskrcnn_status status = maskrcnn_submit(f->handle, f->image, n, 0);
  if (status != MASKRCNN_OK) fail(f, status);
}

static int view(const maskrcnn_detections *d, int place, Detection *to) {
  for (int i = 0; i < d->n; i++) {
    const maskrcnn_rle *m = d->masks[i];
    to[i] = (Detection){.image = place,
                        .label = d->labels[i],
                        .score = d->scores[i],
                        .mask = {.h = m->height, .w = m->width, .n = m->num_counts, .runs = (uint32_t *)m->counts}};
    memcpy(to[i].box, d->boxes + 4 * i, sizeof to[i].box);
  }
  return d->n;
}

// The oldest batch that was not handed out, with its results; NULL: there is none.
static StartedBatch *take(HandleFinder *f) {
  if (f->handed_out == f->started) return NULL;
  StartedBatch *s = &f->slot[f->handed_out++ % AHEAD];
  const maskrcnn_status status = maskrcnn_next(f->handle, 1, &s->results);
  if (status != MASKRCNN_OK) fail(f, status);
  return s;
}

bool handle_finder_take(HandleFinder *f, Taken *out) {
  const StartedBatch *s = take(f);
  if (s) *out = (Taken){s->batch, s->results, s->place, s->started};
  return s;
}

static bool found(void *context, Found *out) {
  StartedBatch *s = take(context);
  if (!s) return false;
  *out = (Found){.batch = s->batch, .detections.items = s->item, .started = s->started};
  for (int i = 0; i < s->results->n; i++)
    out->detections.n += view(s->results->images[i]->detections, s->place[i], s->item + out->detections.n);
  return true;
}

Finder handle_finder(HandleFinder *f, const Category *category, double box_extra) {
  return (Finder){.context = f,
                  .find = find,
                  .found = found,
                  .ahead = AHEAD,
                  .images = f->images,
                  .prefetch = PREFETCH,
                  .category = category,
                  .box_extra = box_extra};
}

maskrcnn *handle_finder_handle(HandleFinder *f) { return f->handle; }
