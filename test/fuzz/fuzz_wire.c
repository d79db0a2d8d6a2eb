// Catches bytes of a peer that crash a rank, and frames that are taken although they were changed on the way.
//
// Fuzzes sessions between rank 0 and somebody who knows the key: a hello, its proof, and frames after it. Of the input,
// 4 bytes say what is changed on the way (see Change), and the rest is the hello's text, if it has one of its own, and
// frames: type (1 byte), code, number, bytes of text (1 byte each), text. Seeds: test/corpus/wire.
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/utf8.h"
#include "comm/pending.h"
#include "comm/watch_news.h"

// A byte of the stream to rank 0 is changed, if `by` is not 0.
typedef struct Change {
  uint8_t stage; // 0: in the hello; 1: in the proof; 2: in the frames; 3: the hello's text is the input's
  uint8_t by;
  uint16_t at;
} Change;

typedef struct Input {
  const uint8_t *at, *end;
} Input;

static uint8_t take(Input *in) { return in->at < in->end ? *in->at++ : 0; }

static void take_text(Input *in, size_t bytes, char *text) {
  size_t n = 0;
  for (; n < bytes && in->at < in->end; n++) text[n] = (char)*in->at++;
  text[n] = '\0';
}

static const uint8_t run_key[SHA256_BYTES] = "the key of the run";

static const uint8_t *key_for(void *context, Pending *g) {
  (void)context;
  return g->hello.rank < 8 ? run_key : NULL;
}

// Moves what one end has sent, with the change, to the other.
static void carry(Wire *from, int to, const Change *c, int stage) {
  uint8_t bytes[4096];
  int at = c->at;
  for (ssize_t n; (n = recv(from->fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0; at -= (int)n) {
    if (c->stage == stage && at >= 0 && at < n) bytes[at] ^= c->by;
    CHECK(socket_send(to, bytes, (size_t)n));
  }
}

static void check_text(const char *text) {
  CHECK(utf8_is(text));
  for (; *text; text++) CHECK((unsigned char)*text >= ' ' || *text == '\t');
}

static void check_hello(const Hello *h) {
  CHECK(h->rank >= 0 && h->rank < MAX_CREW && h->world >= 0 && h->local_rank >= 0 && nonce_is(h->nonce));
  check_text(h->peer.host);
  check_text(h->build);
}

static void check_frame(Frame *f) {
  Peer peer;
  Hello h;
  if (hello_parse(&h, f)) check_hello(&h);
  if (peer_parse(&peer, f)) check_text(peer.host);
  static Frame copy, *again = &copy; // large: making it anew would take most of the time
  for (int is_rank_0 = 0; is_rank_0 < 2; is_rank_0++) {
    again->type = f->type;
    again->code = f->code;
    again->number = f->number;
    memcpy(again->text, f->text, strlen(f->text) + 1);
    const News news = watch_news(again, is_rank_0);
    CHECK(again->code == EXIT_USAGE || again->code == EXIT_RUN);
    CHECK(*again->text && (news != NEWS_FAILED || is_rank_0) && (news != NEWS_END || !is_rank_0));
    check_text(again->text);
  }
}

typedef struct Line { // two ends, and the bytes on the way between them
  Wire rank, rank_0;
  Wire way; // where rank's bytes come out
  int in;   // where they go in again
} Line;

static void pair(int ends[2]) { CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends)); }

static Line open_line(void) {
  int a[2], b[2];
  pair(a);
  pair(b);
  return (Line){wire_open(a[0]), wire_open(b[1]), wire_open(a[1]), b[0]};
}

static void close_line(Line *l) {
  wire_close(&l->rank);
  wire_close(&l->rank_0);
  wire_close(&l->way);
  wire_close(&(Wire){.fd = l->in});
}

// Rank 0's side up to the proof. Whether the connection is proven.
static bool prove(Line *l, const Change *c, Input *in, Frame *hello, Frame *frame) {
  Pending one = {.wire = l->rank_0, .since = now_seconds()};
  PendingList p = {.one = &one, .n = 1, .room = 1, .key_for = key_for, .advice = "", .warned = ~0u};
  Hello h = {.rank = 1, .world = 2, .local_rank = 1, .peer.host = "host", .build = "build"};
  memset(h.nonce, 'a', NONCE_TEXT - 1);
  hello_frame(&h, hello);
  if (c->stage == 3) take_text(in, OPEN_TEXT, hello->text);
  frame_send(&l->rank, hello);
  carry(&l->way, l->in, c, 0);
  bool stays = pending_read(&p, 0, frame);
  if (stays && one.stage == CHALLENGED) {
    uint8_t session[SHA256_BYTES];
    check_hello(&one.hello);
    Wire back = wire_open(dup(l->in)); // the challenge comes back there
    wire_receive(&back);
    CHECK(wire_next(&back, frame) == WIRE_FRAME && frame->type == FRAME_CHALLENGE);
    wire_close(&back);
    session_key(session, run_key, hello, frame);
    wire_seal(&l->rank, session, false);
    wire_send(&l->rank, FRAME_PROOF, 0, 0, "");
    carry(&l->way, l->in, c, 1);
    stays = pending_read(&p, 0, frame);
  }
  const bool proven = stays && one.stage == PROVEN;
  const size_t sent = WIRE_HEAD + (c->stage ? WIRE_TAG : strlen(hello->text));
  CHECK(!proven || c->stage >= 2 || !c->by || c->at >= sent);
  l->rank_0 = one.wire;
  return proven;
}

// Frames after the proof: those before the change arrive, and none after it.
static void talk(Line *l, const Change *c, Input *in, Frame *frame) {
  int sent = 0, whole = -1, taken = 0;
  size_t bytes = 0;
  for (; in->at < in->end && sent < 50; sent++) {
    const uint8_t type = take(in);
    const int8_t code = (int8_t)take(in), number = (int8_t)take(in);
    take_text(in, take(in), frame->text);
    wire_send(&l->rank, type, code, number, frame->text);
    bytes += WIRE_HEAD + strlen(frame->text) + WIRE_TAG;
    if (c->stage == 2 && c->by && whole < 0 && c->at < bytes) whole = sent;
  }
  carry(&l->way, l->in, c, 2);
  for (;; taken++) {
    wire_receive(&l->rank_0);
    if (wire_next(&l->rank_0, frame) != WIRE_FRAME) break;
    check_frame(frame);
  }
  CHECK(taken == (whole < 0 ? sent : whole));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  Input in = {bytes, bytes + size};
  Change c = {.stage = take(&in) % 4, .by = take(&in)};
  c.at = (uint16_t)(take(&in) | take(&in) << 8);
  Line l = open_line();
  static Frame hello, frame;
  if (prove(&l, &c, &in, &hello, &frame)) talk(&l, &c, &in, &frame);
  close_line(&l);
  return 0;
}
