#include "comm/wire.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"

enum { MAGIC = 0x4e43524d, VERSION = 2 }; // "MRCN"

// A frame's header as sent. All supported machines are little-endian; others would have another magic number.
typedef struct Head {
  uint32_t magic;
  uint16_t version, type;
  int32_t code;
  uint32_t bytes; // bytes of text
  int64_t number;
} Head;
_Static_assert(sizeof(Head) == WIRE_HEAD, "no padding");

static void socket_ready(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

Wire wire_open(int fd) {
  if (fd >= 0) socket_ready(fd);
  return (Wire){.fd = fd};
}

int wire_release(Wire *w) {
  int fd = w->fd;
  free(w->in);
  free(w->out);
  *w = (Wire){.fd = -1};
  return fd;
}

void wire_close(Wire *w) {
  int fd = wire_release(w);
  if (fd >= 0) close(fd);
}

// Whether an operation on a socket may succeed later.
static bool passes(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void wire_flush(Wire *w) {
  size_t sent = 0;
  while (!w->deaf && sent < w->out_bytes) {
    ssize_t n = send(w->fd, w->out + sent, w->out_bytes - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += (size_t)n;
      continue;
    }
    if (errno == EINTR) continue;
    w->deaf = !passes(); // data from the other end may still be readable
    break;
  }
  if (w->deaf) sent = w->out_bytes;
  if (sent) memmove(w->out, w->out + sent, w->out_bytes - sent);
  w->out_bytes -= sent;
}

// ---- frames -------------------------------------------------------------------------------------------------------

static size_t most_text(const Wire *w) { return w->sealed ? WIRE_TEXT : OPEN_TEXT; }

static Head head_of(int type, int code, int64_t number, size_t bytes) {
  return (Head){MAGIC, VERSION, (uint16_t)type, code, (uint32_t)bytes, number};
}

void frame_head(const Frame *f, uint8_t head[WIRE_HEAD]) {
  const Head h = head_of(f->type, f->code, f->number, strlen(f->text));
  memcpy(head, &h, sizeof h);
}

void wire_seal(Wire *w, const uint8_t session[SHA256_BYTES], bool is_rank_0) {
  hmac_text(session, "to rank 0", is_rank_0 ? w->receive_key : w->send_key);
  hmac_text(session, "from rank 0", is_rank_0 ? w->send_key : w->receive_key);
  w->sealed = true;
  w->sent = w->received = 0;
}

// The tag of a frame of `bytes` bytes, header and text, the counter-th that was sent with this key.
static void tag_of(uint8_t mac[SHA256_BYTES], const uint8_t key[SHA256_BYTES], uint64_t counter, const uint8_t *frame,
                   size_t bytes) {
  Hmac h;
  hmac_begin(&h, key, SHA256_BYTES);
  hmac_add(&h, &counter, sizeof counter);
  hmac_add(&h, frame, bytes);
  hmac_end(&h, mac);
}

void wire_send(Wire *w, int type, int code, int64_t number, const char *text) {
  if (w->fd < 0 || w->deaf) return;
  const size_t bytes = text ? MIN(strlen(text), most_text(w)) : 0, size = WIRE_HEAD + bytes;
  const Head head = head_of(type, code, number, bytes);
  array_reserve((void **)&w->out, &w->out_cap, w->out_bytes + size + WIRE_TAG, 1);
  uint8_t *frame = w->out + w->out_bytes, mac[SHA256_BYTES];
  memcpy(frame, &head, sizeof head);
  if (bytes) memcpy(frame + sizeof head, text, bytes);
  w->out_bytes += size;
  if (w->sealed) {
    tag_of(mac, w->send_key, w->sent++, frame, size);
    memcpy(frame + size, mac, WIRE_TAG);
    w->out_bytes += WIRE_TAG;
  }
  wire_flush(w);
}

void wire_shut(Wire *w) {
  wire_flush(w);
  w->deaf = true;
  if (w->fd >= 0) shutdown(w->fd, SHUT_WR);
}

// Bytes of the frame that has begun to arrive, as far as its header is there; of none that is valid, the header's.
static size_t arriving(const Wire *w) {
  Head head;
  if (w->in_bytes < sizeof head) return sizeof head;
  memcpy(&head, w->in, sizeof head);
  if (head.magic != MAGIC || head.version != VERSION || head.bytes > most_text(w)) return sizeof head;
  return sizeof head + head.bytes + (w->sealed ? WIRE_TAG : 0);
}

// Takes no byte after the frame: on a data connection they are not the wire's.
void wire_receive(Wire *w) {
  for (size_t end; w->fd >= 0 && !w->ended && w->in_bytes < (end = arriving(w));) {
    array_reserve((void **)&w->in, &w->in_cap, end, 1);
    ssize_t n = recv(w->fd, w->in + w->in_bytes, end - w->in_bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && passes()) return;
    if (n <= 0)
      w->ended = true;
    else
      w->in_bytes += (size_t)n;
  }
}

WireResult wire_next(Wire *w, Frame *frame) {
  Head head = head_of(0, 0, 0, 0);
  if (!w->in_bytes) return WIRE_NOTHING;
  memcpy(&head, w->in, MIN(w->in_bytes, sizeof head));
  if (memcmp(w->in, &(uint32_t){MAGIC}, MIN(w->in_bytes, sizeof head.magic)) != 0) return WIRE_STRANGER;
  if (w->in_bytes < sizeof head) return WIRE_NOTHING;
  if (head.version != VERSION) return WIRE_OTHER_VERSION;
  if (head.bytes > most_text(w)) return WIRE_STRANGER;
  if (w->in_bytes < arriving(w)) return WIRE_NOTHING;
  const uint8_t *text = w->in + sizeof head;
  if (w->sealed) {
    uint8_t mac[SHA256_BYTES];
    tag_of(mac, w->receive_key, w->received, w->in, sizeof head + head.bytes);
    if (!secret_equal(mac, text + head.bytes, WIRE_TAG)) return WIRE_STRANGER;
    w->received++;
  }
  if (memchr(text, '\0', head.bytes)) return WIRE_STRANGER;
  frame->type = head.type;
  frame->code = head.code;
  frame->number = head.number;
  memcpy(frame->text, text, head.bytes);
  frame->text[head.bytes] = '\0';
  w->in_bytes = 0;
  return WIRE_FRAME;
}

// ---- sockets ------------------------------------------------------------------------------------------------------

bool address_parse(Address *a, const char *text, Err *err) {
  const char *colon = strrchr(text, ':'), *begin = text, *end = colon;
  if (colon && *text == '[' && colon > text + 1 && colon[-1] == ']') {
    begin++;
    end--;
  } else if (colon && memchr(text, ':', (size_t)(colon - text))) {
    colon = NULL; // an IPv6 address without brackets: its last part may or may not be the port
  }
  char *rest = NULL;
  long port = colon && colon[1] >= '0' && colon[1] <= '9' ? strtol(colon + 1, &rest, 10) : -1;
  if (!colon || end == begin || (size_t)(end - begin) >= sizeof a->host || !rest || *rest || port < 1 || port > 65535)
    return err_set(
        err, "\"%s\": expected HOST:PORT, such as node1:29500 or [fe80::1]:29500, with a port from 1 to 65535", text);
  snprintf(a->host, sizeof a->host, "%.*s", (int)(end - begin), begin);
  a->port = (int)port;
  return true;
}

void address_text(const Address *a, char *text, size_t room) {
  snprintf(text, room, strchr(a->host, ':') ? "[%s]:%d" : "%s:%d", a->host, a->port);
}

// Resolves a name; NULL with the reason. Free with freeaddrinfo.
static struct addrinfo *resolve(const Address *a, int flags, Err *err) {
  char port[16];
  snprintf(port, sizeof port, "%d", a->port);
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
  struct addrinfo *found = NULL;
  int failed = getaddrinfo(*a->host ? a->host : NULL, port, &hints, &found);
  if (!failed) return found;
  err_set(err, "%s", failed == EAI_SYSTEM ? strerror(errno) : gai_strerror(failed));
  return NULL;
}

static bool is_loopback(const struct sockaddr *address) {
  if (address->sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
  return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
}

// Whether a name other than "localhost" has only loopback addresses.
static bool is_name_of_loopback(const Address *a, const struct addrinfo *found) {
  struct in6_addr number;
  if (!strcmp(a->host, "localhost") || inet_pton(AF_INET, a->host, &number) == 1 ||
      inet_pton(AF_INET6, a->host, &number) == 1)
    return false;
  for (; found; found = found->ai_next)
    if (!is_loopback(found->ai_addr)) return false;
  return true;
}

static int port_of(int fd) {
  struct sockaddr_storage address;
  socklen_t size = sizeof address;
  if (getsockname(fd, (struct sockaddr *)&address, &size)) return 0;
  return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                             : ((struct sockaddr_in *)&address)->sin_port);
}

static int listen_at(const struct addrinfo *at) {
  int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)); // also if a run that used the port has just ended
  if (at->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
  if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
    socket_ready(fd);
    return fd;
  }
  int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

static bool listen_failed(const Address *a, int reason, Err *err) {
  char at[300], host[64] = "this host";
  address_text(a, at, sizeof at);
  gethostname(host, sizeof host - 1);
  if (reason == EADDRINUSE)
    return err_set(err,
                   "rank 0 cannot listen at %s: port %d is in use; choose another one by --rendezvous tcp:HOST:PORT or "
                   "MASTER_PORT",
                   at, a->port);
  if (reason == EADDRNOTAVAIL)
    return err_set(err,
                   "rank 0 cannot listen at %s: that is not an address of %s, where it runs; give one by --rendezvous "
                   "tcp:HOST:PORT or MASTER_ADDR",
                   at, host);
  return err_set(err, "rank 0 cannot listen at %s: %s", at, strerror(reason));
}

int socket_listen(Address *a, bool from_outside, Err *err) {
  char at[300];
  address_text(a, at, sizeof at);
  Err why;
  struct addrinfo *found = resolve(a, AI_PASSIVE, &why);
  if (found && from_outside && is_name_of_loopback(a, found)) {
    freeaddrinfo(found);
    found = resolve(&(Address){.port = a->port}, AI_PASSIVE, &why);
  }
  if (!found) {
    err_set(err,
            "rank 0 cannot listen at %s: %s; give an address of its host by --rendezvous tcp:HOST:PORT or MASTER_ADDR",
            at, why.msg);
    return -1;
  }
  int fd = -1, reason = EADDRNOTAVAIL;
  // A socket for all IPv6 addresses also accepts IPv4; for a name, IPv4 first, which more networks support.
  const int family = *a->host ? AF_INET : AF_INET6;
  for (int pass = 0; pass < 2 && fd < 0; pass++)
    for (struct addrinfo *each = found; each && fd < 0; each = each->ai_next) {
      if ((each->ai_family == family) != (pass == 0)) continue;
      fd = listen_at(each);
      if (fd < 0 && errno != EAFNOSUPPORT) reason = errno;
    }
  freeaddrinfo(found);
  if (fd < 0)
    listen_failed(a, reason, err);
  else if (!a->port)
    a->port = port_of(fd);
  return fd;
}

int socket_accept(int listener, Address *from) {
  struct sockaddr_storage at = {0};
  socklen_t size = sizeof at;
  int fd = accept(listener, (struct sockaddr *)&at, &size);
  if (fd < 0) return -1;
  socket_ready(fd);
  *from = (Address){"an unknown address", 0};
  char port[16] = "";
  if (!getnameinfo((struct sockaddr *)&at, size, from->host, sizeof from->host, port, sizeof port,
                   NI_NUMERICHOST | NI_NUMERICSERV))
    from->port = atoi(port);
  if (!strncmp(from->host, "::ffff:", 7)) memmove(from->host, from->host + 7, strlen(from->host + 7) + 1); // IPv4
  return fd;
}

// Waits until the socket can be read or written, or has failed. False: the deadline has passed.
static bool socket_wait(int fd, short events, double deadline) {
  for (;;) {
    double left = deadline - now_seconds();
    if (left < 0) return false;
    struct pollfd p = {.fd = fd, .events = events};
    if (poll(&p, 1, (int)MIN(left * 1e3 + 1, 1000)) > 0) return true;
  }
}

// Whether a socket is connected to itself, which can happen on a port of this host without a listener.
static bool is_itself(int fd) {
  struct sockaddr_storage here = {0}, there = {0};
  socklen_t size = sizeof here, its_size = sizeof there;
  return !getsockname(fd, (struct sockaddr *)&here, &size) && !getpeername(fd, (struct sockaddr *)&there, &its_size) &&
         size == its_size && !memcmp(&here, &there, size);
}

bool socket_is_of_this_host(int fd) {
  struct sockaddr_storage here = {0}, there = {0};
  socklen_t size = sizeof here, its_size = sizeof there;
  if (getsockname(fd, (struct sockaddr *)&here, &size) || getpeername(fd, (struct sockaddr *)&there, &its_size))
    return false;
  if (here.ss_family != there.ss_family) return false;
  if (here.ss_family == AF_INET6)
    return !memcmp(&((struct sockaddr_in6 *)&here)->sin6_addr, &((struct sockaddr_in6 *)&there)->sin6_addr,
                   sizeof(struct in6_addr));
  return ((struct sockaddr_in *)&here)->sin_addr.s_addr == ((struct sockaddr_in *)&there)->sin_addr.s_addr;
}

static int connect_to(const struct addrinfo *to, double deadline, Err *err) {
  int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) {
    socket_ready(fd);
    int reason = connect(fd, to->ai_addr, to->ai_addrlen) == 0 ? 0 : errno;
    if (reason == EINPROGRESS || reason == EINTR) {
      reason = ETIMEDOUT;
      if (socket_wait(fd, POLLOUT, deadline))
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &(socklen_t){sizeof reason});
    }
    if (!reason && is_itself(fd)) reason = ECONNREFUSED;
    if (!reason) return fd;
    close(fd);
    errno = reason;
  }
  err_set(err, "%s", strerror(errno));
  return -1;
}

int socket_connect(const Address *a, double deadline, Err *err) {
  struct addrinfo *found = resolve(a, 0, err);
  int fd = -1;
  for (struct addrinfo *each = found; each && fd < 0; each = each->ai_next) fd = connect_to(each, deadline, err);
  if (found) freeaddrinfo(found);
  return fd;
}

bool socket_send(int fd, const void *p, size_t bytes) {
  for (const char *at = p; bytes;) {
    ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n >= 0) {
      at += n;
      bytes -= (size_t)n;
      continue;
    }
    if (!passes()) return false;
    poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
  }
  return true;
}

bool socket_receive(int fd, void *p, size_t bytes) {
  for (char *at = p; bytes;) {
    ssize_t n = recv(fd, at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= (size_t)n;
      continue;
    }
    if (n == 0 || !passes()) return false;
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1000);
  }
  return true;
}
