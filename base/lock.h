// One program at a time in a folder, or in a file that it writes.
#pragma once
#include "base/error.h"

// Takes the lock of a folder, FOLDER/lock, for as long as this program lives: the system gives it back however that
// ends, so that none is ever stale; the file, which says who took it last, stays. False when another program has it,
// named in the message, when nothing can be written there, or when another file has that name: it stays as it is. On a
// file system without locks it is true, too (base/durable.h).
bool folder_lock(const char *folder, Err *err);

// Whether a program has taken the folder, this one included; true, too, where that cannot be known.
bool folder_is_locked(const char *folder);

// Makes a new file to write to, which is this program's alone until it is closed (on a file system without locks others
// are trusted to keep away). What stood at the path goes: what a killed program left, or a link, which is not followed.
// -1, with errno, where that cannot be: EWOULDBLOCK when another program is writing it, for which `wait` waits.
int file_make(const char *path, bool wait);
// Takes the file that stands there, of this user and with no other name, until it is closed. -1 with errno as above.
int file_lock(const char *path, bool wait);
bool file_stands_at(int file, const char *path); // nobody has renamed or removed it
