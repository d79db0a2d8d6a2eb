// Finds IDX files by their names.
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "classification/data/idx.h"

// The parts of a file name: "emnist-train" "-images" "-idx3-ubyte" ".gz".
typedef struct IdxName {
  int stem; // bytes before "-images" or "-labels"
  bool images, gzip;
} IdxName;

static bool name_read(IdxName *n, const char *name) {
  static const char *const middle[] = {"-labels", "-images"}, *const type[] = {"idx1-ubyte", "idx3-ubyte"};
  for (int images = 0; images < 2; images++) {
    const char *at = strstr(name, middle[images]);
    if (!at) continue;
    const char *rest = at + strlen(middle[images]);
    if ((*rest != '-' && *rest != '.') || strncmp(rest + 1, type[images], strlen(type[images])) != 0) continue;
    rest += 1 + strlen(type[images]);
    *n = (IdxName){(int)(at - name), images, !strcmp(rest, ".gz")};
    if (*rest == '\0' || n->gzip) return true;
  }
  return false;
}

bool idx_in(const char *dir) {
  DIR *d = opendir(dir);
  bool found = false;
  IdxName n;
  for (struct dirent *e; d && !found && (e = readdir(d));) found = name_read(&n, e->d_name);
  if (d) closedir(d);
  return found;
}

// Whether the stem is the split's name, or ends in it after a dash or underscore.
static bool is_of(const char *file, int stem, const char *split) {
  const int length = (int)strlen(split), from = stem - length;
  if (from < 0 || strncmp(file + from, split, (size_t)length) != 0) return false;
  return from == 0 || file[from - 1] == '-' || file[from - 1] == '_';
}

bool idx_has(const char *dir, const char *const *names) {
  DIR *d = opendir(dir);
  bool has = false;
  IdxName n;
  for (struct dirent *e; d && !has && (e = readdir(d));)
    for (int i = 0; names[i] && !has; i++) has = name_read(&n, e->d_name) && is_of(e->d_name, n.stem, names[i]);
  if (d) closedir(d);
  return has;
}

// The file of a split: *path, or NULL if there is none. False if several match.
static bool find(const char *dir, const char *split, bool images, char **path, Err *err) {
  char *best = NULL;
  IdxName of_best = {0}, n;
  bool one = true;
  DIR *d = opendir(dir);
  for (struct dirent *e; d && one && (e = readdir(d));) {
    if (!name_read(&n, e->d_name) || n.images != images || !is_of(e->d_name, n.stem, split)) continue;
    const bool is_tie = best && n.gzip != of_best.gzip && n.stem == of_best.stem &&
                        !strncmp(best, e->d_name, MIN(strlen(best), strlen(e->d_name)));
    if (best && !is_tie) {
      const bool first = strcmp(best, e->d_name) < 0;
      one = err_set(err, "%s: both %s and %s could be the %s of %s; remove one", dir, first ? best : e->d_name,
                    first ? e->d_name : best, images ? "images" : "labels", split);
    }
    if (!one || (best && n.gzip)) continue;
    free(best);
    best = xstrdup(e->d_name);
    of_best = n;
  }
  if (d) closedir(d);
  *path = one && best ? xasprintf("%s/%s", dir, best) : NULL;
  free(best);
  return one;
}

static bool missing(const char *there, bool images, const char *dir, const char *split, Err *err) {
  return err_set(err, "%s: no %s for it; put %s/%s-%s-ubyte there, plain or .gz", there, images ? "images" : "labels",
                 dir, split, images ? "images-idx3" : "labels-idx1");
}

bool idx_find(const char *dir, const char *const *names, char **images, char **labels, Err *err) {
  *images = *labels = NULL;
  bool ok = true;
  for (int i = 0; ok && names[i] && !*images && !*labels; i++) {
    ok = find(dir, names[i], true, images, err) && find(dir, names[i], false, labels, err);
    if (ok && !*images != !*labels) ok = missing(*images ? *images : *labels, !*images, dir, names[i], err);
  }
  if (ok && !*images)
    ok = err_set(err, "%s: no IDX files for %s; put %s-images-idx3-ubyte and %s-labels-idx1-ubyte there, plain or .gz",
                 dir, names[0], names[0], names[0]);
  if (!ok) {
    free(*images);
    free(*labels);
    *images = *labels = NULL;
  }
  return ok;
}
