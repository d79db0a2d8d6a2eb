// The calls by which a program changes the files of a folder, recorded while it runs (ptrace, so Linux only).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum FileCallType {
  CALL_CREATE,
  CALL_MKDIR,
  CALL_WRITE,
  CALL_TRUNCATE,
  CALL_RENAME,
  CALL_LINK,
  CALL_UNLINK,
  CALL_SYNC
} FileCallType;

typedef struct FileCall {
  FileCallType type;
  int file; // number of the file, which keeps it under any name; -1: a folder, which has a name only
  char
      *name; // below the folder, "" the folder itself: created, linked, removed, or renamed to; a folder that is synced
  char *from;    // CALL_RENAME: the name before
  char *bytes;   // CALL_WRITE: what is written
  int64_t at, n; // CALL_WRITE: the offset and the number of bytes; CALL_TRUNCATE: n is the new length
  int calls;     // of the program: writes one behind the other to one file, with nothing in between, are one
} FileCall;

typedef struct FileCalls { // zero-initialise
  FileCall *call;
  size_t n, cap;
  struct KnownFile { // by inode; of an inode used again the last one counts
    uint64_t inode;
  } * file;
  size_t files, file_cap;
  char *unknown; // a call that changes files and is not among the above; NULL: none
} FileCalls;

// Runs a program and adds its calls and those of its threads that change files below `folder`, an absolute path without
// symbolic links. Calls that failed are left out. What other calls of the list have made may be there already. Its
// output goes to the file `said`. Returns the exit status, minus the signal that ended it, or -1000: it could not be
// traced.
int file_calls_record(FileCalls *c, const char *folder, const char *said, char *const *arguments);
void file_calls_free(FileCalls *c);
void file_call_print(const FileCall *c); // one line
