#include "inference/networks.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "include/maskrcnn.h"
#include "inference/network_options.h"
#include "lib/canvases.h"

// A result handed out by the runner: of a batch, or of all batches of an image's tiles.
typedef struct HandedOut {
  int each;                  // images per piece; the last one may have fewer
  int n;                     // number of pieces
  maskrcnn_results *piece[]; // in order; owned
} HandedOut;

// Tags of batches of tiles are odd; those of other batches are their addresses.
static uint64_t tile_tag(int batch) { return 2 * (uint64_t)batch + 1; }
static bool is_tile_tag(uint64_t tag) { return tag % 2; }

struct Networks {
  const InferOptions *o;
  const char *device;
  int top;            // classes of an image that results name; 0: all
  float min_score;    // of a detection
  CanvasSet canvases; // for ordinary images, a group for each canvas
  int64_t pixels;     // largest ordinary image
  maskrcnn *many;     // NULL: not open
  int batch;          // images that the handle computes at a time
  bool whole_batches; // memory must suffice for whole batches, rather than halving them
  int queue;          // capacity of the handle's queue, in images
  maskrcnn *single;
  Canvas single_canvas;
  int64_t single_pixels;
  HandedOut *tiles; // of the image that is computed in tiles
  bool (*stopped)(void);
  Speed *speed;           // is told of openings; NULL: nothing is
  bool told;              // the device was printed
  maskrcnn_status failed; // why nothing more can be computed
};

// ---- groups -----------------------------------------------------------------------------------------------------

// An image's group is its canvas; images without a canvas form one group, and tiled images another.
static int groups(const Networks *h) { return h->canvases.n + 2; }
static bool is_ordinary(const Networks *h, int group) { return group < h->canvases.n; }
static int single_group(const Networks *h) { return h->canvases.n; }
static int tiled_group(const Networks *h) { return h->canvases.n + 1; }

int networks_shape(const Networks *h, int group) { return is_ordinary(h, group) ? group : MAX_CANVASES; }

bool networks_tiled(const InferOptions *o, int h, int w) { return o->tile && MAX(h, w) > o->tile; }

TilePlan networks_tiles(const InferOptions *o, int h, int w) { return tiles_plan(h, w, o->tile, (double)o->overlap); }

// The canvas that holds the image, or the group of single images if there is none.
static int untiled_group(const Networks *h, int height, int width) {
  int rh, rw;
  if ((int64_t)height * width > h->pixels) return single_group(h);
  const int canvas = canvases_fit(&h->canvases, height, width, &rh, &rw);
  return canvas < 0 ? single_group(h) : canvas;
}

static int group_of(void *context, int height, int width) {
  const Networks *h = context;
  return networks_tiled(h->o, height, width) ? tiled_group(h) : untiled_group(h, height, width);
}

static int batch_of(void *context, int group) {
  const Networks *h = context;
  return is_ordinary(h, group) ? h->batch : 1;
}

// ---- opening ----------------------------------------------------------------------------------------------------

static void tell_device(Networks *h, maskrcnn *handle) {
  const maskrcnn_description *d = maskrcnn_describe(handle);
  if (*d->why_cpu && !h->told) fprintf(stderr, "device: %s; no GPU is used: %s\n", d->device, d->why_cpu);
  h->told = true;
}

static void take_message(const maskrcnn_error *why, Err *err) {
  err_set(err, "%s", why->message);
  program_words(err);
}

static maskrcnn_status open_handle(Networks *h, maskrcnn **handle, int batch, int64_t pixels, const CanvasSet *s,
                                   Err *err) {
  maskrcnn_size size[MAX_CANVASES];
  for (int i = 0; i < s->n; i++) size[i] = (maskrcnn_size){s->canvas[i].h, s->canvas[i].w};
  const double start = now_seconds();
  maskrcnn_options options = network_options(h->o, h->device);
  options.min_score = h->min_score;
  options.batch = batch;
  options.top = (size_t)h->top;
  options.queue = h->queue;
  options.max_pixels = pixels;
  options.canvases = s->square ? NULL : size; // with a square input, the canvas is the model's own
  options.num_canvases = s->square ? 0 : s->n;
  maskrcnn_error why;
  const maskrcnn_status status = maskrcnn_open(handle, &options, &why);
  if (status == MASKRCNN_OK)
    tell_device(h, *handle);
  else
    take_message(&why, err);
  if (h->speed) speed_opened(h->speed, now_seconds() - start);
  return status;
}

// ---- results ----------------------------------------------------------------------------------------------------

static HandedOut *handed_new(int most, int each) {
  HandedOut *p = xcalloc(1, sizeof *p + (size_t)most * sizeof p->piece[0]);
  p->each = each;
  return p;
}

static void handed_free(HandedOut *p) {
  for (int i = 0; p && i < p->n; i++) maskrcnn_results_free(p->piece[i]);
  free(p);
}

static HandedOut *handed_add(HandedOut *p, maskrcnn_results *results) {
  p->piece[p->n++] = results;
  return p;
}

static HandedOut *handed_of(maskrcnn_results *results) {
  return handed_add(handed_new(1, MAX(results->n, 1)), results);
}

const maskrcnn_result *networks_result(const void *results, int i) {
  const HandedOut *p = results;
  return p->piece[i / p->each]->images[i % p->each];
}

// Takes the handle's oldest results.
static QueueState take_next(Networks *h, BatchQueue *q, bool wait, Err *err) {
  maskrcnn_error why;
  maskrcnn_results *results;
  if (!h->many) return QUEUE_EMPTY;
  const maskrcnn_status status = maskrcnn_next(h->many, wait ? -1 : 0, &results, &why);
  if (status == MASKRCNN_EMPTY) return QUEUE_EMPTY;
  if (status == MASKRCNN_NOT_YET) return QUEUE_BUSY;
  if (status != MASKRCNN_OK) {
    h->failed = status;
    take_message(&why, err);
    return QUEUE_FAILS;
  }
  if (is_tile_tag(results->tag))
    handed_add(h->tiles, results);
  else
    queue_done(q, (QueuedBatch *)(uintptr_t)results->tag, handed_of(results), NULL); // NOLINT: our own pointer
  return QUEUE_DONE;
}

static QueueState next(void *context, BatchQueue *q, bool wait, Err *err) { return take_next(context, q, wait, err); }

static void release(void *context, void *results) {
  (void)context;
  handed_free(results);
}

// ---- many images ------------------------------------------------------------------------------------------------

// Opens the handle for h->batch images at a time, halving the number until memory suffices.
static maskrcnn_status open_many(Networks *h, Err *err) {
  for (;; h->batch /= 2) {
    const maskrcnn_status status = open_handle(h, &h->many, h->batch, h->pixels, &h->canvases, err);
    if (status != MASKRCNN_NO_MEMORY || h->batch == 1 || h->whole_batches) return status;
    fprintf(stderr, "%s; continuing with a batch of %d\n", err->msg, h->batch / 2);
  }
}

// Waits for all results of the handle.
static bool empty_many(Networks *h, BatchQueue *q, Err *err) {
  QueueState state;
  do state = take_next(h, q, true, err);
  while (state == QUEUE_DONE);
  return state == QUEUE_EMPTY;
}

// Reopens the handle for half as many images, to free memory for larger ones.
static maskrcnn_status halve(Networks *h, BatchQueue *q, Err *err) {
  fprintf(stderr, "%s; continuing with a batch of %d\n", err->msg, h->batch / 2);
  if (!empty_many(h, q, err)) return MASKRCNN_DEAD;
  maskrcnn_close(h->many);
  h->many = NULL;
  h->batch /= 2;
  return open_many(h, err);
}

static maskrcnn_status have_many(Networks *h, Err *err) { return h->many ? MASKRCNN_OK : open_many(h, err); }

// The status of the first image that could not be taken, with its message.
static maskrcnn_status refused(const maskrcnn_results *r, Err *err) {
  for (int i = 0; i < r->n; i++) {
    const maskrcnn_result *image = r->images[i];
    if (image->status == MASKRCNN_OK || image->status == MASKRCNN_CANCELLED) continue;
    err_set(err, "%s", image->message);
    program_words(err);
    return image->status;
  }
  return MASKRCNN_OK;
}

// Of a submission that was taken: all of its images, or none, with why.
static maskrcnn_status all_or_none(maskrcnn *handle, uint64_t tag, Err *err) {
  int failed = 0;
  maskrcnn_error why;
  maskrcnn_results *results;
  maskrcnn_status status = maskrcnn_poll(handle, tag, NULL, &failed, &why);
  if (status >= MASKRCNN_OK && !failed) return MASKRCNN_OK;
  if (status >= MASKRCNN_OK) status = maskrcnn_cancel(handle, tag, &why);
  if (status == MASKRCNN_OK) status = maskrcnn_wait(handle, tag, -1, &results, &why);
  if (status != MASKRCNN_OK) {
    take_message(&why, err);
    return status;
  }
  status = refused(results, err);
  maskrcnn_results_free(results);
  return status;
}

static maskrcnn_status submit(Networks *h, BatchQueue *q, const maskrcnn_image *image, int n, uint64_t tag, Err *err) {
  for (;;) {
    maskrcnn_error why;
    const maskrcnn_status status = maskrcnn_submit(h->many, image, n, tag, &why);
    if (status < 0) take_message(&why, err);
    if (status == MASKRCNN_OK) return all_or_none(h->many, tag, err);
    if (status != MASKRCNN_FULL) return status;
    if (take_next(h, q, true, err) != QUEUE_DONE) return MASKRCNN_DEAD;
  }
}

// Submits a batch of the queue.
static maskrcnn_status submit_batch(Networks *h, BatchQueue *q, QueuedBatch *b, const maskrcnn_image *image, Err *err) {
  const uint64_t tag = (uint64_t)(uintptr_t)b;
  maskrcnn_status status = have_many(h, err);
  if (status == MASKRCNN_OK) status = submit(h, q, image, b->images, tag, err);
  while (status == MASKRCNN_NO_MEMORY && h->many && h->batch > 1 && !h->whole_batches) {
    status = halve(h, q, err);
    if (status == MASKRCNN_OK) status = submit(h, q, image, b->images, tag, err);
  }
  return status;
}

// ---- single images ----------------------------------------------------------------------------------------------

static maskrcnn_status open_single(Networks *h, const maskrcnn_image *image, Err *err) {
  const int64_t pixels = (int64_t)image->height * image->width;
  const CanvasSet s = canvases_for(&h->canvases, image->height, image->width);
  const bool same = h->single_canvas.h == s.canvas[0].h && h->single_canvas.w == s.canvas[0].w;
  if (h->single && same && h->single_pixels >= pixels) return MASKRCNN_OK;
  maskrcnn_close(h->single);
  h->single = NULL;
  h->single_canvas = s.canvas[0];
  h->single_pixels = pixels;
  return open_handle(h, &h->single, 1, pixels, &s, err);
}

static maskrcnn_status run_single(Networks *h, BatchQueue *q, QueuedBatch *b, const maskrcnn_image *image, Err *err) {
  maskrcnn_error why;
  maskrcnn_results *results;
  maskrcnn_status status = open_single(h, image, err);
  if (status) return status;
  status = maskrcnn_run(h->single, image, 1, &results, &why);
  if (status != MASKRCNN_OK) {
    take_message(&why, err);
    return status;
  }
  status = refused(results, err);
  if (status == MASKRCNN_OK)
    queue_done(q, b, handed_of(results), NULL);
  else
    maskrcnn_results_free(results);
  return status;
}

// ---- tiles ------------------------------------------------------------------------------------------------------

// All tiles of an image, which are all of the same size and point into its rows. malloc'ed.
static maskrcnn_image *cut_tiles(const TilePlan *plan, const maskrcnn_image *image) {
  const int n = tiles_count(plan);
  const int64_t pitch = 3 * (int64_t)image->width;
  maskrcnn_image *tiles = xcalloc((size_t)n, sizeof *tiles);
  for (int i = 0; i < n; i++) {
    const PixelRect r = tiles_at(plan, i);
    tiles[i] = *image;
    tiles[i].data = (const uint8_t *)image->data + r.y1 * pitch + 3 * r.x1;
    tiles[i].width = r.x2 - r.x1;
    tiles[i].height = r.y2 - r.y1;
    tiles[i].pitch = pitch;
  }
  return tiles;
}

// Prints progress every two seconds.
static void show_tiles(double *shown, int done, int all) {
  static const double SECONDS = 2;
  const double now = now_seconds();
  if (now - *shown < SECONDS) return;
  fprintf(stderr, "tile %d of %d\n", done, all);
  *shown = now;
}

// Submits tiles in batches, so that a request to stop is noticed between them. h->tiles counts all submitted pieces.
static maskrcnn_status submit_tiles(Networks *h, BatchQueue *q, const maskrcnn_image *tiles, int n, Err *err) {
  maskrcnn_status status = MASKRCNN_OK;
  const int each = h->tiles->each, batches = (n + each - 1) / each;
  int begun = 0;
  double shown = now_seconds();
  for (; begun < batches && status == MASKRCNN_OK && !h->stopped(); begun += status == MASKRCNN_OK) {
    status = submit(h, q, tiles + begun * each, MIN(each, n - begun * each), tile_tag(begun), err);
    show_tiles(&shown, h->tiles->n * each, n);
  }
  while (h->tiles->n < begun && status != MASKRCNN_DEAD) {
    if (take_next(h, q, true, err) != QUEUE_DONE) return MASKRCNN_DEAD;
    show_tiles(&shown, MIN(n, h->tiles->n * each), n);
  }
  return status;
}

static maskrcnn_status run_tiles(Networks *h, BatchQueue *q, QueuedBatch *b, const maskrcnn_image *image, Err *err) {
  const TilePlan plan = networks_tiles(h->o, image->height, image->width);
  const int n = tiles_count(&plan), group = untiled_group(h, plan.tile_h, plan.tile_w);
  if (!is_ordinary(h, group)) {
    err_set(err, "tiles of %d x %d pixels are too large or too elongated: use a smaller --tile", plan.tile_w,
            plan.tile_h);
    return MASKRCNN_BAD_IMAGE;
  }
  maskrcnn_status status = have_many(h, err);
  if (status) return status;
  const int batches = (n + h->batch - 1) / h->batch;
  maskrcnn_image *tiles = cut_tiles(&plan, image);
  h->tiles = handed_new(batches, h->batch);
  status = submit_tiles(h, q, tiles, n, err);
  free(tiles);
  const bool whole = status == MASKRCNN_OK && h->tiles->n == batches;
  if (!whole) handed_free(h->tiles);
  if (whole)
    queue_done(q, b, h->tiles, NULL);
  else if (status == MASKRCNN_OK)
    queue_dropped(q, b);
  h->tiles = NULL;
  return status;
}

// ---- the runner -------------------------------------------------------------------------------------------------

static bool start(void *context, BatchQueue *q, QueuedBatch *b, const Image *const *image, Err *err) {
  Networks *h = context;
  maskrcnn_status status;
  maskrcnn_image *images = xcalloc((size_t)b->images, sizeof *images);
  for (int i = 0; i < b->images; i++)
    images[i] = (maskrcnn_image){.size = sizeof images[i],
                                 .data = image[i]->rgb,
                                 .format = MASKRCNN_RGB,
                                 .width = image[i]->w,
                                 .height = image[i]->h};
  if (b->group == single_group(h))
    status = run_single(h, q, b, images, err);
  else if (b->group == tiled_group(h))
    status = run_tiles(h, q, b, images, err);
  else
    status = submit_batch(h, q, b, images, err);
  free(images);
  // Lack of memory and unsupported images concern only these images; any other failure concerns all images.
  const bool theirs_alone = status == MASKRCNN_NO_MEMORY || status == MASKRCNN_BAD_IMAGE;
  if (theirs_alone) queue_done(q, b, NULL, err);
  if (!theirs_alone) h->failed = status;
  return status == MASKRCNN_OK || theirs_alone;
}

Runner networks_runner(Networks *h) {
  return (Runner){.context = h,
                  .groups = groups(h),
                  .under_way = NETWORKS_UNDER_WAY,
                  .group = group_of,
                  .batch = batch_of,
                  .start = start,
                  .next = next,
                  .release = release};
}

static Networks *networks_new(const InferRun *run, int batch) {
  Networks *h = xcalloc(1, sizeof *h);
  h->o = run->o;
  h->min_score = run->config->min_score;
  h->batch = batch;
  h->queue = NETWORKS_UNDER_WAY * batch;
  return h;
}

Networks *networks_of_named(const InferRun *run, int batch, Speed *speed, bool (*stopped)(void)) {
  enum { ORDINARY_PIXELS = 64 << 20 };
  Networks *h = networks_new(run, batch);
  const Resize resize = resize_of(run->config);
  h->device = run->o->device;
  h->top = run->o->top;
  h->canvases = canvases_of_most(&resize, model_of(run->config)->square);
  h->pixels = ORDINARY_PIXELS;
  h->speed = speed;
  h->stopped = stopped;
  return h;
}

Networks *networks_of_set(const InferRun *run, const Dataset *d, int top) {
  Networks *h = networks_new(run, run->o->batch);
  const Resize resize = resize_of(run->config);
  h->device = run->job->device;
  h->top = top;
  h->canvases = canvases_given(&resize, model_of(run->config)->square, d->canvas, d->num_canvases);
  h->pixels = MAX(d->max_bytes / 3, 1);
  h->whole_batches = true;
  h->told = run->job->launch.rank > 0;
  return h;
}

maskrcnn *networks_ordinary(Networks *h, maskrcnn_status *status, Err *err) {
  *status = have_many(h, err);
  return h->many;
}

int networks_exit(const Networks *h) { return h->failed == MASKRCNN_DEAD ? EXIT_RUN : EXIT_USAGE; }

void networks_close(Networks *h) {
  if (!h) return;
  maskrcnn_close(h->many);
  maskrcnn_close(h->single);
  free(h);
}
