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

// Every frame arrives as it was, however few bytes come at a time.
TEST(wire_frames_come_in_pieces) {
  Wire w[2], piece[2];
  Frame *f = xmalloc(sizeof *f);
  char *text = xcalloc(1, WIRE_TEXT + 100), byte;
  memset(text, 'x', WIRE_TEXT + 99);
  pair(w);
  pair(piece);
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
  int sent = 0, taken = 0;
  for (; sent < 100 || !w[0].out_bytes; sent++) wire_send(&w[0], 1, sent, 0, text);
  while (taken < sent) {
    wire_receive(&w[1]);
    while (wire_next(&w[1], f) == WIRE_FRAME) EXPECT_INT(f->code, taken++);
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
    Hello h;
    char text[256];
    pair(w);
    snprintf(text, sizeof text, "2\n0\n77\nhost\nplace\ntoken\nbuild\nnonce");
    if (round % 3 == 0) text[rng_u32(9, (uint64_t)round) % 36] = (char)rng_u32(8, (uint64_t)round);
    wire_send(&w[0], FRAME_HELLO, FOR_DATA, 1, text);
    wire_receive(&w[1]);
    if (round % 3 == 1) w[1].in[rng_u32(7, (uint64_t)round) % w[1].in_bytes] ^= (uint8_t)(1 << round % 8);
    if (round % 3 == 2) w[1].in_bytes -= rng_u32(6, (uint64_t)round) % w[1].in_bytes;
    const WireResult found = wire_next(&w[1], f);
    strangers += found == WIRE_STRANGER;
    parts += found == WIRE_NOTHING;
    hellos += found == WIRE_FRAME && hello_parse(&h, f) && strlen(h.token) < sizeof h.token;
    wire_close(&w[0]);
    wire_close(&w[1]);
  }
  EXPECT(strangers > 30 && parts > 30 && hellos > 30);
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
