#include "test/harness/raw_rank.h"
#include <poll.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "test/harness/test.h"

bool raw_await(Wire *w, Frame *frame) {
  WireResult found;
  for (;;) {
    wire_receive(w);
    if ((found = wire_next(w, frame)) != WIRE_NOTHING || w->ended) break;
    poll(&(struct pollfd){.fd = w->fd, .events = POLLIN}, 1, 1000);
  }
  return found == WIRE_FRAME;
}

int raw_next(Wire *w) {
  Frame *frame = xmalloc(sizeof *frame);
  const int type = raw_await(w, frame) ? frame->type : 0;
  free(frame);
  return type;
}

Wire raw_connect(const RankProcesses *r) {
  Err err;
  Address a;
  CHECK(address_parse(&a, r->options.launch.meet + strlen("tcp:"), &err));
  int fd = socket_connect(&a, now_seconds() + 10, &err);
  CHECK(fd >= 0);
  return wire_open(fd);
}

Hello raw_hello(const RankProcesses *r, int rank, HelloFor connection) {
  Launch l = r->options.launch;
  l.rank = l.local_rank = rank;
  return hello_of(&l, connection);
}

Wire raw_join(const RankProcesses *r, const Hello *h, const uint8_t *key, uint8_t session[SHA256_BYTES]) {
  Wire w = raw_connect(r);
  Frame *hello = xmalloc(sizeof *hello), *frame = xmalloc(sizeof *frame);
  hello_frame(h, hello);
  frame_send(&w, hello);
  if (EXPECT(raw_await(&w, frame) && frame->type == FRAME_CHALLENGE)) {
    session_key(session, key, hello, frame);
    wire_seal(&w, session, false);
    wire_send(&w, FRAME_PROOF, 0, 0, "");
  }
  free(hello);
  free(frame);
  return w;
}

void raw_meet(const RankProcesses *r, int rank, Wire *control, Wire *data) {
  uint8_t session[SHA256_BYTES], unused[SHA256_BYTES];
  const Hello for_control = raw_hello(r, rank, FOR_CONTROL), for_data = raw_hello(r, rank, FOR_DATA);
  *control = raw_join(r, &for_control, r->options.launch.key, session);
  EXPECT_INT(raw_next(control), FRAME_SEATED);
  *data = raw_join(r, &for_data, session, unused);
  EXPECT_INT(raw_next(data), FRAME_SEATED);
  for (int i = 0; i < r->world; i++) EXPECT_INT(raw_next(control), FRAME_PEER);
  EXPECT_INT(raw_next(control), FRAME_WELCOME);
}
