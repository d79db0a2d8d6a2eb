// Pending: connections to rank 0 that have no seat yet. Anybody can connect, so each has a few seconds to prove that it
// knows the run's key, and half a kilobyte until then. When there are many, the oldest gives its place to a new one:
// first of the same address, and first those that say nothing. One that is proven is never closed for another.
#pragma once
#include "comm/hello.h"

typedef enum Stage { SAYS_NOTHING, CHALLENGED, PROVEN } Stage;

typedef struct Pending {
  Wire wire;
  Address from;
  double since;
  Stage stage;
  Hello hello; // once it is challenged
  uint8_t session[SHA256_BYTES];
  int seating; // a data connection: the seating to which it belongs (comm/reception.c)
} Pending;

// What is wrong with a connection.
typedef enum Refusal { OTHER_PROGRAM, OTHER_VERSION, OTHER_KEY, CONTRADICTION } Refusal;

typedef struct PendingList {
  Pending *one;
  int n, room;
  bool full;       // no connection can be accepted for now: this process has too many files open
  unsigned warned; // bits of enum Refusal: it has been said
  // The key that the rank of a hello has to know; NULL: it can have no seat.
  const uint8_t *(*key_for)(void *context, Pending *g);
  void *context;
  const char *advice; // for one that does not know its key
} PendingList;

// Room for so many proven connections, and for others. Raises the limit on open files as far as it may.
void pending_open(PendingList *p, int proven);
void pending_close(PendingList *p);
void pending_accept(PendingList *p, int listener);
// Reads from one. False: it is no rank of this run, and is closed. `frame` is scratch.
bool pending_read(PendingList *p, int which, Frame *frame);
void pending_dismiss(PendingList *p, int which); // the last one takes its place
// Prints what is wrong with a connection, the first time that this kind of mistake occurs.
void pending_warn(PendingList *p, Refusal what, const Pending *g, const char *fmt, ...) PRINTF_LIKE(4, 5);
void wire_refuse(Wire *w, int code, const char *why); // sends the reason, and closes
