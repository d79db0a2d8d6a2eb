#include "comm/comm.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "comm/links.h"
#include "comm/rendezvous.h"

enum { MOST_TEXT = 1 << 20 }; // bytes of a text that ranks compare

// Used before the watch exists: whether another process reports a failure of this one.
typedef struct Unmet {
  Crew *crew;
  bool others_say;
} Unmet;

static bool tell_unmet(void *context, int *code, char *line, size_t room) {
  const Unmet *u = context;
  (void)line;
  (void)room;
  if (!u->crew) return u->others_say;
  if (!u->others_say && crew_claim(u->crew, *code)) return false;
  if (crew_code(u->crew)) *code = crew_code(u->crew);
  return true;
}

bool comm_open(Comm **out, const CommOptions *o, Err *err) {
  const int world = o->launch.world;
  *out = NULL;
  if (world <= 1 && !o->launch.crew) return true;
  Unmet *unmet = xcalloc(1, sizeof *unmet);
  unmet->crew = o->launch.crew;
  die_tells(tell_unmet, unmet);
  if (world <= 1) return true; // only its supervisor has to know that the failure was reported
  Meeting m;
  if (!rendezvous(&m, &o->launch, o->meeting_seconds, &unmet->others_say, err)) {
    meeting_close(&m, world);
    return false; // the rest is done by the die() that follows
  }
  Comm *c = xcalloc(1, sizeof *c);
  c->launch = o->launch;
  c->rank = o->launch.rank;
  c->world = world;
  c->data = m.data;
  c->peer = m.peer;
  c->watch = watch_open(&c->launch, c->peer, m.control, o->silence_seconds);
  free(m.control);
  free(unmet);
  *out = c;
  return true;
}

void comm_close(Comm *c) {
  if (!c) return;
  comm_barrier(c);
  watch_close(c->watch);
  for (int i = 0; i < c->world; i++)
    if (c->data[i] >= 0) close(c->data[i]);
  free(c->data);
  free(c->peer);
  free(c);
}

int comm_rank(const Comm *c) { return c ? c->rank : 0; }
int comm_world(const Comm *c) { return c ? c->world : 1; }
const Launch *comm_launch(const Comm *c) { return c ? &c->launch : NULL; }
const char *comm_host(const Comm *c, int rank) { return c ? c->peer[rank].host : "this host"; }

// ---- over host memory ---------------------------------------------------------------------------------------------

void comm_broadcast_bytes(Comm *c, void *p, size_t bytes) {
  if (!c) return;
  if (c->rank)
    comm_recv(c, 0, p, bytes);
  else
    for (int i = 1; i < c->world; i++) comm_send(c, i, p, bytes);
}

void comm_barrier(Comm *c) {
  if (!c) return;
  char token = 0;
  if (c->rank)
    comm_send(c, 0, &token, 1);
  else
    for (int i = 1; i < c->world; i++) comm_recv(c, i, &token, 1);
  comm_broadcast_bytes(c, &token, 1);
}

void comm_broadcast_text(Comm *c, char *text, size_t room) {
  if (!c) return;
  if (!c->rank) memset(text + strlen(text), 0, room - strlen(text)); // nothing else is sent
  comm_broadcast_bytes(c, text, room);
  text[room - 1] = '\0';
}

static CommPart copy_of(const void *p, size_t bytes) {
  CommPart part = {xmalloc(bytes + 1), bytes};
  if (bytes) memcpy(part.data, p, bytes);
  part.data[bytes] = '\0';
  return part;
}

static CommPart receive_part(Comm *c, int from, size_t least, size_t most) {
  enum { PIECE = 1 << 20 };
  uint64_t n = 0;
  CommPart part = {0};
  size_t room = 0;
  comm_recv(c, from, &n, sizeof n);
  if (n < least || n > most)
    die(EXIT_RUN, "rank %d on %s announced %llu bytes, but %s%zu are possible", from, c->peer[from].host,
        (unsigned long long)n, least == most ? "only " : "at most ", most);
  do {
    const size_t bytes = MIN(n - part.bytes, (size_t)PIECE);
    array_reserve((void **)&part.data, &room, part.bytes + bytes + 1, 1);
    comm_recv(c, from, part.data + part.bytes, bytes);
    part.bytes += bytes;
  } while (part.bytes < n);
  part.data[n] = '\0';
  return part;
}

static bool gather(Comm *c, const void *mine, size_t bytes, size_t least, size_t most, CommPart *part) {
  if (!c) return false;
  CHECK(bytes >= least && bytes <= most);
  const uint64_t n = bytes;
  if (c->rank) {
    comm_send(c, 0, &n, sizeof n);
    comm_send(c, 0, mine, bytes);
    return false;
  }
  part[0] = copy_of(mine, bytes);
  for (int i = 1; i < c->world; i++) part[i] = receive_part(c, i, least, most);
  return true;
}

bool comm_gather(Comm *c, const void *mine, size_t bytes, size_t most, CommPart *part) {
  return gather(c, mine, bytes, 0, most, part);
}
bool comm_gather_equal(Comm *c, const void *mine, size_t bytes, CommPart *part) {
  return gather(c, mine, bytes, bytes, bytes, part);
}

// Rank 0: finds the first rank whose text differs from its own, with a message.
static bool compare(const Comm *c, const CommPart *part, CommSame *same, Err *err) {
  Err how = {""};
  for (int i = 1; i < c->world; i++)
    if (!same(part[0].data, part[i].data, &how)) return err_set(err, "rank %d on %s: %s", i, c->peer[i].host, how.msg);
  return true;
}

void comm_all_know(Comm *c) {
  if (c) watch_all_know(c->watch);
}

bool comm_agree(Comm *c, const char *text, CommSame *same, Err *err) {
  if (!c) return true;
  CommPart *part = c->rank ? NULL : xcalloc((size_t)c->world, sizeof *part);
  Err verdict = {""};
  if (comm_gather(c, text, strlen(text), MOST_TEXT, part)) compare(c, part, same, &verdict);
  for (int i = 0; part && i < c->world; i++) free(part[i].data);
  free(part);
  comm_broadcast_text(c, verdict.msg, sizeof verdict.msg);
  if (!*verdict.msg) return true;
  comm_all_know(c);
  return err_set(err, "%s", verdict.msg);
}

// ---- control connection -------------------------------------------------------------------------------------------

void comm_at(Comm *c, int64_t step) {
  if (c) watch_at(c->watch, step);
}
bool comm_stop_asked(const Comm *c) { return c && watch_stop_asked(c->watch); }
void comm_last(Comm *c, void (*last)(void *context), void *context) {
  if (c) watch_last(c->watch, last, context);
}
void comm_check(Comm *c, bool (*check)(void *context, Err *err), void *context) {
  if (c) watch_check(c->watch, check, context);
}
