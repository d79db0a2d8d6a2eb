// The thread of a handle: opens, computes, closes.
#define _GNU_SOURCE // pthread_attr_setstacksize beside uselocale
#include <fenv.h>
#include <locale.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/guest.h"
#include "lib/handle.h"
#include "lib/options.h"
#include "lib/results.h"

enum { STACK = 8 << 20, UNDER_WAY = 1 }; // bytes; batches that are computed at a time

// ---- opening --------------------------------------------------------------------------------------------------------

typedef struct Opening {
  maskrcnn *h;
  maskrcnn_status status;
  bool ok;
  Err err;
} Opening;

static void open_model(void *context) {
  Opening *o = context;
  maskrcnn *h = o->h;
  o->ok = opened_open(&h->opened, h->options, &o->status, &o->err);
  if (!o->ok) return;
  staging_init(&h->staging, h->options->batch, h->options->queue, h->opened.canvases, UNDER_WAY);
  o->status = MASKRCNN_OK;
}

// Tells who opens, and forgets the options, which are theirs.
static maskrcnn_status open_and_tell(maskrcnn *h) {
  Opening o = {.h = h, .status = MASKRCNN_DEAD};
  if (!guest_call(open_model, &o, &o.err)) o.status = err_exit(&o.err) == EXIT_RUN ? MASKRCNN_NO_MEMORY : MASKRCNN_DEAD;
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

typedef struct Computing {
  maskrcnn *h;
  StagedBatch *b;
  Detections found;
  const maskrcnn_result **result; // [batch.used]
} Computing;

static void compute(void *context) {
  Computing *c = context;
  Opened *o = &c->h->opened;
  const Batch *batch = &c->b->batch;
  Detections *found = &c->found;
  engine_infer(&o->engine, batch);
  engine_detections(&o->engine, batch, o->mask_threshold, found);
  for (int i = 0, first = 0, n; i < batch->used; i++, first += n) {
    for (n = 0; first + n < found->n && found->items[first + n].image == i;) n++;
    c->result[i] =
        results_of_detections(&found->items[first], n, batch->info[i].h, batch->info[i].w, o->engine.category);
  }
}

// From here on every call says so, those that wait first.
static void die_here(maskrcnn *h, Err *err) {
  options_words(err);
  pthread_mutex_lock(&h->lock);
  h->state = MASKRCNN_DEAD;
  snprintf(h->death, sizeof h->death, "%.*s; the handle can only be closed", MESSAGE - 64, err->msg);
  pthread_cond_broadcast(&h->change);
  pthread_mutex_unlock(&h->lock);
}

static void hand_over(maskrcnn *h, StagedBatch *b, const maskrcnn_result **result) {
  for (int i = 0; i < b->batch.used; i++) {
    Submission *s = b->place[i].owner;
    results_set(s->results, b->place[i].image, result[i]);
    s->done++;
  }
  h->waiting -= b->batch.used;
  staging_release(b);
  pthread_cond_broadcast(&h->change);
}

// With the lock, which is open meanwhile.
static bool run_batch(maskrcnn *h, StagedBatch *b) {
  Err err;
  Computing c = {.h = h, .b = b, .result = calloc((size_t)b->batch.images, sizeof *c.result)};
  b->state = STAGE_RUNNING;
  pthread_mutex_unlock(&h->lock);
  bool ok = c.result || err_memory(&err, (size_t)b->batch.images * sizeof *c.result, "the results of a batch", "batch");
  ok = ok && guest_call(compute, &c, &err);
  detections_free(&c.found);
  if (!ok) die_here(h, &err);
  pthread_mutex_lock(&h->lock);
  if (ok)
    hand_over(h, b, c.result);
  else
    for (int i = 0; c.result && i < b->batch.used; i++) free((void *)c.result[i]);
  free(c.result);
  return ok;
}

// ---- page-locked memory ---------------------------------------------------------------------------------------------

static void grow(void *context) {
  maskrcnn *h = context;
  h->grown = staging_grow(h->grow, h->opened.engine.dev, h->grow_bytes);
}

// With the lock, which is open meanwhile: whoever asks waits.
static bool run_grow(maskrcnn *h) {
  Err err;
  pthread_mutex_unlock(&h->lock);
  const bool ok = guest_call(grow, h, &err);
  if (!ok) die_here(h, &err);
  pthread_mutex_lock(&h->lock);
  h->grow = NULL;
  pthread_cond_broadcast(&h->change);
  return ok;
}

// ---- the thread -----------------------------------------------------------------------------------------------------

static void work(maskrcnn *h) {
  bool ok = true;
  pthread_mutex_lock(&h->lock);
  while (ok && !h->closing) {
    StagedBatch *b;
    if (h->grow)
      ok = run_grow(h);
    else if ((b = staging_next(&h->staging, true)))
      ok = run_batch(h, b);
    else
      pthread_cond_wait(&h->work, &h->lock);
  }
  while (!h->closing) pthread_cond_wait(&h->work, &h->lock);
  pthread_mutex_unlock(&h->lock);
}

static void close_model(void *context) {
  maskrcnn *h = context;
  staging_free(&h->staging, h->opened.engine.dev);
  opened_close(&h->opened);
}

static void *thread(void *context) {
  maskrcnn *h = context;
  const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); // numbers are read with a point
  if (plain) uselocale(plain);
  fesetenv(FE_DFL_ENV);
  if (h->options->threads) omp_set_num_threads(h->options->threads);
  if (open_and_tell(h) == MASKRCNN_OK) work(h);
  Err err; // of a device that has failed: what it holds is lost
  guest_call(close_model, h, &err);
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
  if (error) return handle_fail(h, MASKRCNN_NO_MEMORY, "cannot start a thread: %s", strerror(error));
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
  pthread_cond_signal(&h->work);
  pthread_mutex_unlock(&h->lock);
  pthread_join(h->thread, NULL);
}
