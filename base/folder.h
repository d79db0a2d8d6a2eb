// The folder that a program leaves its results in.
#pragma once
#include "base/error.h"

// Makes the folder, if need be, and takes its lock (base/lock.h). One that had to be made goes again at exit where
// nothing has come to it but the lock and index-* files, which are made on the way: a program that is refused leaves
// nothing behind; where several are taken, the last. Processes that this one forks hold the lock, too, and leave the
// folder to it. False when it cannot be made or is another program's.
bool folder_take(const char *folder, Err *err);
