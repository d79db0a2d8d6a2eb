// Catches messages between ranks that are split wrongly, and bad frames or addresses that are accepted.
#include <sys/socket.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/rng.h"
#include "comm/hello.h"
#include "comm/wire.h"
#include "test/harness/test.h"

static void pair(Wire w[2]) {
  int ends[2];
  CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
  w[0] = wire_open(ends[0]);
  w[1] = wire_open(ends[1]);
}

static void seal(Wire w[2]) {
  static const uint8_t session[SHA256_BYTES] = "any";
  wire_seal(&w[0], session, true);
  wire_seal(&w[1], session, false);
}

// Every frame arrives as it was, however few bytes come at a time.
TEST(wire_frames_come_in_pieces) {
  Wire w[2], piece[2];
  Frame *f = xmalloc(sizeof *f);
  char *text = xcalloc(1, WIRE_TEXT + 100), byte;
  memset(text, 'x', WIRE_TEXT + 99);
  pair(w);
  pair(piece);
  wire_seal(&w[0], (uint8_t[SHA256_BYTES]){1}, true);
  wire_seal(&piece[1], (uint8_t[SHA256_BYTES]){1}, false);
  wire_send(&w[0], 3, -4, 1LL << 40, "one");
  wire_send(&w[0], 5, 0, -1, NULL);
  wire_send(&w[0], 6, 0, 0, text); // cut
  int frames = 0;
  while (recv(w[1].fd, &byte, 1, MSG_DONTWAIT) == 1) {
    EXPECT(socket_send(piece[0].fd, &byte, 1));
    wire_receive(&piece[1]);
    if (wire_next(&piece[1], f) != WIRE_FRAME) continue;
    frames++;
    if (frames == 1) EXPECT(f->type == 3 && f->code == -4 && f->number == 1LL << 40 && !strcmp(f->text, "one"));
    if (frames == 2) EXPECT(f->type == 5 && f->number == -1 && !*f->text);
    if (frames == 3) EXPECT(f->type == 6 && strlen(f->text) == WIRE_TEXT);
  }
  EXPECT_INT(frames, 3);
  wire_shut(&piece[0]);
  wire_receive(&piece[1]);
  EXPECT(piece[1].ended && wire_next(&piece[1], f) == WIRE_NOTHING);
  for (int i = 0; i < 2; i++) {
    wire_close(&w[i]);
    wire_close(&piece[i]);
  }
  free(text);
  free(f);
}

// What a reader that never reads does not take waits, and a writer whose reader is gone goes on.
TEST(wire_never_waits) {
  Wire w[2];
  Frame *f = xmalloc(sizeof *f);
  char *text = xcalloc(1, WIRE_TEXT + 1);
  memset(text, 'y', WIRE_TEXT);
  pair(w);
  seal(w);
  int sent = 0, taken = 0;
  for (; sent < 100 || !w[0].out_bytes; sent++) wire_send(&w[0], 1, sent, 0, text);
  while (taken < sent) {
    wire_receive(&w[1]);
    if (wire_next(&w[1], f) == WIRE_FRAME) EXPECT_INT(f->code, taken++);
    wire_flush(&w[0]);
  }
  wire_close(&w[1]);
  for (int i = 0; i < 3; i++) wire_send(&w[0], 1, 0, 0, text);
  EXPECT(w[0].deaf && !w[0].out_bytes);
  wire_close(&w[0]);
  free(text);
  free(f);
}

// Any bytes are a frame, a part of one, or a stranger's; and any frame is a hello or is none.
TEST(wire_takes_any_bytes) {
  Frame *f = xmalloc(sizeof *f);
  int strangers = 0, parts = 0, hellos = 0;
  for (int round = 0; round < 3000; round++) {
    Wire w[2];
    Hello h = {.world = 2, .connection = FOR_DATA, .rank = 1, .peer.host = "host", .build = "build"};
    pair(w);
    nonce_draw(h.nonce);
    hello_frame(&h, f);
    if (round % 3 == 0) f->text[60 + rng_u32(9, (uint64_t)round) % 20] = (char)rng_u32(8, (uint64_t)round);
    frame_send(&w[0], f);
    wire_receive(&w[1]);
    if (round % 3 == 1) w[1].in[rng_u32(7, (uint64_t)round) % w[1].in_bytes] ^= (uint8_t)(1 << round % 8);
    if (round % 3 == 2) w[1].in_bytes -= rng_u32(6, (uint64_t)round) % w[1].in_bytes;
    const WireResult found = wire_next(&w[1], f);
    strangers += found == WIRE_STRANGER;
    parts += found == WIRE_NOTHING;
    hellos += found == WIRE_FRAME && hello_parse(&h, f) && strlen(h.build) < sizeof h.build;
    wire_close(&w[0]);
    wire_close(&w[1]);
  }
  EXPECT(strangers > 30 && parts > 30 && hellos > 30);
  free(f);
}

// The bytes of a frame that is sent on a wire with this session.
static size_t frame_on(const uint8_t session[SHA256_BYTES], bool is_rank_0, int before, uint8_t *bytes, size_t room) {
  Wire w[2];
  pair(w);
  wire_seal(&w[0], session, is_rank_0);
  w[0].sent = (uint64_t)before;
  wire_send(&w[0], 9, 1, 5, "why");
  const ssize_t got = recv(w[1].fd, bytes, room, 0);
  wire_close(&w[0]);
  wire_close(&w[1]);
  return (size_t)got;
}

static WireResult heard(const uint8_t *bytes, size_t n) {
  static const uint8_t session[SHA256_BYTES] = "this";
  Wire w[2];
  Frame *f = xmalloc(sizeof *f);
  pair(w);
  wire_seal(&w[1], session, true);
  EXPECT(socket_send(w[0].fd, bytes, n));
  wire_receive(&w[1]);
  const WireResult found = wire_next(&w[1], f);
  wire_close(&w[0]);
  wire_close(&w[1]);
  free(f);
  return found;
}

// A frame that was changed, comes again, from the other end or from another session is none.
TEST(wire_frames_are_of_their_session) {
  uint8_t bytes[200];
  size_t n = frame_on((uint8_t[SHA256_BYTES]){"this"}, false, 0, bytes, sizeof bytes);
  EXPECT_INT(n, WIRE_HEAD + 3 + WIRE_TAG);
  EXPECT_INT(heard(bytes, n), WIRE_FRAME);
  for (size_t i = 0; i < n; i++)
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (uint8_t)(1 << bit);
      EXPECT(heard(bytes, n) != WIRE_FRAME);
      bytes[i] ^= (uint8_t)(1 << bit);
    }
  n = frame_on((uint8_t[SHA256_BYTES]){"this"}, false, 1, bytes, sizeof bytes); // a later or an earlier one
  EXPECT_INT(heard(bytes, n), WIRE_STRANGER);
  n = frame_on((uint8_t[SHA256_BYTES]){"this"}, true, 0, bytes, sizeof bytes); // its own
  EXPECT_INT(heard(bytes, n), WIRE_STRANGER);
  n = frame_on((uint8_t[SHA256_BYTES]){"that"}, false, 0, bytes, sizeof bytes);
  EXPECT_INT(heard(bytes, n), WIRE_STRANGER);
}

// Before the proof, nobody can make the other end take memory, or leave a text without an end.
TEST(wire_open_frames_are_small) {
  Wire w[2];
  Frame *f = xmalloc(sizeof *f);
  struct {
    uint32_t magic;
    uint16_t version, type;
    int32_t code;
    uint32_t bytes;
    int64_t number;
    char text[OPEN_TEXT + 1];
  } sent = {0x4e43524d, 2, FRAME_HELLO, 0, 0, 0, {0}};
  memset(sent.text, 'x', sizeof sent.text);
  for (uint32_t bytes = OPEN_TEXT - 1; bytes <= OPEN_TEXT + 1; bytes++) {
    sent.bytes = bytes;
    for (int zero = 0; zero < 2; zero++) {
      pair(w);
      sent.text[7] = zero ? '\0' : 'x';
      EXPECT(socket_send(w[0].fd, &sent, WIRE_HEAD + bytes));
      wire_receive(&w[1]);
      EXPECT(w[1].in_cap <= 2 * (WIRE_HEAD + OPEN_TEXT));
      const WireResult found = wire_next(&w[1], f);
      EXPECT_INT(found, zero || bytes > OPEN_TEXT ? WIRE_STRANGER : WIRE_FRAME);
      if (found == WIRE_FRAME) EXPECT_INT(strlen(f->text), bytes);
      wire_close(&w[0]);
      wire_close(&w[1]);
    }
  }
  free(f);
}

static void expect_address(const char *text, const char *host, int port) {
  Address a;
  Err err;
  char again[300];
  if (!EXPECT(address_parse(&a, text, &err))) return;
  EXPECT_STR(a.host, host);
  EXPECT_INT(a.port, port);
  address_text(&a, again, sizeof again);
  EXPECT_STR(again, text);
}

TEST(wire_addresses) {
  expect_address("node1:29500", "node1", 29500);
  expect_address("10.0.0.1:1", "10.0.0.1", 1);
  expect_address("[fe80::1]:65535", "fe80::1", 65535);
  static const char *const bad[] = {
      "", ":", ":1", "a", "a:", "a:0", "a:65536", "a:1 ", "a: 1", "a:+1", "::1:5", "[]:5", "a:99999999999999999999"};
  for (int i = 0; i < COUNT(bad); i++) {
    Address a;
    Err err;
    if (!EXPECT(!address_parse(&a, bad[i], &err))) printf("    %s\n", bad[i]);
  }
}
