#include "base/folder.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/durable.h"
#include "base/file.h"
#include "base/lock.h"

static char *made;    // what goes again; NULL: nothing
static pid_t made_by; // the process that it is for: one that it forked leaves the folder alone

static bool is_by_the_way(const char *name) {
  return !strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, "lock") || !strncmp(name, "index-", 6);
}

// Visits the entries; with `removes` those that are files are removed. False when there is anything else.
static bool visit(const char *folder, bool removes) {
  DIR *dir = opendir(folder);
  bool only = dir;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    if (!is_by_the_way(entry->d_name)) only = false;
    if (removes) unlinkat(dirfd(dir), entry->d_name, 0); // not folders
  }
  if (dir) closedir(dir);
  return only;
}

static void leave(void) {
  if (!made || made_by != getpid() || !visit(made, false)) return;
  visit(made, true);
  rmdir(made);
}

bool folder_take(const char *folder, Err *err) {
  const bool is_new = !path_is_dir(folder);
  if (!dirs_make(folder, err)) return false;
  free(made);
  made = is_new && atexit(leave) == 0 ? realpath(folder, NULL) : NULL;
  made_by = getpid();
  if (!folder_lock(folder, err)) return false;
  const bool ok = durable_try(folder) || err_set(err, "cannot write in %s: %s", folder, strerror(errno));
  durable_note(folder);
  return ok;
}
