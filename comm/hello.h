// Hello: what a rank sends about itself before it is admitted.
#pragma once
#include <stdbool.h>
#include <sys/types.h>
#include "comm/launch.h"
#include "comm/wire.h"

// A rank as all others know it after the rendezvous.
typedef struct Peer {
  char host[64];
  char namespaces
      [40]; // ids of kernel, PID and network namespaces: processes can signal each other only if these are equal
  pid_t pid;
} Peer;

typedef enum HelloFor { FOR_CONTROL, FOR_DATA } HelloFor;

typedef struct Hello {
  HelloFor connection;
  int rank, world, local_rank;
  Peer peer;
  char token[128], build[64];
  char nonce[40]; // of the rendezvous file that it read; "": none
} Hello;

// Types of frames. SEATED: the hello was accepted, and rank 0 waits for others. Those after the welcome belong to the
// watch.
enum { FRAME_HELLO = 1, FRAME_REFUSED, FRAME_SEATED, FRAME_PEER, FRAME_WELCOME, FRAMES_OF_WATCH };

// Seconds within which a rank that disconnected may join again before all have joined.
enum { MAY_BE_AWAY = 8 };

Peer peer_here(void);
Hello hello_of(const Launch *l, const char *nonce);
void hello_send(Wire *w, const Hello *h, HelloFor connection);
bool hello_parse(Hello *h, const Frame *f); // false: not a hello
void peer_send(Wire *w, int rank, const Peer *peer);
bool peer_parse(Peer *peer, const Frame *f);
