// Makes what is written durable and then gives it its name: AtomicFile (base/file.h), second names and the log are
// built on this. Some file systems refuse some of the calls (network shares, FUSE, object stores): then the next best
// is done, and durable_note says so once. A fault of the disk (no space, an I/O error, read-only) stays a failure.
// Everything that returns false leaves the reason in errno.
#pragma once
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum FileSystemCall {
  FS_LINK,
  FS_SYNC,
  FS_SYNC_FOLDER,
  FS_RENAME,
  FS_LOCK,
  FS_MAP,
  FS_TRUNCATE,
  FS_CALLS
} FileSystemCall;

// Whether a call that failed for this reason, an errno, is one that the file system does not support. durable_note then
// says so.
bool durable_unsupported(FileSystemCall call, int reason);
bool durable_is_unsupported(FileSystemCall call); // as far as it was met so far

// Puts a file's bytes on disk.
bool durable_sync(int file);
bool durable_sync_folder(int folder); // likewise the names in it
// Puts the name `path` on disk: a name is durable only once the folder that holds it is.
bool durable_sync_name(const char *path);
// Replaces `to` by `from`, a file in the same file system whose bytes are on disk. Where there is no rename the bytes
// are copied over `to`, and only then is `from` removed: a copy that fails leaves it.
bool durable_rename(const char *from, const char *to);
// Ends a copy that durable_rename was killed in. False: there is none.
bool durable_rename_finish(const char *from, const char *to);
// Gives the file at `path`, or the one that a symbolic link there leads to, the further name `name`, which must be
// free: a hard link or, where that is not possible, a copy that is on disk.
bool durable_link(const char *path, const char *name);

// Tries each call in a folder, so that a file system's limits are known before anything depends on them, and leaves
// nothing there. False if the disk has a fault. That it is full is none: there may be room later.
bool durable_try(const char *folder);
// Prints one line with the calls that were refused since the last one, if any. `where`: the folder or file.
void durable_note(const char *where);

#ifdef __cplusplus
}
#endif
