// The file of --rendezvous file:PATH, on a file system that all hosts share: the addresses at which rank 0 listens.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "comm/wire.h"

enum { MAX_ADDRESSES = 32 };

typedef struct MeetingFile {
  char nonce[40]; // identifies this file; ranks send it to rank 0
  char token[128], namespaces[40];
  Address at[MAX_ADDRESSES];
  int addresses;
} MeetingFile;

// The file of rank 0: all addresses of this host, with this port.
MeetingFile meeting_file_here(const char *token, const char *namespaces, int port);
// Replaces the file at the path atomically. An existing file must be such a file or empty.
bool meeting_file_write(const MeetingFile *m, const char *path, Err *err);
// False with the reason if there is no such file.
bool meeting_file_read(MeetingFile *m, const char *path, Err *err);
void meeting_file_remove(const MeetingFile *m, const char *path); // unless it was replaced by another one
