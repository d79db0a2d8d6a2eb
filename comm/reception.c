#include "comm/reception.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "comm/pending.h"

// Seconds that a second process of a rank waits for the first to be gone.
static const double twice_seconds = 1;
// Seconds during which a contradiction between ranks is reported to ranks that still connect.
static const double end_seconds = 3;

typedef struct Seat { // a rank
  bool here;
  int seating; // how often somebody has taken this seat
  double left; // when the rank disconnected; 0: it did not, or is back
  bool said;   // that it did
  Hello hello;
  Address from;
  uint8_t session[SHA256_BYTES]; // of its control connection
  Wire control, data;
} Seat;

typedef struct Reception {
  const Launch *l;
  Hello mine;
  const char *where;
  Seat *seat; // [world]; [0] is this process
  PendingList pending;
  const char *off; // why the run cannot start; NULL: it can
  int told;        // number of ranks that have been told so
  double end_seconds;
} Reception;

static void leave_seat(Seat *s) {
  wire_close(&s->control);
  wire_close(&s->data);
  s->here = false;
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

static bool twice(const Seat *s, const Pending *g, Err *err) {
  char one[300], other[300];
  address_text(&s->from, one, sizeof one);
  address_text(&g->from, other, sizeof other);
  return err_set(err, "two processes both claim to be rank %d: one on %s (%s) and one on %s (%s)", g->hello.rank,
                 s->hello.peer.host, g->hello.rank ? one : "this process", g->hello.peer.host, other);
}

// False if two ranks would use the same GPU: they have the same local rank, name of host and address.
static bool local_ranks_differ(const Reception *r, const Pending *g, Err *err) {
  const Hello *h = &g->hello;
  for (int i = 0; i < r->mine.world; i++) {
    const Seat *s = &r->seat[i];
    if (i == h->rank || !s->here || s->hello.local_rank != h->local_rank) continue;
    const bool same_address = i ? !strcmp(s->from.host, g->from.host) : socket_is_of_this_host(g->wire.fd);
    if (!same_address || strcmp(s->hello.peer.host, h->peer.host) != 0) continue;
    return err_set(err, "ranks %d and %d on %s both have local rank %d: give each its own LOCAL_RANK", MIN(i, h->rank),
                   MAX(i, h->rank), h->peer.host, h->local_rank);
  }
  return true;
}

static void seat_data(Reception *r, Pending *g) {
  Seat *seat = &r->seat[g->hello.rank];
  if (!seat->here || seat->seating != g->seating || seat->data.fd >= 0) {
    wire_close(&g->wire);
    return;
  }
  seat->data = g->wire;
  g->wire = (Wire){.fd = -1};
  wire_send(&seat->data, FRAME_SEATED, 0, 0, "");
}

static void seat_control(Reception *r, Pending *g) {
  Seat *seat = &r->seat[g->hello.rank];
  leave_seat(seat);
  *seat = (Seat){.here = true,
                 .seating = seat->seating + 1,
                 .said = seat->said,
                 .hello = g->hello,
                 .from = g->from,
                 .control = g->wire,
                 .data = {.fd = -1}};
  memcpy(seat->session, g->session, sizeof seat->session);
  g->wire = (Wire){.fd = -1};
  wire_send(&seat->control, FRAME_SEATED, 0, 0, "");
}

// Whether the rank can take its seat. False with *err set: it contradicts what this run is.
static bool can_sit(Reception *r, const Pending *g, Err *err) {
  if (!fits(r, &g->hello, err)) return false;
  Seat *seat = &r->seat[g->hello.rank];
  if (seat->here && g->hello.rank) wire_receive(&seat->control);
  if (seat->here && (!g->hello.rank || !seat->control.ended)) return twice(seat, g, err);
  return local_ranks_differ(r, g, err);
}

// Whether a proven connection should wait: the rank may be back before its earlier connection is known to have ended.
static bool waits(Reception *r, const Pending *g) {
  const Hello *h = &g->hello;
  return h->rank > 0 && h->rank < r->mine.world && r->seat[h->rank].here && now_seconds() - g->since < twice_seconds;
}

// Admits a proven connection. Takes its wire unless it has to wait. False: the run cannot start.
static bool admit(Reception *r, Pending *g, Err *err) {
  Err why = {""};
  if (g->hello.connection == FOR_DATA) {
    seat_data(r, g);
    return true;
  }
  if (r->off) {
    r->told++;
    wire_refuse(&g->wire, 1, r->off);
    return true;
  }
  if (can_sit(r, g, &why)) {
    seat_control(r, g);
    return true;
  }
  if (waits(r, g)) return true;
  if (r->l->secret) {
    r->told++;
    wire_refuse(&g->wire, 1, why.msg);
    return err_set(err, "%s", why.msg);
  }
  pending_warn(&r->pending, CONTRADICTION, g, ": %s", why.msg);
  wire_refuse(&g->wire, 0, why.msg);
  return true;
}

// ---- connections without a seat ---------------------------------------------------------------------------------

// The key that this connection has to know; NULL: its rank has no seat that it could belong to.
static const uint8_t *key_for(void *reception, Pending *g) {
  const Reception *r = reception;
  if (g->hello.connection == FOR_CONTROL) return r->l->key;
  if (g->hello.rank >= r->mine.world || !r->seat[g->hello.rank].here || !g->hello.rank) return NULL;
  g->seating = r->seat[g->hello.rank].seating;
  return r->seat[g->hello.rank].session;
}

// Reads from connections without a seat. Closes those that are not ranks of this run.
static bool read_pending(Reception *r, Err *err) {
  Frame *frame = xmalloc(sizeof *frame);
  bool ok = true;
  // Backwards, because the last one replaces one that is dismissed.
  for (int i = r->pending.n - 1; ok && i >= 0; i--) {
    Pending *g = &r->pending.one[i];
    const bool stays = pending_read(&r->pending, i, frame);
    if (stays && g->stage == PROVEN) ok = admit(r, g, err);
    if (!stays || g->wire.fd < 0) pending_dismiss(&r->pending, i);
  }
  free(frame);
  return ok;
}

// Whether a rank's connections are as they should be before the welcome: open, and silent.
static bool is_well(Seat *s) {
  wire_receive(&s->control);
  if (s->data.fd >= 0) wire_receive(&s->data);
  return !s->control.ended && !s->control.in_bytes && !s->data.ended && !s->data.in_bytes;
}

// Without a secret it may have been anybody: the run waits on, and whoever reads why it waits sees it.
static void say_left(Seat *s, int rank) {
  char line[512];
  if (s->said) return;
  s->said = true;
  snprintf(line, sizeof line, "rank %d on %s joined, but disconnected before all ranks had joined; waiting for it",
           rank, s->hello.peer.host);
  die_print(text_clean(line));
}

// Notices ranks that disconnected, which may join again for a while. False: one is lost.
static bool look_after_seats(Reception *r, Err *err) {
  for (int i = 1; i < r->mine.world; i++) {
    Seat *s = &r->seat[i];
    if (s->here && !is_well(s)) {
      leave_seat(s);
      s->left = now_seconds();
      if (!r->l->secret) say_left(s, i);
    }
    if (r->l->secret && s->left > 0 && now_seconds() - s->left > MAY_BE_AWAY)
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
      wire_flush(&r->seat[i].data);
      left |= r->seat[i].control.out_bytes || r->seat[i].data.out_bytes;
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
  struct pollfd *p = xcalloc((size_t)(1 + r->pending.n + 2 * world), sizeof *p);
  int n = 0;
  p[n++] = (struct pollfd){.fd = r->pending.full ? -1 : listener, .events = POLLIN};
  for (int i = 0; i < r->pending.n; i++) p[n++] = (struct pollfd){.fd = r->pending.one[i].wire.fd, .events = POLLIN};
  for (int i = 1; i < world; i++) {
    p[n++] = (struct pollfd){.fd = r->seat[i].control.fd, .events = POLLIN};
    p[n++] = (struct pollfd){.fd = r->seat[i].data.fd, .events = POLLIN};
  }
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
    pending_accept(&r->pending, listener);
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
    wire_refuse(&r->seat[i].control, 1, why);
    r->told++;
  }
  while (!r->l->crew && r->told < r->mine.world - 1 && now_seconds() < deadline) {
    wait_for_connections(r, listener);
    pending_accept(&r->pending, listener);
    read_pending(r, NULL);
  }
}

bool reception(Meeting *m, const Launch *l, int listener, const char *where, double seconds, bool *others_say,
               Err *err) {
  Reception r = {.l = l, .mine = hello_of(l, FOR_CONTROL), .where = where};
  r.pending = (PendingList){
      .key_for = key_for, .context = &r, .advice = l->crew ? "" : "; give all ranks the same MASKRCNN_JOB"};
  pending_open(&r.pending, 2 * l->world);
  r.seat = xcalloc((size_t)l->world, sizeof *r.seat);
  for (int i = 0; i < l->world; i++) r.seat[i] = (Seat){.control = {.fd = -1}, .data = {.fd = -1}};
  r.seat[0].here = true;
  r.seat[0].hello = r.mine;
  bool ok = receive_all(&r, listener, seconds, others_say, err);
  if (ok)
    seat_all(&r, m);
  else
    tell_all(&r, listener, err->msg);
  pending_close(&r.pending);
  for (int i = 1; i < l->world; i++) leave_seat(&r.seat[i]);
  free(r.seat);
  return ok;
}
