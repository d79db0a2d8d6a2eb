// One program at a time in a folder.
#pragma once
#include "base/util.h"

// Takes the lock of a folder, FOLDER/lock, for as long as this program lives: the system gives it back however that
// ends, so that none is ever stale; the file, which says who took it last, stays. False when another program has it,
// named in the message, or when nothing can be written there. A file system without locks gets a line on stderr, and
// true.
bool folder_lock(const char *folder, Err *err);
