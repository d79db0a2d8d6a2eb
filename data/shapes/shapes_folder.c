#include "data/shapes/shapes_folder.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"

// Whether the folder is absent, empty or marked as ours.
static bool folder_is_ours(const char *dir, const char *marker, Err *err) {
  DIR *d = opendir(dir);
  if (!d) return true;
  bool empty = true, ours = false;
  for (struct dirent *e; (e = readdir(d));) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
    empty = false;
    ours |= !strcmp(e->d_name, marker);
  }
  closedir(d);
  return empty || ours ||
         err_set(err, "%s contains other files than a shapes data set of this format; choose an empty folder", dir);
}

static bool write_marker(const ShapesConfig *c, const char *marker, Err *err) {
  AtomicFile out;
  char *path = xasprintf("%s/%s", c->dir, marker);
  bool ok = file_begin(&out, path, err);
  free(path);
  if (!ok) return false;
  fprintf(out.f, "{\"made_by\":\"tools/shapes\",\"seed\":%llu,\"size\":%d,\"train\":%d,\"val\":%d}\n",
          (unsigned long long)c->seed, c->size, c->train, c->val);
  return file_commit(&out, err);
}

bool shapes_folder_take(const ShapesConfig *c, const char *marker, const char *const *parts, int n, Err *err) {
  bool ok = folder_is_ours(c->dir, marker, err);
  for (int i = 0; i < n && ok; i++) {
    char *path = xasprintf("%s/%s", c->dir, parts[i]);
    ok = dirs_make(path, err);
    free(path);
  }
  return ok && write_marker(c, marker, err);
}
