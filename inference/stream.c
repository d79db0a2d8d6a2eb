#include "inference/stream.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/clock.h"

typedef struct Waiting { // an image that was taken and not visited
  Decoded *image;
  int group;
  double since;       // when it was taken
  QueuedBatch *batch; // NULL: the image waits for a batch, or cannot be read
  int in_batch;
  bool done;
} Waiting;

typedef struct Stream {
  Decoders *decoders;
  BatchQueue *queue;
  const StreamVisitor *visitor;
  Waiting *ring; // [room] image number i is at i % room
  int room;
  int64_t first, last; // waiting images: first … last - 1
  int *waiting;        // [groups] number of these that have no batch yet
  const Image **image; // of the batch being started
} Stream;

static const double PATIENCE = 0.5; // seconds that an image waits for a full batch
static const double MOMENT = 1e-3;  // seconds between two checks of decoders and network while both are busy

static int largest_batch(const Runner *r) {
  int most = 1;
  for (int g = 0; g < r->groups; g++) most = MAX(most, r->batch(r->context, g));
  return most;
}

// Slots for images, kept until all earlier images are done: every group may have almost a batch waiting while others
// are in flight, and if the first image of a rare group blocks the order, later ones continue meanwhile.
static int slots(const Runner *r) { return 4 * (r->groups + r->under_way + 1) * largest_batch(r); }

static Waiting *at(const Stream *s, int64_t i) { return &s->ring[i % s->room]; }

// ---- visits -----------------------------------------------------------------------------------------------------

// Called when an image of a batch has been visited.
static void let_go(Stream *s, QueuedBatch *b) {
  if (--b->left == 0) queue_release(s->queue, b);
}

// Visits all images that are done and have no unfinished image before them.
static void visit(Stream *s) {
  const StreamVisitor *v = s->visitor;
  for (; s->first < s->last && at(s, s->first)->done; s->first++) {
    Waiting *w = at(s, s->first);
    QueuedBatch *b = w->batch;
    if (b && b->results)
      v->image(v->context, w->image, b->results, w->in_batch);
    else
      v->bad(v->context, w->image, b ? b->why : w->image->wrong);
    if (b) let_go(s, b);
    decoders_free(s->decoders, w->image);
  }
}

// ---- batches ----------------------------------------------------------------------------------------------------

// Starts a batch of the group's longest waiting images.
static bool start_batch(Stream *s, int group, Err *err) {
  const Runner *r = &s->queue->runner;
  const StreamVisitor *v = s->visitor;
  const int most = r->batch(r->context, group);
  int n = 0;
  Waiting **member = xmalloc((size_t)most * sizeof(Waiting *));
  for (int64_t i = s->first; i < s->last && n < most; i++) {
    Waiting *w = at(s, i);
    if (w->batch || w->done || w->group != group) continue;
    s->image[n] = &w->image->image;
    member[n++] = w;
  }
  s->waiting[group] -= n;
  QueuedBatch *b = queue_begin(s->queue, group, s->image, n, NULL, err);
  for (int i = 0; i < n; i++) {
    member[i]->batch = b;
    member[i]->in_batch = i;
    if (!v->keeps || !v->keeps(v->context, member[i]->image)) decoders_drop_pixels(s->decoders, member[i]->image);
  }
  free(member);
  return b;
}

// Takes a finished batch, if there is one. False with a message if nothing more can be computed.
static bool take_batch(Stream *s, bool wait, bool *took, Err *err) {
  QueuedBatch *b;
  const QueueState state = queue_next(s->queue, wait, &b, err);
  CHECK(state != QUEUE_EMPTY);
  *took = state == QUEUE_DONE;
  if (!*took) return state != QUEUE_FAILS;
  if (b->dropped) return true; // never done: the stream ends before its images
  if (b->results && s->visitor->took) s->visitor->took(s->visitor->context, b->group, b->images, b->seconds);
  for (int64_t i = s->first; i < s->last; i++)
    if (at(s, i)->batch == b) at(s, i)->done = true;
  return true;
}

static const Waiting *longest_waiting(const Stream *s) {
  for (int64_t i = s->first; i < s->last; i++)
    if (!at(s, i)->batch && !at(s, i)->done) return at(s, i);
  return NULL;
}

// The group whose batch should start, or -1. With `partly`, when nothing more can be taken at the moment, also a
// partial batch; `pressed`: nothing more can be taken until a batch starts.
static int choose_group(const Stream *s, bool partly, bool pressed) {
  const Runner *r = &s->queue->runner;
  const Waiting *oldest = longest_waiting(s);
  if (!oldest || queue_full(s->queue)) return -1;
  int fullest = -1;
  double most = 0;
  for (int g = 0; g < r->groups; g++) {
    const double share = (double)s->waiting[g] / r->batch(r->context, g);
    if (share <= most) continue;
    fullest = g;
    most = share;
  }
  if (most >= 1 || (partly && s->queue->under_way == 0)) return fullest;
  if (now_seconds() - oldest->since > PATIENCE) return oldest->group;
  return partly && pressed ? oldest->group : -1;
}

// ---- images -----------------------------------------------------------------------------------------------------

static void take_image(Stream *s, Decoded *image) {
  Waiting *w = at(s, s->last++);
  *w = (Waiting){.image = image, .since = now_seconds(), .done = image->wrong != NULL};
  if (w->done) return;
  const Runner *r = &s->queue->runner;
  w->group = r->group(r->context, image->image.h, image->image.w);
  s->waiting[w->group]++;
}

static bool next_image(Stream *s, double wait, DecodersState *state, Err *err) {
  Decoded *image;
  *state = decoders_next(s->decoders, wait, &image, err);
  if (image) take_image(s, image);
  return *state != DECODERS_FAIL;
}

// Does one thing, or waits a moment for something to do: starts a full batch, takes a decoded image or a finished
// batch, starts a partial batch. `state` is the decoders' latest answer.
static bool turn(Stream *s, DecodersState *state, Err *err) {
  const BatchQueue *q = s->queue;
  int group = choose_group(s, false, false);
  if (group >= 0) return start_batch(s, group, err);
  const bool room = s->last - s->first < s->room;
  if (room && !next_image(s, 0, state, err)) return false;
  if (room && *state == DECODERS_IMAGE) return true;
  bool took = false;
  if (q->under_way && !take_batch(s, false, &took, err)) return false;
  visit(s);
  if (took) return true;
  group = choose_group(s, true, !room || *state != DECODERS_BUSY);
  if (group >= 0) return start_batch(s, group, err);
  const bool only_results = q->under_way && (!room || *state == DECODERS_END || queue_full(q));
  if (only_results) return take_batch(s, true, &took, err);
  if (*state == DECODERS_END || !room) return true;
  return next_image(s, q->under_way ? MOMENT : 50 * MOMENT, state, err);
}

static bool is_stopped(const Stream *s) { return s->visitor->stopped && s->visitor->stopped(); }

// Waits for batches in flight and drops waiting images.
static void settle(Stream *s, bool works) {
  Err err;
  bool took = true;
  while (works && s->queue->under_way) works = take_batch(s, true, &took, &err) && took;
  visit(s);
  for (; s->first < s->last; s->first++) {
    Waiting *w = at(s, s->first);
    if (w->batch) let_go(s, w->batch);
    decoders_free(s->decoders, w->image);
  }
}

bool stream_run(Decoders *d, BatchQueue *queue, const StreamVisitor *visitor, Err *err) {
  const Runner *r = &queue->runner;
  Stream s = {.decoders = d, .queue = queue, .visitor = visitor, .room = slots(r)};
  s.ring = xcalloc((size_t)s.room, sizeof *s.ring);
  s.waiting = xcalloc((size_t)r->groups, sizeof *s.waiting);
  s.image = xcalloc((size_t)largest_batch(r), sizeof *s.image);
  DecodersState state = DECODERS_BUSY;
  bool ok = true, stopped = false;
  err->msg[0] = 0;
  while (ok && !(stopped = is_stopped(&s)) && !(state == DECODERS_END && s.first == s.last)) ok = turn(&s, &state, err);
  const bool works = ok || state == DECODERS_FAIL; // whether the network works
  settle(&s, works);
  free(s.ring);
  free(s.waiting);
  free(s.image);
  return ok && !stopped;
}
