// Hello: what a rank says about itself before it is admitted, and what it is told about the others.
#pragma once
#include <stdbool.h>
#include "comm/launch.h"
#include "comm/session.h"

// A rank as all others know it after the rendezvous. What it says about itself serves messages, and nothing else.
typedef struct Peer {
  char host[64];
} Peer;

typedef enum HelloFor { FOR_CONTROL, FOR_DATA } HelloFor;

typedef struct Hello {
  HelloFor connection;
  int rank, world, local_rank;
  Peer peer;
  char build[64], nonce[NONCE_TEXT];
} Hello;

// Types of frames, in the order of comm/session.h. Those after the welcome belong to the watch.
enum {
  FRAME_HELLO = 1,
  FRAME_CHALLENGE,
  FRAME_PROOF,
  FRAME_REFUSED,
  FRAME_SEATED,
  FRAME_PEER,
  FRAME_WELCOME,
  FRAMES_OF_WATCH
};

// Seconds within which a rank that disconnected may join again before all have joined.
enum { MAY_BE_AWAY = 8 };

Peer peer_here(void);
Hello hello_of(const Launch *l, HelloFor connection); // with a new nonce
void hello_frame(const Hello *h, Frame *f);           // as it is sent
bool hello_parse(Hello *h, const Frame *f);           // false: not a hello
void challenge_frame(Frame *f);                       // with a new nonce
void frame_send(Wire *w, const Frame *f);
void peer_send(Wire *w, int rank, const Peer *peer);
bool peer_parse(Peer *peer, const Frame *f);
