// The file of --rendezvous file:PATH, on a file system that all hosts share: where rank 0 listens.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "comm/wire.h"

enum { MAX_ADDRESSES = 32 };

typedef struct MeetingFile {
  char nonce[40]; // of this one, which nobody else writes; ranks that come say it
  char token[128], namespaces[40];
  Address at[MAX_ADDRESSES];
  int addresses;
} MeetingFile;

// What rank 0 tells: all addresses of this host at this port.
MeetingFile meeting_file_here(const char *token, const char *namespaces, int port);
// Replaces the file at the path atomically. What is there must be such a file, an empty one, or nothing.
bool meeting_file_write(const MeetingFile *m, const char *path, Err *err);
// False: there is none, with the reason.
bool meeting_file_read(MeetingFile *m, const char *path, Err *err);
void meeting_file_remove(const MeetingFile *m, const char *path); // unless another has taken its place
