// The file of --rendezvous file:PATH, on a file system that all hosts share: the addresses at which rank 0 listens, and
// a secret of the run, which only its user can read. Nobody else can have made it: it and its folder are checked on
// what was opened, never by name.
#pragma once
#include <stdbool.h>
#include "base/error.h"
#include "comm/launch.h"
#include "comm/session.h"
#include "comm/wire.h"

enum { MAX_ADDRESSES = 32 };

typedef struct MeetingFile {
  uint8_t secret[SHA256_BYTES];
  Address at[MAX_ADDRESSES];
  int addresses;
} MeetingFile;

// The file of rank 0: a new secret, and all addresses of this host, with this port.
MeetingFile meeting_file_here(int port);
// The key of a run with this file: HMAC-SHA256 of the secret, keyed with the launch's.
void meeting_file_key(const MeetingFile *m, Launch *l);
// Whether no other user can change what the folder of this path holds: it belongs to this user or to root, and others
// may not write to it, unless it is sticky, as /tmp is.
bool meeting_folder_is_safe(const char *path, Err *err);
// Replaces the file at the path atomically, readable for this user only. An existing file must be such a file or empty.
bool meeting_file_write(const MeetingFile *m, const char *path, Err *err);
// False with the reason if there is no such file, or others have access to it.
bool meeting_file_read(MeetingFile *m, const char *path, Err *err);
void meeting_file_remove(const MeetingFile *m, const char *path); // unless it was replaced by another one
