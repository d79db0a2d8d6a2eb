// The thread of a handle: opens, computes, closes.
#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/contained.h"
#include "lib/handle.h"
#include "lib/options.h"
#include "lib/results.h"
#include "lib/thread.h"

// Batches under way, the oldest first.
typedef struct Pipeline {
  maskrcnn *h;
  StagedBatch *batch[BATCHES_UNDER_WAY];
  int n;
  const maskrcnn_result **result; // [images of a batch] of the oldest, once it is done
  int counter[MAX_COUNTERS];      // of that
} Pipeline;

// ---- opening --------------------------------------------------------------------------------------------------------

typedef struct Opening {
  Pipeline *p;
  maskrcnn_status status;
  char note[OPENED_NOTE];
  Err err;
} Opening;

static void open_model(void *context) {
  Opening *o = context;
  maskrcnn *h = o->p->h;
  if (!opened_open(&h->opened, h->options, false, o->note, &o->status, &o->err)) return;
  const int images = h->options->batch, queue = h->options->queue;
  if (!staging_init(&h->staging, h->opened.engine.dev, images, queue, h->opened.canvases.n, BATCHES_UNDER_WAY)) {
    err_memory(&o->err, (size_t)queue * sizeof(ImageInfo), "a queue of images", "queue");
    o->status = MASKRCNN_NO_MEMORY;
    return;
  }
  o->p->result = xcalloc((size_t)images, sizeof *o->p->result);
  h->room = engine_room(&h->opened.engine);
  o->status = MASKRCNN_OK;
}

static void log_opening(maskrcnn *h, const char *note, double seconds) {
  const maskrcnn_description *d = &h->opened.about;
  if (*note) handle_log(h, MASKRCNN_LOG_INFO, "%s", note);
  if (*d->why_cpu) handle_log(h, MASKRCNN_LOG_WARNING, "no GPU is used: %s", d->why_cpu);
  handle_log(h, MASKRCNN_LOG_INFO, "opened %s on %s in %.2f s: %.1f MB of the device, %.1f MB of the host", d->model,
             d->device, seconds, (double)d->device_bytes / 1e6, (double)d->host_bytes / 1e6);
}

// Tells who opens, and forgets the options, which are theirs.
static maskrcnn_status open_and_tell(Pipeline *p) {
  maskrcnn *h = p->h;
  const double start = now_seconds();
  Opening o = {.p = p, .status = MASKRCNN_DEAD};
  if (!contained_call(open_model, &o, &o.err))
    o.status = err_exit(&o.err) == EXIT_RUN ? MASKRCNN_NO_MEMORY : MASKRCNN_DEAD;
  if (!o.status) log_opening(h, o.note, now_seconds() - start);
  pthread_mutex_lock(&h->lock);
  h->state = o.status;
  h->death = o.err;
  h->opening = false;
  h->options = NULL;
  pthread_cond_broadcast(&h->change);
  pthread_mutex_unlock(&h->lock);
  return o.status;
}

// ---- computing ------------------------------------------------------------------------------------------------------

// From here on every call says so, those that wait first.
static void die_here(maskrcnn *h, Err *err) {
  options_words(err);
  handle_log(h, MASKRCNN_LOG_ERROR, "%s", err->msg);
  pthread_mutex_lock(&h->lock);
  h->state = MASKRCNN_DEAD;
  snprintf(h->death.msg, sizeof h->death.msg, "%.900s; the handle can only be closed", err->msg);
  pthread_cond_broadcast(&h->change);
  pthread_mutex_unlock(&h->lock);
}

// Does `what` with the lock open. False: the handle is dead.
static bool outside(Pipeline *p, void (*what)(void *context)) {
  Err err;
  pthread_mutex_unlock(&p->h->lock);
  const bool ok = contained_call(what, p, &err);
  if (!ok) die_here(p->h, &err);
  pthread_mutex_lock(&p->h->lock);
  return ok;
}

static void start(void *context) {
  Pipeline *p = context;
  p->h->opened.result_type->begin(&p->h->opened.engine, &p->batch[p->n - 1]->batch);
}

static bool start_batch(Pipeline *p, StagedBatch *b) {
  b->state = STAGE_RUNNING;
  p->batch[p->n++] = b;
  return outside(p, start);
}

// The oldest, or nothing: where another may be started meanwhile, it is asked for again and again until somebody has
// something to do. So CUDA waits, too; a wait with an end would cost latency, one without would leave the device idle
// behind a batch while another lies ready.
static void finish(void *context) {
  Pipeline *p = context;
  Opened *o = &p->h->opened;
  const bool wait = p->n == BATCHES_UNDER_WAY;
  while (!o->result_type->finish(&o->engine, p->batch[0], o->top, wait, p->result, p->counter) &&
         !atomic_load(&p->h->asked))
    sched_yield();
}

static void hand_over(maskrcnn *h, StagedBatch *b, const maskrcnn_result **result) {
  for (int i = 0; i < b->batch.used; i++) {
    const StageSlot *p = &b->slot[i];
    Submission *s = p->owner;
    if (!s) {
      free((void *)result[i]);
      result[i] = NULL;
      continue;
    }
    if (s->cancelled) results_fail(s->results, p->image, MASKRCNN_CANCELLED, p->h, p->w, "it was cancelled");
    results_set(s->results, p->image, result[i]);
    results_count(s->results, p->image);
    result[i] = NULL;
    s->done++;
  }
  h->waiting -= b->batch.used;
  staging_release(b);
  pthread_cond_broadcast(&h->change);
}

static bool finish_batch(Pipeline *p) {
  if (!outside(p, finish)) return false;
  if (!p->result[0]) return true;
  for (int k = 0; k < MAX_COUNTERS; k++) p->h->counter[k] += p->counter[k];
  hand_over(p->h, p->batch[0], p->result);
  memmove(p->batch, p->batch + 1, (size_t)--p->n * sizeof *p->batch);
  return true;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// What a handle would take with room for batches of that many bytes, beyond its limits?
static bool is_allowed(const maskrcnn *h, size_t bytes) {
  const maskrcnn_description *d = &h->opened.about;
  size_t device, host;
  engine_room_costs(&h->opened.engine, bytes, &device, &host);
  device += h->grown_device;
  host += h->grown_host + h->staged + (bytes - MIN(bytes, h->grow->room));
  if (!h->opened.gpu) host += device;
  return (!h->opened.gpu || !h->most_device || d->device_bytes + device <= h->most_device) &&
         (!h->most_host || d->host_bytes + host <= h->most_host);
}

static bool grow_to(maskrcnn *h, size_t bytes) {
  Engine *e = &h->opened.engine;
  size_t device, host, before = h->grow->room;
  if (!is_allowed(h, bytes)) return false;
  engine_room_costs(e, bytes, &device, &host);
  if (!engine_make_room(e, bytes)) return false;
  h->grown_device += device;
  h->grown_host += host;
  if (!staging_grow(h->grow, e->dev, bytes)) return false;
  h->staged += bytes - before;
  if (device)
    handle_log(h, MASKRCNN_LOG_INFO, "room for batches of %.1f MB of pixels, as an image was larger than before",
               (double)bytes / 1e6);
  return true;
}

static void grow(void *context) {
  maskrcnn *h = ((Pipeline *)context)->h;
  h->grown = grow_to(h, h->grow_bytes) || grow_to(h, h->grow_least);
}

// Whoever asks waits.
static bool grow_batch(Pipeline *p) {
  maskrcnn *h = p->h;
  const bool ok = outside(p, grow);
  h->room = engine_room(&h->opened.engine);
  h->grow = NULL;
  pthread_cond_broadcast(&h->change);
  return ok;
}

// ---- images on the GPU ----------------------------------------------------------------------------------------------

static void fetch(void *context) {
  maskrcnn *h = ((Pipeline *)context)->h;
  Fetch *f = h->fetch;
  f->ok = device_read_rows(h->opened.engine.dev, f->to, f->from, f->pitch, f->row, f->rows, f->err);
}

// Whoever asks waits.
static bool fetch_image(Pipeline *p) {
  Fetch *f = p->h->fetch;
  const bool ok = outside(p, fetch);
  f->done = ok;
  p->h->fetch = NULL;
  pthread_cond_broadcast(&p->h->change);
  return ok;
}

// ---- looks ----------------------------------------------------------------------------------------------------------

static void look(void *context) {
  maskrcnn *h = ((Pipeline *)context)->h;
  h->look->what(&h->opened.engine, h->look->context);
}

// Once nothing is under way.
static bool look_inside(Pipeline *p) {
  if (p->n) return finish_batch(p);
  const bool ok = outside(p, look);
  p->h->look = NULL;
  pthread_cond_broadcast(&p->h->change);
  return ok;
}

// ---- the thread -----------------------------------------------------------------------------------------------------

// Until there is something to do. While pixels are copied it stays awake: waking up would take as long.
static void idle(maskrcnn *h) {
  if (!h->copying) {
    pthread_cond_wait(&h->work, &h->lock);
    return;
  }
  pthread_mutex_unlock(&h->lock);
  while (!atomic_load(&h->asked)) sched_yield();
  pthread_mutex_lock(&h->lock);
}

// Batches behind one that is under way start when they are full, so that they fill while they wait.
static void work(Pipeline *p) {
  maskrcnn *h = p->h;
  bool ok = true;
  pthread_mutex_lock(&h->lock);
  while (ok && !h->closing) {
    StagedBatch *b;
    atomic_store(&h->asked, false);
    if (h->fetch)
      ok = fetch_image(p);
    else if (h->grow)
      ok = p->n ? finish_batch(p) : grow_batch(p);
    else if (h->look)
      ok = look_inside(p);
    else if (p->n < BATCHES_UNDER_WAY && (b = staging_next(&h->staging, !p->n)))
      ok = start_batch(p, b);
    else if (p->n)
      ok = finish_batch(p);
    else
      idle(h);
  }
  while (!h->closing) pthread_cond_wait(&h->work, &h->lock);
  pthread_mutex_unlock(&h->lock);
  for (int i = 0; i < h->opened.about.batch; i++) free((void *)p->result[i]);
}

static void wait_for_device(void *context) {
  const maskrcnn *h = context;
  if (h->opened.engine.dev) device_sync(h->opened.engine.dev);
}

static void close_model(void *context) {
  maskrcnn *h = context;
  if (h->state == MASKRCNN_DEAD && h->opened.engine.model) h->opened.result_type->drop(&h->opened.engine);
  staging_free(&h->staging, h->opened.engine.dev);
  opened_close(&h->opened);
}

static void log_warning(void *handle, const char *line) { handle_log(handle, MASKRCNN_LOG_WARNING, "%s", line); }

static void *thread(void *context) {
  maskrcnn *h = context;
  const Guard g = guard_enter(NULL);
  warn_tells(log_warning, h);
  omp_set_num_threads(h->options->threads ? h->options->threads : g.threads);
  Pipeline p = {.h = h};
  if (open_and_tell(&p) == MASKRCNN_OK) work(&p);
  Err err; // of a device that has failed: what it holds is lost
  contained_call(wait_for_device, h, &err);
  contained_call(close_model, h, &err);
  free(p.result);
  return NULL;
}

maskrcnn_status worker_start(maskrcnn *h, maskrcnn_options *options, maskrcnn_error *why) {
  h->opening = true;
  h->options = options;
  const int error = thread_start(&h->thread, thread, h);
  if (error)
    return fail(why, MASKRCNN_NO_MEMORY,
                "cannot start a thread: %s; raise the limit of processes (ulimit -u) or free memory", strerror(error));
  pthread_mutex_lock(&h->lock);
  while (h->opening) pthread_cond_wait(&h->change, &h->lock);
  const maskrcnn_status status = h->state;
  pthread_mutex_unlock(&h->lock);
  if (!status) return status;
  pthread_join(h->thread, NULL);
  return fail(why, status, "%s", h->death.msg);
}

void worker_end(maskrcnn *h) {
  pthread_mutex_lock(&h->lock);
  h->closing = true;
  handle_ask(h);
  pthread_mutex_unlock(&h->lock);
  pthread_join(h->thread, NULL);
}
