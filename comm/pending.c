#include "comm/pending.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

// Connections without a proof, and those accepted at a time, before they are read.
enum { MOST_UNPROVEN = 512, AT_A_TIME = 64 };
// Seconds that a connection has for its proof, and after which it gives its place first if it has said nothing.
static const double proof_seconds = 5, idle_seconds = 0.2;

void wire_refuse(Wire *w, int code, const char *why) {
  wire_send(w, FRAME_REFUSED, code, 0, why);
  wire_shut(w);
  wire_close(w);
}

void pending_warn(PendingList *p, Refusal what, const Pending *g, const char *fmt, ...) {
  char from[300], why[1024], line[2048];
  if (p->warned & 1u << what) return;
  p->warned |= 1u << what;
  va_list args;
  va_start(args, fmt);
  vsnprintf(why, sizeof why, fmt, args);
  va_end(args);
  address_text(&g->from, from, sizeof from);
  snprintf(line, sizeof line, "refused a connection from %s%s", from, why);
  die_print(text_clean(line));
}

// ---- opening and closing ----------------------------------------------------------------------------------------

// Allows this process as many open files as a meeting takes, if it may.
static void allow_files(size_t connections) {
  struct rlimit limit;
  const rlim_t needed = connections + 256; // the rest of the program's
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed) return;
  limit.rlim_cur = MIN(needed, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

void pending_open(PendingList *p, int proven) {
  p->room = proven + MOST_UNPROVEN;
  p->one = xcalloc((size_t)p->room, sizeof *p->one);
  allow_files((size_t)p->room + (size_t)proven);
}

void pending_close(PendingList *p) {
  while (p->n) pending_dismiss(p, p->n - 1);
  free(p->one);
}

void pending_dismiss(PendingList *p, int which) {
  wire_close(&p->one[which].wire);
  p->one[which] = p->one[--p->n];
}

// ---- reading ----------------------------------------------------------------------------------------------------

// False: it is no hello of a rank.
static bool take_hello(PendingList *p, Pending *g, const Frame *f) {
  if (!hello_parse(&g->hello, f)) {
    pending_warn(p, OTHER_PROGRAM, g, ", which is not a rank's");
    return false;
  }
  const uint8_t *key = p->key_for(p->context, g);
  if (!key) return false;
  Frame *challenge = xmalloc(sizeof *challenge);
  challenge_frame(challenge);
  frame_send(&g->wire, challenge);
  session_key(g->session, key, f, challenge);
  free(challenge);
  wire_seal(&g->wire, g->session, true);
  g->stage = CHALLENGED;
  return true;
}

// False: it did not prove that it knows the key.
static bool take_proof(PendingList *p, Pending *g, WireResult found, const Frame *f) {
  if (found == WIRE_FRAME && f->type == FRAME_PROOF) {
    g->stage = PROVEN;
    return true;
  }
  pending_warn(p, OTHER_KEY, g, ", which claims to be rank %d of %d: it does not prove that it belongs to this job%s",
               g->hello.rank, g->hello.world, p->advice);
  g->wire.sealed = false;
  wire_refuse(&g->wire, 0, "");
  return false;
}

bool pending_read(PendingList *p, int which, Frame *frame) {
  Pending *g = &p->one[which];
  wire_receive(&g->wire);
  if (g->stage == PROVEN) return !g->wire.ended && !g->wire.in_bytes;
  const WireResult found = wire_next(&g->wire, frame);
  if (found == WIRE_NOTHING) return !g->wire.ended && now_seconds() - g->since < proof_seconds;
  if (found == WIRE_OTHER_VERSION) {
    pending_warn(p, OTHER_VERSION, g, ": it speaks another version of the protocol; start the same build on all hosts");
    g->wire.sealed = false;
    wire_refuse(&g->wire, 0, ""); // the header tells it this version
    return false;
  }
  if (g->stage == CHALLENGED) return take_proof(p, g, found, frame);
  if (found == WIRE_FRAME) return take_hello(p, g, frame);
  pending_warn(p, OTHER_PROGRAM, g, ", which is not a rank's");
  return false;
}

// ---- accepting --------------------------------------------------------------------------------------------------

// Closes the oldest connection without a proof, of one address (NULL: of any): one that has said nothing for a while,
// or else one that has. Whether there was one.
static bool dismiss_oldest(PendingList *p, const Address *of) {
  int oldest = -1;
  bool oldest_idles = false;
  const double now = now_seconds();
  for (int i = 0; i < p->n; i++) {
    const Pending *g = &p->one[i];
    const bool idles = g->stage == SAYS_NOTHING && now - g->since > idle_seconds;
    if (g->stage == PROVEN || (of && strcmp(g->from.host, of->host) != 0)) continue;
    if (oldest >= 0 && (idles == oldest_idles ? g->since >= p->one[oldest].since : oldest_idles)) continue;
    oldest = i;
    oldest_idles = idles;
  }
  if (oldest >= 0) pending_dismiss(p, oldest);
  return oldest >= 0;
}

// Takes a new connection in, and what it has already said.
static void add(PendingList *p, int fd, const Address *from, Frame *frame) {
  // An address with many connections does not take the place of others.
  if (p->n == p->room && !dismiss_oldest(p, from) && !dismiss_oldest(p, NULL)) {
    close(fd);
    return;
  }
  p->one[p->n++] = (Pending){.wire = wire_open(fd), .from = *from, .since = now_seconds()};
  if (!pending_read(p, p->n - 1, frame)) pending_dismiss(p, p->n - 1);
}

void pending_accept(PendingList *p, int listener) {
  Frame *frame = xmalloc(sizeof *frame);
  p->full = false;
  for (int taken = 0; taken < AT_A_TIME; taken++) {
    Address from;
    const int fd = socket_accept(listener, &from);
    const bool no_files = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (no_files && dismiss_oldest(p, NULL)) continue;
    p->full = no_files;
    if (fd < 0) break;
    add(p, fd, &from, frame);
  }
  free(frame);
}
