// Hello: what a rank says about itself before it is let in.
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "comm/launch.h"
#include "comm/wire.h"

// A rank, as all know it after they met.
typedef struct Peer {
  char host[64];
  char namespaces
      [40]; // ids of kernel, PID and network namespace: processes can signal each other only if these are equal
  pid_t pid;
} Peer;

typedef enum HelloFor { FOR_CONTROL, FOR_DATA } HelloFor;

typedef struct Hello {
  HelloFor connection;
  int rank, world, local_rank;
  Peer peer;
  char token[128], build[64];
  char nonce[40]; // of the file that it read; "": none
} Hello;

// Types of frames: SEATED says that a hello was heard and others are waited for. Those after the welcome are the
// watch's.
enum { FRAME_HELLO = 1, FRAME_REFUSED, FRAME_SEATED, FRAME_PEER, FRAME_WELCOME, FRAMES_OF_WATCH };

// For so many seconds one who was there and has gone may come again before all are there.
enum { MAY_BE_AWAY = 8 };

Peer peer_here(void);
Hello hello_of(const Launch *l, const char *nonce);
void hello_send(Wire *w, const Hello *h, HelloFor connection);
bool hello_parse(Hello *h, const Frame *f); // false: no hello
void peer_send(Wire *w, int rank, const Peer *peer);
bool peer_parse(Peer *peer, const Frame *f);
