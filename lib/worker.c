// The thread of a handle: opens, computes, closes.
#define _GNU_SOURCE // pthread_attr_setstacksize and uselocale
#include <fenv.h>
#include <locale.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/contained.h"
#include "lib/handle.h"
#include "lib/options.h"
#include "lib/results.h"

enum { STACK = 8 << 20 }; // bytes

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
  Err err;
} Opening;

static void open_model(void *context) {
  Opening *o = context;
  maskrcnn *h = o->p->h;
  if (!opened_open(&h->opened, h->options, &o->status, &o->err)) return;
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

// Tells who opens, and forgets the options, which are theirs.
static maskrcnn_status open_and_tell(Pipeline *p) {
  maskrcnn *h = p->h;
  Opening o = {.p = p, .status = MASKRCNN_DEAD};
  if (!contained_call(open_model, &o, &o.err))
    o.status = err_exit(&o.err) == EXIT_RUN ? MASKRCNN_NO_MEMORY : MASKRCNN_DEAD;
  pthread_mutex_lock(&h->lock);
  h->state = o.status;
  if (o.status) handle_fail(h, o.status, "%s", o.err.msg);
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
  pthread_mutex_lock(&h->lock);
  h->state = MASKRCNN_DEAD;
  snprintf(h->death, sizeof h->death, "%.*s; the handle can only be closed", MESSAGE - 64, err->msg);
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
    Submission *s = b->slot[i].owner;
    results_set(s->results, b->slot[i].image, result[i]);
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

static bool grow_to(maskrcnn *h, size_t bytes) {
  Engine *e = &h->opened.engine;
  return engine_make_room(e, bytes) && staging_grow(h->grow, e->dev, bytes);
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
    if (h->grow)
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

static void *thread(void *context) {
  maskrcnn *h = context;
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); // numbers are read with a point
  if (plain) uselocale(plain);
  fesetenv(FE_DFL_ENV);
  if (h->options->threads) omp_set_num_threads(h->options->threads);
  Pipeline p = {.h = h};
  if (open_and_tell(&p) == MASKRCNN_OK) work(&p);
  Err err; // of a device that has failed: what it holds is lost
  contained_call(wait_for_device, h, &err);
  contained_call(close_model, h, &err);
  free(p.result);
  if (plain) {
    uselocale(LC_GLOBAL_LOCALE);
    freelocale(plain);
  }
  return NULL;
}

// Signals are the caller's threads'.
static int start_thread(maskrcnn *h) {
  pthread_attr_t attributes;
  sigset_t all, before;
  int error = pthread_attr_init(&attributes);
  if (error) return error;
  pthread_attr_setstacksize(&attributes, STACK);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  error = pthread_create(&h->thread, &attributes, thread, h);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return error;
}

maskrcnn_status worker_start(maskrcnn *h, maskrcnn_options *options) {
  h->opening = true;
  h->options = options;
  const int error = start_thread(h);
  if (error)
    return handle_fail(h, MASKRCNN_NO_MEMORY,
                       "cannot start a thread: %s; raise the limit of processes (ulimit -u) or free memory",
                       strerror(error));
  pthread_mutex_lock(&h->lock);
  while (h->opening) pthread_cond_wait(&h->change, &h->lock);
  const maskrcnn_status status = h->state;
  pthread_mutex_unlock(&h->lock);
  if (status) pthread_join(h->thread, NULL);
  return status;
}

void worker_end(maskrcnn *h) {
  pthread_mutex_lock(&h->lock);
  h->closing = true;
  handle_ask(h);
  pthread_mutex_unlock(&h->lock);
  pthread_join(h->thread, NULL);
}
