#include "comm/reception.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

enum { MORE_PENDING = 64 };             // connections beyond those of the ranks
static const double hello_seconds = 10; // seconds that a connection may stay silent
// Seconds during which a contradiction between ranks is reported to ranks that still connect.
static const double end_seconds = 3;

typedef struct Pending { // a connection that has no seat yet
  Wire wire;
  double since;
  bool known; // it has sent `hello`
  Hello hello;
} Pending;

typedef struct Seat { // a rank
  bool here;
  double left; // when the rank disconnected; 0: it did not, or is back
  Hello hello;
  Wire control, data;
} Seat;

typedef struct Reception {
  const Launch *l;
  Hello mine;
  const char *where;
  Seat *seat; // [world]; [0] is this process
  Pending *pending;
  int num_pending, room;
  const char *off; // why the run cannot start; NULL: it can
  int told;        // number of ranks that have been told so
  double end_seconds;
} Reception;

static void leave_seat(Seat *s) {
  wire_close(&s->control);
  wire_close(&s->data);
  s->here = false;
}

static void refuse(Wire *w, int code, const char *why) {
  wire_send(w, FRAME_REFUSED, code, 0, why);
  wire_shut(w);
  wire_close(w);
}

// ---- admission --------------------------------------------------------------------------------------------------

// Whether this rank fits the run; otherwise the run cannot start.
static bool fits(const Reception *r, const Hello *h, Err *err) {
  const Hello *mine = &r->mine;
  if (strcmp(h->build, mine->build) != 0)
    return err_set(err, "rank %d on %s runs build %s, but rank 0 on %s runs %s: start the same build on all hosts",
                   h->rank, h->peer.host, h->build, mine->peer.host, mine->build);
  if (h->world != mine->world)
    return err_set(
        err, "rank %d on %s expects %d ranks, but rank 0 on %s expects %d: start all with the same number of ranks",
        h->rank, h->peer.host, h->world, mine->peer.host, mine->world);
  return h->rank < mine->world ||
         err_set(err, "rank %d on %s: this run has only %d ranks", h->rank, h->peer.host, mine->world);
}

static bool same_process(const Peer *a, const Peer *b) {
  return a->pid == b->pid && !strcmp(a->namespaces, b->namespaces);
}

static bool twice(const Hello *a, const Hello *b, Err *err) {
  return err_set(err, "two processes both claim to be rank %d: process %ld on %s and process %ld on %s", a->rank,
                 (long)a->peer.pid, a->peer.host, (long)b->peer.pid, b->peer.host);
}

// False if two ranks would use the same GPU.
static bool local_ranks_differ(const Reception *r, const Hello *h, Err *err) {
  for (int i = 0; i < r->mine.world; i++) {
    const Hello *other = &r->seat[i].hello;
    if (i == h->rank || !r->seat[i].here || other->local_rank != h->local_rank) continue;
    if (strcmp(other->peer.namespaces, h->peer.namespaces) != 0) continue;
    return err_set(err, "ranks %d and %d on %s both have local rank %d: give each its own LOCAL_RANK", MIN(i, h->rank),
                   MAX(i, h->rank), h->peer.host, h->local_rank);
  }
  return true;
}

static bool seated_as(const Reception *r, const Hello *h) {
  const Seat *s = &r->seat[h->rank];
  return s->here && same_process(&s->hello.peer, &h->peer);
}

// Admits a connection that has sent its hello. Takes its wire unless it has to wait: a data connection has to wait for
// the hello of the control connection. False: the run cannot start.
static bool admit(Reception *r, Pending *g, Err *err) {
  char why[512];
  const Hello *h = &g->hello;
  if (strcmp(h->nonce, r->mine.nonce) != 0) { // the rank read another rendezvous file
    wire_close(&g->wire);
    return true;
  }
  if (strcmp(h->token, r->mine.token) != 0) {
    snprintf(why, sizeof why, "rank 0 at %.300s belongs to another job; this rank's job is \"%.100s\"", r->where,
             h->token);
    refuse(&g->wire, 0, why);
    return true;
  }
  if (r->off) {
    r->told += h->connection == FOR_CONTROL;
    refuse(&g->wire, 1, r->off);
    return true;
  }
  if (!fits(r, h, err)) return false;
  Seat *seat = &r->seat[h->rank];
  const bool same = seated_as(r, h);
  if (h->connection == FOR_DATA) {
    if (!same) return true;
    wire_close(&seat->data);
    seat->data = g->wire;
    g->wire = (Wire){.fd = -1};
    return true;
  }
  if (seat->here && h->rank) wire_receive(&seat->control);
  if (seat->here && !same && (!h->rank || !seat->control.ended)) return twice(&seat->hello, h, err);
  if (!local_ranks_differ(r, h, err)) return false;
  leave_seat(seat);
  *seat = (Seat){.here = true, .hello = *h, .control = g->wire, .data = {.fd = -1}};
  wire_send(&seat->control, FRAME_SEATED, 0, 0, "");
  g->wire = (Wire){.fd = -1};
  return true;
}

// ---- connections without a seat ---------------------------------------------------------------------------------

static void dismiss(Reception *r, int which) {
  wire_close(&r->pending[which].wire);
  r->pending[which] = r->pending[--r->num_pending];
}

static void accept_connections(Reception *r, int listener) {
  for (int taken = 0; taken < r->room; taken++) {
    int fd = socket_accept(listener);
    if (fd < 0) return;
    if (r->num_pending == r->room) { // drops the oldest connection
      int oldest = 0;
      for (int i = 1; i < r->num_pending; i++)
        if (r->pending[i].since < r->pending[oldest].since) oldest = i;
      dismiss(r, oldest);
    }
    r->pending[r->num_pending++] = (Pending){.wire = wire_open(fd), .since = now_seconds()};
  }
}

// Whether a connection may still turn out to be a rank.
static bool read_hello(Pending *g, Frame *frame) {
  const bool in_time = now_seconds() - g->since < hello_seconds;
  wire_receive(&g->wire);
  if (g->known) return in_time && !g->wire.ended;
  const WireResult found = wire_next(&g->wire, frame);
  if (found == WIRE_OTHER_VERSION) wire_send(&g->wire, FRAME_REFUSED, 0, 0, ""); // the header tells it this version
  if (found == WIRE_NOTHING) return in_time && !g->wire.ended;
  g->known = found == WIRE_FRAME && hello_parse(&g->hello, frame);
  return g->known && !g->wire.ended;
}

// Reads from connections without a seat. Closes those that are not ranks of this run.
static bool read_pending(Reception *r, Err *err) {
  Frame *frame = xmalloc(sizeof *frame);
  bool ok = true;
  // Backwards, because the last one replaces one that is dismissed.
  for (int i = r->num_pending - 1; ok && i >= 0; i--) {
    Pending *g = &r->pending[i];
    const bool stays = read_hello(g, frame);
    if (stays && g->known) ok = admit(r, g, err);
    if (!ok) refuse(&g->wire, 1, err->msg);
    r->told += !ok && g->hello.connection == FOR_CONTROL;
    if (!stays || g->wire.fd < 0) dismiss(r, i);
  }
  free(frame);
  return ok;
}

// Notices ranks that disconnected, which may join again for a while. False: one is lost.
static bool look_after_seats(Reception *r, Err *err) {
  for (int i = 1; i < r->mine.world; i++) {
    Seat *s = &r->seat[i];
    if (s->here) wire_receive(&s->control);
    if (s->here && s->control.ended) {
      leave_seat(s);
      s->left = now_seconds();
    }
    if (s->left > 0 && now_seconds() - s->left > MAY_BE_AWAY)
      return err_set(err, "rank %d on %s joined, but exited before all ranks had joined", i, s->hello.peer.host);
  }
  return true;
}

// ---- the end ----------------------------------------------------------------------------------------------------

static bool seated(const Seat *s) { return s->here && s->data.fd >= 0; }

static bool complete(const Reception *r) {
  for (int i = 1; i < r->mine.world; i++)
    if (!seated(&r->seat[i])) return false;
  return true;
}

// Lists missing ranks: "rank 3 of 8 has", "ranks 3, 5-7 of 8 have".
static void missing(const Reception *r, char *text, size_t room) {
  size_t n = 0;
  int count = 0;
  const int world = r->mine.world;
  char list[2048] = "";
  for (int i = 1; i < world; i++) {
    if (seated(&r->seat[i])) continue;
    int last = i;
    while (last + 1 < world && !seated(&r->seat[last + 1])) last++;
    const char *comma = count ? ", " : "";
    if (n + 32 < sizeof list)
      n += (size_t)snprintf(list + n, sizeof list - n, last > i ? "%s%d-%d" : "%s%d", comma, i, last);
    count += last - i + 1;
    i = last;
  }
  snprintf(text, room, "rank%s %s of %d %s", count > 1 ? "s" : "", list, world, count > 1 ? "have" : "has");
}

// Waits until everything queued for ranks has been sent.
static void flush_seats(Reception *r, double seconds) {
  const double deadline = now_seconds() + seconds;
  for (bool left = true; left && now_seconds() < deadline;) {
    left = false;
    for (int i = 1; i < r->mine.world; i++) {
      wire_flush(&r->seat[i].control);
      left |= r->seat[i].control.out_bytes > 0;
    }
    if (left) poll(NULL, 0, 5);
  }
}

static void seat_all(Reception *r, Meeting *m) {
  const int world = r->mine.world;
  for (int i = 0; i < world; i++) m->peer[i] = r->seat[i].hello.peer;
  for (int i = 1; i < world; i++) {
    Wire *control = &r->seat[i].control;
    for (int k = 0; k < world; k++) peer_send(control, k, &m->peer[k]);
    wire_send(control, FRAME_WELCOME, 0, 0, "");
  }
  flush_seats(r, 10);
  for (int i = 1; i < world; i++) {
    m->data[i] = wire_release(&r->seat[i].data);
    m->control[i] = r->seat[i].control;
    r->seat[i] = (Seat){.control = {.fd = -1}, .data = {.fd = -1}};
  }
}

// Waits for new connections or data, for a while.
static void wait_for_connections(const Reception *r, int listener) {
  const int world = r->mine.world;
  struct pollfd *p = xcalloc((size_t)(1 + r->room + world), sizeof *p);
  int n = 0;
  p[n++] = (struct pollfd){.fd = listener, .events = POLLIN};
  for (int i = 0; i < r->num_pending; i++) p[n++] = (struct pollfd){.fd = r->pending[i].wire.fd, .events = POLLIN};
  for (int i = 1; i < world; i++) p[n++] = (struct pollfd){.fd = r->seat[i].control.fd, .events = POLLIN};
  poll(p, (nfds_t)n, 200);
  free(p);
}

static bool receive_all(Reception *r, int listener, double seconds, bool *others_say, Err *err) {
  const double deadline = now_seconds() + seconds;
  char who[2200];
  while (!complete(r)) {
    if (meeting_is_off(r->l, others_say, err)) return false;
    if (now_seconds() > deadline) {
      missing(r, who, sizeof who);
      return err_set(err, "%s not joined at %s within %g s", who, r->where, seconds);
    }
    wait_for_connections(r, listener);
    accept_connections(r, listener);
    if (!read_pending(r, err)) {
      r->end_seconds = end_seconds;
      return false;
    }
    if (!look_after_seats(r, err)) return false;
  }
  return true;
}

// Tells ranks that have joined, and those that join meanwhile, why the run cannot start.
static void tell_all(Reception *r, int listener, const char *why) {
  const double deadline = now_seconds() + r->end_seconds;
  r->off = why;
  for (int i = 1; i < r->mine.world; i++) {
    if (!r->seat[i].here) continue;
    refuse(&r->seat[i].control, 1, why);
    r->told++;
  }
  while (!r->l->crew && r->told < r->mine.world - 1 && now_seconds() < deadline) {
    wait_for_connections(r, listener);
    accept_connections(r, listener);
    read_pending(r, NULL);
  }
}

bool reception(Meeting *m, const Launch *l, int listener, const char *where, const char *nonce, double seconds,
               bool *others_say, Err *err) {
  Reception r = {.l = l, .mine = hello_of(l, nonce), .where = where, .room = 2 * l->world + MORE_PENDING};
  r.seat = xcalloc((size_t)l->world, sizeof *r.seat);
  r.pending = xcalloc((size_t)r.room, sizeof *r.pending);
  for (int i = 0; i < l->world; i++) r.seat[i] = (Seat){.control = {.fd = -1}, .data = {.fd = -1}};
  r.seat[0].here = true;
  r.seat[0].hello = r.mine;
  bool ok = receive_all(&r, listener, seconds, others_say, err);
  if (ok)
    seat_all(&r, m);
  else
    tell_all(&r, listener, err->msg);
  while (r.num_pending) dismiss(&r, r.num_pending - 1);
  for (int i = 1; i < l->world; i++) leave_seat(&r.seat[i]);
  free(r.seat);
  free(r.pending);
  return ok;
}
