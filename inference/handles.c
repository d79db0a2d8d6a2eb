#include "inference/handles.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "include/maskrcnn.h"
#include "inference/handle_options.h"
#include "lib/canvases.h"
#include "lib/kinds.h"

enum { ORDINARY_PIXELS = 64 << 20 }; // of an image, at most

// What the runner hands out: results of a batch, or of all batches of an image's tiles.
typedef struct HandedOut {
  int each;                  // images of a piece, the last one's apart
  int n;                     // that are there
  maskrcnn_results *piece[]; // in order; owned
} HandedOut;

enum { TILES = UINT8_MAX }; // tag of a batch of tiles: a stream's are lower

typedef struct Ready { // a batch that is done
  RunnerDone done;
  struct Ready *next;
} Ready;

struct Handles {
  const InferOptions *o;
  CanvasSet canvases;
  maskrcnn *many; // NULL: not open
  int batch;      // images that it computes at a time
  int queue;      // images that it takes
  int under_way;  // batches that it has and has not given back
  maskrcnn *single;
  Canvas single_canvas;
  int64_t single_pixels;
  Ready *first, **last; // done and not handed out
  HandedOut *tiles;     // of the image that is computed in tiles
  bool (*stopped)(void);
  Speed *speed;
  bool told;              // which device it is
  maskrcnn_status failed; // why nothing more can be computed
};

// ---- groups -----------------------------------------------------------------------------------------------------

// An image belongs to a canvas by its shape; all that have no place there are a group, and so are those that are cut
// into tiles.
static int groups(const Handles *h) { return h->canvases.n + 2; }
static bool is_ordinary(const Handles *h, int group) { return group < h->canvases.n; }
static int single_group(const Handles *h) { return h->canvases.n; }
static int tiled_group(const Handles *h) { return h->canvases.n + 1; }

int handles_shape(const Handles *h, int group) { return is_ordinary(h, group) ? group : MAX_CANVASES; }

bool handles_tiled(const InferOptions *o, int h, int w) { return o->tile && MAX(h, w) > o->tile; }

TilePlan handles_tiles(const InferOptions *o, int h, int w) { return tiles_plan(h, w, o->tile, (double)o->overlap); }

// The canvas that holds the image, or the group of single images where there is none.
static int untiled_group(const Handles *h, int height, int width) {
  int rh, rw;
  if ((int64_t)height * width > ORDINARY_PIXELS) return single_group(h);
  const int place = canvases_place(&h->canvases, height, width, &rh, &rw);
  return place < 0 ? single_group(h) : place;
}

static int group_of(void *context, int height, int width) {
  const Handles *h = context;
  return handles_tiled(h->o, height, width) ? tiled_group(h) : untiled_group(h, height, width);
}

static int batch_of(void *context, int group) {
  const Handles *h = context;
  return is_ordinary(h, group) ? h->batch : 1;
}

// ---- opening ----------------------------------------------------------------------------------------------------

static void tell_device(Handles *h, maskrcnn *handle) {
  const maskrcnn_description *d = maskrcnn_describe(handle);
  if (*d->why_cpu && !h->told) fprintf(stderr, "device: %s; not a GPU: %s\n", d->device, d->why_cpu);
  h->told = true;
}

static maskrcnn_status open_handle(Handles *h, maskrcnn **handle, int batch, int64_t pixels, const CanvasSet *s,
                                   Err *err) {
  maskrcnn_size size[MAX_CANVASES];
  for (int i = 0; i < s->n; i++) size[i] = (maskrcnn_size){s->canvas[i].h, s->canvas[i].w};
  const double start = now_seconds();
  maskrcnn_options options = handle_options(h->o, h->o->device);
  options.batch = batch;
  options.queue = h->queue;
  options.max_pixels = pixels;
  options.canvases = s->square ? NULL : size; // a square is the model's own
  options.num_canvases = s->square ? 0 : s->n;
  const maskrcnn_status status = maskrcnn_open(handle, &options, err->msg, sizeof err->msg);
  if (status == MASKRCNN_OK)
    tell_device(h, *handle);
  else
    program_words(err);
  speed_opened(h->speed, now_seconds() - start);
  return status;
}

static void take_message(maskrcnn *handle, Err *err) {
  err_set(err, "%s", maskrcnn_message(handle));
  program_words(err);
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

const maskrcnn_result *handles_result(const void *results, int i) {
  const HandedOut *p = results;
  return p->piece[i / p->each]->images[i % p->each];
}

static void put_ready(Handles *h, const RunnerDone *done) {
  if (done->tag == TILES) return; // its image has it
  Ready *r = xmalloc(sizeof *r);
  *r = (Ready){.done = *done};
  *h->last = r;
  h->last = &r->next;
}

static void put_refused(Handles *h, uint64_t tag, const Err *why) {
  put_ready(h, &(RunnerDone){.tag = tag, .why = *why});
}

static bool take_ready(Handles *h, RunnerDone *done) {
  Ready *r = h->first;
  if (!r) return false;
  *done = r->done;
  if (!(h->first = r->next)) h->last = &h->first;
  free(r);
  return true;
}

static RunnerState take_next(Handles *h, bool wait, RunnerDone *done, Err *err) {
  maskrcnn_results *results;
  if (!h->under_way) return RUNNER_EMPTY;
  const maskrcnn_status status = maskrcnn_next(h->many, wait, &results);
  if (status == MASKRCNN_NOT_YET) return RUNNER_BUSY;
  if (status != MASKRCNN_OK) {
    h->failed = status;
    take_message(h->many, err);
    return RUNNER_FAILS;
  }
  h->under_way--;
  *done = (RunnerDone){.tag = results->tag};
  if (results->tag == TILES)
    handed_add(h->tiles, results);
  else
    done->results = handed_of(results);
  return RUNNER_DONE;
}

static RunnerState next(void *context, bool wait, RunnerDone *done, Err *err) {
  Handles *h = context;
  return take_ready(h, done) ? RUNNER_DONE : take_next(h, wait, done, err);
}

static void release(void *context, void *results) {
  (void)context;
  handed_free(results);
}

// ---- many images ------------------------------------------------------------------------------------------------

// For h->batch images at a time, or for half as many again and again until there is memory.
static maskrcnn_status open_many(Handles *h, Err *err) {
  for (;; h->batch /= 2) {
    const maskrcnn_status status = open_handle(h, &h->many, h->batch, ORDINARY_PIXELS, &h->canvases, err);
    if (status != MASKRCNN_NO_MEMORY || h->batch == 1) return status;
    fprintf(stderr, "%s; going on with %d images at a time\n", err->msg, h->batch / 2);
  }
}

// Waits for what it has, and keeps it.
static bool empty_many(Handles *h, Err *err) {
  RunnerDone done;
  RunnerState state;
  while ((state = take_next(h, true, &done, err)) == RUNNER_DONE) put_ready(h, &done);
  return state == RUNNER_EMPTY;
}

// Opens it for half as many images, so that there is memory for larger ones.
static maskrcnn_status halve(Handles *h, Err *err) {
  fprintf(stderr, "%s; going on with %d images at a time\n", err->msg, h->batch / 2);
  if (!empty_many(h, err)) return MASKRCNN_DEAD;
  maskrcnn_close(h->many);
  h->many = NULL;
  h->batch /= 2;
  return open_many(h, err);
}

static maskrcnn_status have_many(Handles *h, Err *err) { return h->many ? MASKRCNN_OK : open_many(h, err); }

static maskrcnn_status submit(Handles *h, const maskrcnn_image *image, int n, uint64_t tag, Err *err) {
  for (;;) {
    const maskrcnn_status status = maskrcnn_submit(h->many, image, n, tag);
    RunnerDone done;
    if (status == MASKRCNN_OK) h->under_way++;
    if (status < 0) take_message(h->many, err);
    if (status != MASKRCNN_FULL) return status;
    if (take_next(h, true, &done, err) != RUNNER_DONE) return MASKRCNN_DEAD;
    put_ready(h, &done);
  }
}

// ---- single images ----------------------------------------------------------------------------------------------

static maskrcnn_status open_single(Handles *h, const maskrcnn_image *image, Err *err) {
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

static maskrcnn_status run_single(Handles *h, const maskrcnn_image *image, uint64_t tag, Err *err) {
  maskrcnn_results *results;
  maskrcnn_status status = open_single(h, image, err);
  if (status) return status;
  status = maskrcnn_run(h->single, image, 1, &results);
  if (status == MASKRCNN_OK)
    put_ready(h, &(RunnerDone){.tag = tag, .results = handed_of(results)});
  else
    take_message(h->single, err);
  return status;
}

// ---- tiles ------------------------------------------------------------------------------------------------------

// All tiles of an image, which are parts of its rows and not copied; they have one size. malloc'ed.
static maskrcnn_image *cut_tiles(const TilePlan *plan, const maskrcnn_image *image) {
  const int n = tiles_count(plan);
  const int64_t pitch = 3 * (int64_t)image->width;
  maskrcnn_image *tiles = xcalloc((size_t)n, sizeof *tiles);
  for (int i = 0; i < n; i++) {
    const PixelRect r = tiles_at(plan, i);
    tiles[i] = (maskrcnn_image){
        .rgb = image->rgb + r.y1 * pitch + 3 * r.x1, .width = r.x2 - r.x1, .height = r.y2 - r.y1, .pitch = pitch};
  }
  return tiles;
}

// Every two seconds that an image takes.
static void show_tiles(double *shown, int done, int all) {
  static const double SECONDS = 2;
  const double now = now_seconds();
  if (now - *shown < SECONDS) return;
  fprintf(stderr, "tile %d of %d\n", done, all);
  *shown = now;
}

// In batches, so that a request to stop is heard between them. h->tiles is told of all that are submitted.
static maskrcnn_status submit_tiles(Handles *h, const maskrcnn_image *tiles, int n, Err *err) {
  maskrcnn_status status = MASKRCNN_OK;
  const int each = h->tiles->each, batches = (n + each - 1) / each;
  int begun = 0;
  double shown = now_seconds();
  RunnerDone done;
  for (; begun < batches && status == MASKRCNN_OK && !h->stopped(); begun += status == MASKRCNN_OK) {
    status = submit(h, tiles + begun * each, MIN(each, n - begun * each), TILES, err);
    show_tiles(&shown, h->tiles->n * each, n);
  }
  while (h->tiles->n < begun && status != MASKRCNN_DEAD) {
    if (take_next(h, true, &done, err) != RUNNER_DONE) return MASKRCNN_DEAD;
    put_ready(h, &done);
    show_tiles(&shown, MIN(n, h->tiles->n * each), n);
  }
  return status;
}

static maskrcnn_status run_tiles(Handles *h, const maskrcnn_image *image, uint64_t tag, Err *err) {
  const TilePlan plan = handles_tiles(h->o, image->height, image->width);
  const int n = tiles_count(&plan), group = untiled_group(h, plan.tile_h, plan.tile_w);
  if (!is_ordinary(h, group)) {
    err_set(err, "tiles of %d x %d pixels are too large or too long: give a smaller --tile", plan.tile_w, plan.tile_h);
    return MASKRCNN_BAD_IMAGE;
  }
  maskrcnn_status status = have_many(h, err);
  if (status) return status;
  const int batches = (n + h->batch - 1) / h->batch;
  maskrcnn_image *tiles = cut_tiles(&plan, image);
  h->tiles = handed_new(batches, h->batch);
  status = submit_tiles(h, tiles, n, err);
  free(tiles);
  const bool whole = status == MASKRCNN_OK && h->tiles->n == batches;
  if (!whole) handed_free(h->tiles);
  if (status == MASKRCNN_OK)
    put_ready(h, &(RunnerDone){.tag = tag, .results = whole ? h->tiles : NULL, .dropped = !whole});
  h->tiles = NULL;
  return status;
}

// ---- the runner -------------------------------------------------------------------------------------------------

static bool start(void *context, int group, const Image *const *image, int n, uint64_t tag, Err *err) {
  Handles *h = context;
  maskrcnn_status status = MASKRCNN_OK;
  maskrcnn_image *images = xcalloc((size_t)n, sizeof *images);
  for (int i = 0; i < n; i++)
    images[i] = (maskrcnn_image){.rgb = image[i]->rgb, .width = image[i]->w, .height = image[i]->h};
  if (group == single_group(h)) {
    status = run_single(h, images, tag, err);
  } else if (group == tiled_group(h)) {
    status = run_tiles(h, images, tag, err);
  } else {
    status = have_many(h, err);
    if (status == MASKRCNN_OK) status = submit(h, images, n, tag, err);
    while (status == MASKRCNN_NO_MEMORY && h->many && h->batch > 1) {
      status = halve(h, err);
      if (status == MASKRCNN_OK) status = submit(h, images, n, tag, err);
    }
  }
  free(images);
  // There may be memory for others, and others may be images that it takes; all else is the same for all of them.
  const bool theirs_alone = status == MASKRCNN_NO_MEMORY || status == MASKRCNN_BAD_IMAGE;
  if (theirs_alone) put_refused(h, tag, err);
  if (!theirs_alone) h->failed = status;
  return status == MASKRCNN_OK || theirs_alone;
}

Runner handles_runner(Handles *h) {
  return (Runner){.context = h,
                  .groups = groups(h),
                  .under_way = HANDLES_UNDER_WAY,
                  .group = group_of,
                  .batch = batch_of,
                  .start = start,
                  .next = next,
                  .release = release};
}

Handles *handles_open(const InferOptions *o, const ModelConfig *config, int batch, Speed *speed,
                      bool (*stopped)(void)) {
  Handles *h = xcalloc(1, sizeof *h);
  h->o = o;
  const Resize resize = resize_of(config);
  h->canvases = canvases_of_most(&resize, kind_of(model_of(config))->map);
  h->batch = batch;
  h->queue = HANDLES_UNDER_WAY * batch;
  h->speed = speed;
  h->stopped = stopped;
  h->last = &h->first;
  return h;
}

int handles_exit(const Handles *h) { return h->failed == MASKRCNN_DEAD ? EXIT_RUN : EXIT_USAGE; }

void handles_close(Handles *h) {
  RunnerDone done;
  while (take_ready(h, &done)) handed_free(done.results);
  maskrcnn_close(h->many);
  maskrcnn_close(h->single);
  free(h);
}
