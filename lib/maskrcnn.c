// What include/maskrcnn.h promises.
#include "include/maskrcnn.h"
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/machine.h"
#include "data/images/sample_range.h"
#include "lib/handle.h"
#include "lib/options.h"
#include "lib/results.h"

// ---- messages -------------------------------------------------------------------------------------------------------

static char version[96];

static void write_version(void) {
  snprintf(version, sizeof version, "%d.%d (%.64s)", MASKRCNN_VERSION_MAJOR, MASKRCNN_VERSION_MINOR, build_commit);
}

const char *maskrcnn_version(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, write_version);
  return version;
}

const char *maskrcnn_status_name(maskrcnn_status status) {
  static const char *const names[] = {"dead",         "bad image", "no memory", "bad device", "bad weights",
                                      "bad argument", "ok",        "full",      "not yet",    "empty"};
  return status < MASKRCNN_DEAD || status > MASKRCNN_EMPTY ? "unknown" : names[status - MASKRCNN_DEAD];
}

maskrcnn_status handle_fail(maskrcnn *h, maskrcnn_status status, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  pthread_mutex_lock(&h->saying);
  vsnprintf(h->message, sizeof h->message, fmt, args);
  text_clean(h->message);
  pthread_mutex_unlock(&h->saying);
  va_end(args);
  return status;
}

maskrcnn_status handle_alive(maskrcnn *h) {
  return h->state == MASKRCNN_DEAD ? handle_fail(h, MASKRCNN_DEAD, "%s", h->death) : MASKRCNN_OK;
}

void handle_ask(maskrcnn *h) {
  atomic_store(&h->asked, true);
  pthread_cond_signal(&h->work);
}

bool handle_is_inherited(const maskrcnn *h) { return h->owner != getpid(); }

const char *maskrcnn_message(maskrcnn *h) {
  static _Thread_local char text[MESSAGE];
  if (h && handle_is_inherited(h))
    return "the handle was opened before a fork, by the parent process: open one in this process";
  if (!h) return "handle is NULL: create one with maskrcnn_open";
  pthread_mutex_lock(&h->saying);
  memcpy(text, h->message, sizeof text);
  pthread_mutex_unlock(&h->saying);
  return text;
}

// ---- opening and closing --------------------------------------------------------------------------------------------

static void handle_free(maskrcnn *h) {
  pthread_mutex_destroy(&h->submitting);
  pthread_mutex_destroy(&h->lock);
  pthread_mutex_destroy(&h->saying);
  pthread_cond_destroy(&h->work);
  pthread_cond_destroy(&h->change);
  free(h);
}

static maskrcnn *handle_new(void) {
  maskrcnn *h = calloc(1, sizeof *h);
  if (!h) return NULL;
  h->owner = getpid();
  pthread_mutex_init(&h->submitting, NULL);
  pthread_mutex_init(&h->lock, NULL);
  pthread_mutex_init(&h->saying, NULL);
  pthread_cond_init(&h->work, NULL);
  pthread_cond_init(&h->change, NULL);
  return h;
}

static maskrcnn_status open_failed(char *message, size_t room, maskrcnn_status status, const char *why) {
  if (message && room) snprintf(message, room, "%s", why);
  return status;
}

// What a call computes itself, it computes as its handle's thread does: the caller may round otherwise, or trap.
static fenv_t floats_begin(void) {
  fenv_t callers;
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  return callers;
}

static maskrcnn_status floats_end(const fenv_t *callers, maskrcnn_status status) {
  fesetenv(callers);
  return status;
}

static maskrcnn_status open_handle(maskrcnn **handle, const maskrcnn_options *options, char *message, size_t room) {
  Err err;
  maskrcnn_options own;
  if (!handle) return open_failed(message, room, MASKRCNN_BAD_ARGUMENT, "handle is NULL: it must point to a handle");
  *handle = NULL;
  if (!options_take(&own, options, &err)) return open_failed(message, room, MASKRCNN_BAD_ARGUMENT, err.msg);
  maskrcnn *h = handle_new();
  if (!h) return open_failed(message, room, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate a handle");
  const maskrcnn_status status = worker_start(h, &own);
  open_failed(message, room, status, h->message); // "" where it has not
  if (status)
    handle_free(h);
  else
    *handle = h;
  return status;
}

maskrcnn_status maskrcnn_open(maskrcnn **handle, const maskrcnn_options *options, char *message, size_t room) {
  const fenv_t callers = floats_begin();
  return floats_end(&callers, open_handle(handle, options, message, room));
}

static void submission_free(Submission *s) {
  maskrcnn_results_free(s->results);
  free(s);
}

void maskrcnn_close(maskrcnn *h) {
  if (!h || handle_is_inherited(h)) return;
  worker_end(h);
  for (Submission *s = h->first, *next; s; s = next) {
    next = s->next;
    submission_free(s);
  }
  handle_free(h);
}

const maskrcnn_description *maskrcnn_describe(const maskrcnn *h) { return h ? &h->opened.about : NULL; }

maskrcnn_status maskrcnn_scale_samples(maskrcnn *h, const uint16_t *samples, size_t n, uint8_t *bytes) {
  if (!h) return MASKRCNN_BAD_ARGUMENT;
  if (n && (!samples || !bytes))
    return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "%s is NULL, but n is %zu", samples ? "bytes" : "samples", n);
  const SampleRange range = {h->opened.about.range_low, h->opened.about.range_high};
  for (size_t i = 0; i < n; i++) bytes[i] = sample_range_byte(range, samples[i]);
  return MASKRCNN_OK;
}

// ---- running --------------------------------------------------------------------------------------------------------

static Submission *submission_new(maskrcnn *h, int n, uint64_t tag) {
  Submission *s = calloc(1, sizeof *s);
  if (s) s->results = results_new(n, tag);
  if (s && s->results) return s;
  free(s);
  handle_fail(h, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate the results of %d images", n);
  return NULL;
}

static maskrcnn_results *submission_results(Submission *s) {
  maskrcnn_results *r = s->results;
  free(s);
  return r;
}

// What every call that takes images does first.
static maskrcnn_status check(maskrcnn *h, const maskrcnn_image *images, int n) {
  pthread_mutex_lock(&h->lock);
  const maskrcnn_status status = handle_alive(h);
  pthread_mutex_unlock(&h->lock);
  return status ? status : submit_check(h, images, n);
}

// Waits until the queue takes n images more.
static maskrcnn_status wait_for_room(maskrcnn *h, int n) {
  pthread_mutex_lock(&h->lock);
  while (h->state == MASKRCNN_OK && h->waiting + n > h->opened.about.queue) pthread_cond_wait(&h->change, &h->lock);
  const maskrcnn_status status = handle_alive(h);
  pthread_mutex_unlock(&h->lock);
  return status;
}

// All that was staged; of a submission that failed halfway, too.
static maskrcnn_status wait_until_done(maskrcnn *h, const Submission *s) {
  pthread_mutex_lock(&h->lock);
  while (h->state == MASKRCNN_OK && s->done < s->staged) pthread_cond_wait(&h->change, &h->lock);
  const maskrcnn_status status = handle_alive(h);
  pthread_mutex_unlock(&h->lock);
  return status;
}

// A batch's worth at a time, so that one is copied while another is computed; other submitters come in between.
static maskrcnn_status stage_all(maskrcnn *h, Submission *s, const maskrcnn_image *images, int n) {
  maskrcnn_status status = MASKRCNN_OK;
  for (int i = 0, some; !status && i < n; i += some) {
    some = MIN(n - i, h->opened.about.batch);
    do {
      status = wait_for_room(h, some);
      if (!status) status = submit_stage(h, s, i, images + i, some);
    } while (status == MASKRCNN_FULL); // another thread took the room
  }
  return status;
}

static maskrcnn_status run(maskrcnn *h, const maskrcnn_image *images, int n, maskrcnn_results **results) {
  if (results) *results = NULL;
  if (!h) return MASKRCNN_BAD_ARGUMENT;
  if (handle_is_inherited(h)) return MASKRCNN_DEAD;
  if (!results) return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "results is NULL: it must point to results");
  maskrcnn_status status = check(h, images, n);
  if (status) return status;
  Submission *s = submission_new(h, n, 0);
  if (!s) return MASKRCNN_NO_MEMORY;
  status = stage_all(h, s, images, n);
  const maskrcnn_status ended = wait_until_done(h, s);
  if (!status) status = ended;
  if (!status)
    *results = submission_results(s);
  else
    submission_free(s);
  return status;
}

maskrcnn_status maskrcnn_run(maskrcnn *h, const maskrcnn_image *images, int n, maskrcnn_results **results) {
  const fenv_t callers = floats_begin();
  return floats_end(&callers, run(h, images, n, results));
}

static maskrcnn_status submit(maskrcnn *h, const maskrcnn_image *images, int n, uint64_t tag) {
  if (!h) return MASKRCNN_BAD_ARGUMENT;
  if (handle_is_inherited(h)) return MASKRCNN_DEAD;
  maskrcnn_status status = check(h, images, n);
  if (status) return status;
  if (n > h->opened.about.queue)
    return handle_fail(h, MASKRCNN_BAD_ARGUMENT,
                       "n is %d, more than the queue's length of %d: submit fewer images at a time", n,
                       h->opened.about.queue);
  Submission *s = submission_new(h, n, tag);
  if (!s) return MASKRCNN_NO_MEMORY;
  s->in_order = true;
  status = submit_stage(h, s, 0, images, n);
  if (status) submission_free(s);
  return status;
}

maskrcnn_status maskrcnn_submit(maskrcnn *h, const maskrcnn_image *images, int n, uint64_t tag) {
  const fenv_t callers = floats_begin();
  return floats_end(&callers, submit(h, images, n, tag));
}

// The oldest submission, which is no longer the queue's; NULL where `status` says why not.
static Submission *take(maskrcnn *h, bool wait, maskrcnn_status *status) {
  Submission *s = h->first;
  for (; s && h->state == MASKRCNN_OK && s->done < s->results->n && wait; s = h->first)
    pthread_cond_wait(&h->change, &h->lock);
  *status = handle_alive(h);
  if (*status) return NULL;
  *status = !s ? MASKRCNN_EMPTY : s->done < s->results->n ? MASKRCNN_NOT_YET : MASKRCNN_OK;
  if (*status) return NULL;
  h->first = s->next;
  if (!h->first) h->last = NULL;
  return s;
}

maskrcnn_status maskrcnn_next(maskrcnn *h, int wait, maskrcnn_results **results) {
  if (results) *results = NULL;
  if (!h) return MASKRCNN_BAD_ARGUMENT;
  if (handle_is_inherited(h)) return MASKRCNN_DEAD;
  if (!results) return handle_fail(h, MASKRCNN_BAD_ARGUMENT, "results is NULL: it must point to results");
  maskrcnn_status status;
  pthread_mutex_lock(&h->lock);
  Submission *s = take(h, wait, &status);
  pthread_mutex_unlock(&h->lock);
  if (s) *results = submission_results(s);
  return status;
}
