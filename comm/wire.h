// Wire: TCP between ranks. Sockets never block: waiting is done with poll, up to a deadline. Messages are frames of
// bounded size that begin with a magic number and the protocol's version, so that data from other programs is
// recognised by its first bytes. What they mean, and the tags by which they are authenticated: comm/session.h.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/hmac.h"

enum { WIRE_TEXT = DIE_LINE - 1, WIRE_HEAD = 24, WIRE_TAG = 16 };
enum { OPEN_TEXT = 512 }; // most bytes of text of a frame without a tag, which anybody can send

typedef struct Frame {
  int type;
  int code;
  int64_t number;
  char text[WIRE_TEXT + 1]; // NUL-terminated
} Frame;

// A socket that carries frames.
typedef struct Wire {
  int fd;            // -1: none
  bool ended;        // the other end is gone, or will send nothing more
  bool deaf;         // frames are no longer sent: the wire was shut, or is broken
  uint8_t *in, *out; // received but not taken yet; queued but not sent yet
  size_t in_bytes, in_cap, out_bytes, out_cap;
  bool sealed; // frames have tags
  uint8_t send_key[SHA256_BYTES], receive_key[SHA256_BYTES];
  uint64_t sent, received; // sealed frames
} Wire;

// STRANGER: no frame of this protocol, or not of this session.
typedef enum WireResult { WIRE_NOTHING, WIRE_FRAME, WIRE_OTHER_VERSION, WIRE_STRANGER } WireResult;

void frame_head(const Frame *f, uint8_t head[WIRE_HEAD]); // the header of a frame, as sent

Wire wire_open(int fd); // takes ownership of the socket
void wire_close(Wire *w);
int wire_release(Wire *w); // returns the socket, whose received data must have been taken; frees the rest
// Queues a frame, whose text is cut to WIRE_TEXT (OPEN_TEXT if it has no tag), and sends as much as possible without
// blocking.
void wire_send(Wire *w, int type, int code, int64_t number, const char *text);
void wire_flush(Wire *w);
// From now on, frames have tags made with the keys of this session, in both directions.
void wire_seal(Wire *w, const uint8_t session[SHA256_BYTES], bool is_rank_0);
void wire_shut(Wire *w);                     // ends sending; the other end sees `ended`
void wire_receive(Wire *w);                  // receives available data, up to the end of a frame
WireResult wire_next(Wire *w, Frame *frame); // takes the next frame

// ---- sockets ------------------------------------------------------------------------------------------------------

typedef struct Address {
  char host[256]; // a name, or an IPv4 or IPv6 address
  int port;
} Address;

// Parses "HOST:PORT", or "[HOST]:PORT" if HOST contains colons. False, with a line that quotes it, for anything else.
bool address_parse(Address *a, const char *text, Err *err);
void address_text(const Address *a, char *text, size_t room);

// A socket that listens at an address of this host; host "": at all addresses; port 0: any port, which is stored in *a.
// With `from_outside`, a name of this host that resolves only to the loopback address, as in some /etc/hosts, means all
// addresses.
int socket_listen(Address *a, bool from_outside, Err *err);
// -1: no connection is waiting, or, by errno, none can be accepted. *from: the other end.
int socket_accept(int listener, Address *from);
bool socket_is_of_this_host(int fd); // whether both ends have the same address
// Tries each address of the name once, until `deadline` (as now_seconds). -1 with the last reason.
int socket_connect(const Address *a, double deadline, Err *err);
// Sends all bytes; false if the other end is gone.
bool socket_send(int fd, const void *p, size_t bytes);
bool socket_receive(int fd, void *p, size_t bytes);
