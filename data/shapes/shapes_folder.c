#include "data/shapes/shapes_folder.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/regular.h"

#define MADE_BY "{\"made_by\":\"tools/shapes\"," // how a marker starts

// A name alone marks nothing: another program may have a file of that name.
static bool marker_is_ours(const char *dir, const char *marker) {
  char *path = xasprintf("%s/%s", dir, marker), start[sizeof MADE_BY] = "";
  FILE *f = regular_read(path, NULL);
  free(path);
  if (!f) return false;
  const bool ours = fgets(start, sizeof start, f) && !strcmp(start, MADE_BY);
  fclose(f);
  return ours;
}

// Whether the folder is absent, empty or marked as ours.
static bool folder_is_ours(const char *dir, const char *marker, Err *err) {
  DIR *d = opendir(dir);
  if (!d) return true;
  bool empty = true;
  for (struct dirent *e; empty && (e = readdir(d));) empty = !strcmp(e->d_name, ".") || !strcmp(e->d_name, "..");
  closedir(d);
  return empty || marker_is_ours(dir, marker) ||
         err_set(err, "%s contains other files than a shapes data set of this format; choose an empty folder", dir);
}

static bool write_marker(const ShapesConfig *c, const char *marker, Err *err) {
  AtomicFile out;
  char *path = xasprintf("%s/%s", c->dir, marker);
  bool ok = file_begin(&out, path, err);
  free(path);
  if (!ok) return false;
  fprintf(out.f, MADE_BY "\"seed\":%llu,\"size\":%d,\"train\":%d,\"val\":%d}\n", (unsigned long long)c->seed, c->size,
          c->train, c->val);
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
