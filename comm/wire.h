// Wire: TCP between ranks. Sockets never block: whoever waits does so by poll, to a deadline. Messages are frames of
// bounded size, each with a magic number and the version of the protocol in front, so that what a stranger sends is
// known by its first bytes.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

enum { WIRE_TEXT = DIE_LINE - 1, WIRE_HEAD = 24 };

typedef struct Frame {
  int type;
  int code;
  int64_t number;
  char text[WIRE_TEXT + 1]; // NUL-terminated
} Frame;

// A socket that carries frames.
typedef struct Wire {
  int fd;            // -1: none
  bool ended;        // the other end is gone, or has said all that it had to say
  bool deaf;         // frames that are queued go nowhere: shut, or broken
  uint8_t *in, *out; // received and not taken yet; not sent yet
  size_t in_bytes, in_cap, out_bytes, out_cap;
} Wire;

typedef enum WireFound { WIRE_NOTHING, WIRE_FRAME, WIRE_OTHER_VERSION, WIRE_STRANGER } WireFound;

Wire wire_open(int fd); // takes the socket over
void wire_close(Wire *w);
int wire_release(Wire *w); // its socket, of which everything that came has been taken; the rest is freed
// Queues a frame, whose text is cut to WIRE_TEXT, and sends what the system takes at once.
void wire_send(Wire *w, int type, int code, int64_t number, const char *text);
void wire_flush(Wire *w);
void wire_shut(Wire *w);                    // no more frames will be sent; the other end sees `ended`
void wire_receive(Wire *w);                 // whatever is there, at most about a frame
WireFound wire_next(Wire *w, Frame *frame); // takes the next frame

// ---- sockets ------------------------------------------------------------------------------------------------------

typedef struct Address {
  char host[256]; // a name, or an address of IPv4 or IPv6
  int port;
} Address;

// "HOST:PORT", or "[HOST]:PORT" where HOST holds colons. False, with a line that quotes it, for anything else.
bool address_parse(Address *a, const char *text, Err *err);
void address_text(const Address *a, char *text, size_t room);

// A socket that listens at an address of this host; host "": at all of them; port 0: any, which *a is set to. A name of
// this host that stands for its loopback alone, as in some /etc/hosts, means all addresses where `from_outside`.
int socket_listen(Address *a, bool from_outside, Err *err);
int socket_accept(int listener); // -1: nobody there
// Tries all addresses of the name until `deadline` (of now_seconds) has passed; each once. -1 with the last reason.
int socket_connect(const Address *a, double deadline, Err *err);
// All bytes; false when the other end is gone.
bool socket_send(int fd, const void *p, size_t bytes);
bool socket_receive(int fd, void *p, size_t bytes);
