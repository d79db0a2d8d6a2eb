#include "comm/links.h"

void comm_send(Comm *c, int to, const void *p, size_t bytes) {
  if (!socket_send(c->data[to], p, bytes)) watch_wait_for_end(c->watch, to);
}
void comm_recv(Comm *c, int from, void *p, size_t bytes) {
  if (!socket_receive(c->data[from], p, bytes)) watch_wait_for_end(c->watch, from);
}
