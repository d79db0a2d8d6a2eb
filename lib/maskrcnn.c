// What include/maskrcnn.h promises.
#include "include/maskrcnn.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/cpu_level.h"
#include "base/machine.h"
#include "lib/handle.h"
#include "lib/options.h"
#include "lib/results.h"
#include "lib/submit.h"

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
  static const char *const names[] = {"bad file",    "cancelled",    "dead", "bad image", "no memory", "bad device",
                                      "bad weights", "bad argument", "ok",   "full",      "not yet",   "empty"};
  return status < MASKRCNN_BAD_FILE || status > MASKRCNN_EMPTY ? "unknown" : names[status - MASKRCNN_BAD_FILE];
}

maskrcnn_status fail(maskrcnn_error *error, maskrcnn_status status, const char *fmt, ...) {
  va_list args;
  if (!error) return status;
  va_start(args, fmt);
  vsnprintf(error->message, sizeof error->message, fmt, args);
  va_end(args);
  text_clean(error->message);
  return status;
}

void handle_log(maskrcnn *h, maskrcnn_log_level level, const char *fmt, ...) {
  va_list args;
  Err line;
  if (!h->log) return;
  va_start(args, fmt);
  vsnprintf(line.msg, sizeof line.msg, fmt, args);
  va_end(args);
  pthread_mutex_lock(&h->logging);
  h->log(h->log_context, level, text_clean(line.msg));
  pthread_mutex_unlock(&h->logging);
}

maskrcnn_status handle_alive(maskrcnn *h, maskrcnn_error *error) {
  return h->state == MASKRCNN_DEAD ? fail(error, MASKRCNN_DEAD, "%s", h->death.msg) : MASKRCNN_OK;
}

void handle_ask(maskrcnn *h) {
  atomic_store(&h->asked, true);
  pthread_cond_signal(&h->work);
}

bool handle_is_inherited(const maskrcnn *h) { return h->owner != getpid(); }

maskrcnn_status handle_usable(maskrcnn *h, maskrcnn_error *error) {
  if (!h) return fail(error, MASKRCNN_BAD_ARGUMENT, "handle is NULL: create one with maskrcnn_open");
  if (handle_is_inherited(h))
    return fail(error, MASKRCNN_DEAD,
                "the handle was opened before a fork, by the parent process: open one in this process");
  pthread_mutex_lock(&h->lock);
  const maskrcnn_status status = handle_alive(h, error);
  pthread_mutex_unlock(&h->lock);
  return status;
}

// ---- opening and closing --------------------------------------------------------------------------------------------

static void handle_free(maskrcnn *h) {
  pthread_mutex_destroy(&h->submitting);
  pthread_mutex_destroy(&h->lock);
  pthread_mutex_destroy(&h->logging);
  pthread_cond_destroy(&h->work);
  pthread_cond_destroy(&h->change);
  free(h);
}

static maskrcnn *handle_new(const maskrcnn_options *o) {
  pthread_condattr_t monotonic;
  maskrcnn *h = calloc(1, sizeof *h);
  if (!h) return NULL;
  h->owner = getpid();
  h->most_device = o->max_device_bytes;
  h->most_host = o->max_host_bytes;
  h->log = o->log;
  h->log_context = o->log_context;
  pthread_mutex_init(&h->submitting, NULL);
  pthread_mutex_init(&h->lock, NULL);
  pthread_mutex_init(&h->logging, NULL);
  pthread_cond_init(&h->work, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&h->change, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return h;
}

static maskrcnn_status open_handle(maskrcnn **handle, const maskrcnn_options *options, maskrcnn_error *error) {
  Err err;
  maskrcnn_options own;
  if (!handle) return fail(error, MASKRCNN_BAD_ARGUMENT, "handle is NULL: it must point to a handle");
  *handle = NULL;
  if (!options_take(&own, options, &err)) return fail(error, MASKRCNN_BAD_ARGUMENT, "%s", err.msg);
  maskrcnn *h = handle_new(&own);
  if (!h) return fail(error, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate a handle");
  const maskrcnn_status status = worker_start(h, &own, error);
  if (status)
    handle_free(h);
  else
    *handle = h;
  return status;
}

maskrcnn_status maskrcnn_open(maskrcnn **handle, const maskrcnn_options *options, maskrcnn_error *error) {
  const char *refusal = cpu_refusal(); // before anything that such a CPU may not run
  if (refusal && handle) *handle = NULL;
  if (refusal) return fail(error, MASKRCNN_BAD_DEVICE, "%s", refusal);
  const Guard g = guard_enter(error);
  return guard_leave(&g, open_handle(handle, options, error));
}

static void submission_free(Submission *s) {
  maskrcnn_results_free(s->results);
  free(s);
}

static void close_handle(maskrcnn *h) {
  worker_end(h);
  for (Submission *s = h->first, *next; s; s = next) {
    next = s->next;
    submission_free(s);
  }
  handle_free(h);
}

void maskrcnn_close(maskrcnn *h) {
  if (!h || handle_is_inherited(h)) return;
  const Guard g = guard_enter(NULL);
  close_handle(h);
  guard_leave(&g, MASKRCNN_OK);
}

const maskrcnn_description *maskrcnn_describe(const maskrcnn *h) { return h ? &h->opened.about : NULL; }

// ---- running --------------------------------------------------------------------------------------------------------

static maskrcnn_status submission_new(Submission **to, int n, uint64_t tag, maskrcnn_error *error) {
  Submission *s = *to = calloc(1, sizeof *s);
  if (s) s->results = results_new(n, tag);
  if (s && s->results) return MASKRCNN_OK;
  free(s);
  return fail(error, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate the results of %d images", n);
}

static maskrcnn_results *submission_results(Submission *s) {
  maskrcnn_results *r = s->results;
  free(s);
  return r;
}

// What every call that takes images does first. *list: free().
static maskrcnn_status take_images(maskrcnn *h, const maskrcnn_image *images, int n, uint64_t tag, Submission **s,
                                   Incoming **list, maskrcnn_error *error) {
  Err err;
  maskrcnn_status status = handle_usable(h, error);
  if (status) return status;
  if (!incoming_readable(images, n, &err)) return fail(error, MASKRCNN_BAD_ARGUMENT, "%s", err.msg);
  if ((status = submission_new(s, n, tag, error))) return status;
  if ((*list = submit_read(h, *s, images, n))) return MASKRCNN_OK;
  submission_free(*s);
  return fail(error, MASKRCNN_NO_MEMORY, "out of memory: cannot allocate a list of %d images", n);
}

// Waits until the queue takes n images more.
static maskrcnn_status wait_for_room(maskrcnn *h, int n, maskrcnn_error *error) {
  pthread_mutex_lock(&h->lock);
  while (h->state == MASKRCNN_OK && h->waiting + n > h->opened.about.queue) pthread_cond_wait(&h->change, &h->lock);
  const maskrcnn_status status = handle_alive(h, error);
  pthread_mutex_unlock(&h->lock);
  return status;
}

// All that was staged.
static maskrcnn_status wait_until_done(maskrcnn *h, const Submission *s, maskrcnn_error *error) {
  pthread_mutex_lock(&h->lock);
  while (h->state == MASKRCNN_OK && s->done < s->staged) pthread_cond_wait(&h->change, &h->lock);
  const maskrcnn_status status = handle_alive(h, error);
  pthread_mutex_unlock(&h->lock);
  return status;
}

// A batch's worth at a time, so that one is copied while another is computed; other submitters come in between.
static maskrcnn_status stage_all(maskrcnn *h, Submission *s, const Incoming *list, int n, maskrcnn_error *error) {
  maskrcnn_status status = MASKRCNN_OK;
  for (int i = 0, some; !status && i < n; i += some) {
    some = MIN(n - i, h->opened.about.batch);
    do {
      status = wait_for_room(h, some, error);
      if (!status) status = submit_stage(h, s, list, i, some, error);
    } while (status == MASKRCNN_FULL); // another thread took the room
  }
  return status;
}

static maskrcnn_status run(maskrcnn *h, const maskrcnn_image *images, int n, maskrcnn_results **results,
                           maskrcnn_error *error) {
  Submission *s;
  Incoming *list;
  if (results) *results = NULL;
  if (h && !results) return fail(error, MASKRCNN_BAD_ARGUMENT, "results is NULL: it must point to results");
  maskrcnn_status status = take_images(h, images, n, 0, &s, &list, error);
  if (status) return status;
  status = stage_all(h, s, list, n, error);
  if (!status) status = wait_until_done(h, s, error);
  free(list);
  if (!status)
    *results = submission_results(s);
  else
    submission_free(s);
  return status;
}

maskrcnn_status maskrcnn_run(maskrcnn *h, const maskrcnn_image *images, int n, maskrcnn_results **results,
                             maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, run(h, images, n, results, error));
}

static maskrcnn_status submit(maskrcnn *h, const maskrcnn_image *images, int n, uint64_t tag, maskrcnn_error *error) {
  Submission *s;
  Incoming *list;
  maskrcnn_status status = handle_usable(h, error);
  if (status) return status;
  if (n > h->opened.about.queue)
    return fail(error, MASKRCNN_BAD_ARGUMENT,
                "n is %d, more than the queue's length of %d: submit fewer images at a time", n, h->opened.about.queue);
  if ((status = take_images(h, images, n, tag, &s, &list, error))) return status;
  s->in_order = true;
  status = submit_stage(h, s, list, 0, n, error);
  free(list);
  if (status) submission_free(s);
  return status;
}

maskrcnn_status maskrcnn_submit(maskrcnn *h, const maskrcnn_image *images, int n, uint64_t tag, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, submit(h, images, n, tag, error));
}

// ---- results --------------------------------------------------------------------------------------------------------

// The oldest submission, or the oldest with a tag: where it hangs in the list. With the lock held.
static Submission **find(maskrcnn *h, const uint64_t *tag) {
  Submission **at = &h->first;
  while (*at && tag && (*at)->results->tag != *tag) at = &(*at)->next;
  return at;
}

static maskrcnn_status state_of(const Submission *s) {
  return !s ? MASKRCNN_EMPTY : s->done < s->results->n ? MASKRCNN_NOT_YET : MASKRCNN_OK;
}

static struct timespec later(int milliseconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const long ns = t.tv_nsec + (long)(milliseconds % 1000) * 1000000;
  t.tv_sec += milliseconds / 1000 + ns / 1000000000;
  t.tv_nsec = ns % 1000000000;
  return t;
}

// Takes it out of the list once it is done. With the lock held.
static maskrcnn_status take(maskrcnn *h, const uint64_t *tag, int milliseconds, Submission **taken,
                            maskrcnn_error *error) {
  const struct timespec until = later(MAX(milliseconds, 0));
  bool waits = milliseconds != 0;
  while (waits && h->state == MASKRCNN_OK && state_of(*find(h, tag)) == MASKRCNN_NOT_YET)
    if (milliseconds < 0)
      pthread_cond_wait(&h->change, &h->lock);
    else
      waits = !pthread_cond_timedwait(&h->change, &h->lock, &until);
  maskrcnn_status status = handle_alive(h, error);
  if (status) return status;
  Submission **at = find(h, tag);
  status = state_of(*at);
  if (status) return status;
  *taken = *at;
  *at = (*at)->next;
  h->last = NULL;
  for (Submission *s = h->first; s; s = s->next) h->last = s;
  pthread_cond_broadcast(&h->change); // who waits for it waits for another, or for nothing
  return status;
}

static maskrcnn_status next(maskrcnn *h, const uint64_t *tag, int milliseconds, maskrcnn_results **results,
                            maskrcnn_error *error) {
  Submission *s = NULL;
  if (results) *results = NULL;
  maskrcnn_status status = handle_usable(h, error);
  if (status) return status;
  if (!results) return fail(error, MASKRCNN_BAD_ARGUMENT, "results is NULL: it must point to results");
  pthread_mutex_lock(&h->lock);
  status = take(h, tag, milliseconds, &s, error);
  pthread_mutex_unlock(&h->lock);
  if (s) *results = submission_results(s);
  return status;
}

maskrcnn_status maskrcnn_next(maskrcnn *h, int milliseconds, maskrcnn_results **results, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, next(h, NULL, milliseconds, results, error));
}

maskrcnn_status maskrcnn_wait(maskrcnn *h, uint64_t tag, int milliseconds, maskrcnn_results **results,
                              maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, next(h, &tag, milliseconds, results, error));
}

static maskrcnn_status poll_one(maskrcnn *h, uint64_t tag, int *done, int *failed, maskrcnn_error *error) {
  maskrcnn_status status = handle_usable(h, error);
  if (status) return status;
  pthread_mutex_lock(&h->lock);
  status = handle_alive(h, error);
  const Submission *s = *find(h, &tag);
  if (!status) status = state_of(s);
  if (done) *done = s ? s->done : 0;
  if (failed) *failed = s ? s->results->failed : 0;
  pthread_mutex_unlock(&h->lock);
  return status;
}

maskrcnn_status maskrcnn_poll(maskrcnn *h, uint64_t tag, int *done, int *failed, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, poll_one(h, tag, done, failed, error));
}

static void cancel_image(const StageSlot *p) {
  Submission *s = p->owner;
  results_fail(s->results, p->image, MASKRCNN_CANCELLED, p->h, p->w, "it was cancelled");
  results_count(s->results, p->image);
  s->done++;
}

static maskrcnn_status cancel(maskrcnn *h, uint64_t tag, maskrcnn_error *error) {
  maskrcnn_status status = handle_usable(h, error);
  if (status) return status;
  pthread_mutex_lock(&h->lock);
  Submission *s = *find(h, &tag);
  status = handle_alive(h, error);
  if (!status && !s) status = MASKRCNN_EMPTY;
  if (!status) {
    s->cancelled = true;
    h->waiting -= staging_cancel(&h->staging, s, cancel_image);
    pthread_cond_broadcast(&h->change);
  }
  pthread_mutex_unlock(&h->lock);
  return status;
}

maskrcnn_status maskrcnn_cancel(maskrcnn *h, uint64_t tag, maskrcnn_error *error) {
  const Guard g = guard_enter(error);
  return guard_leave(&g, cancel(h, tag, error));
}
