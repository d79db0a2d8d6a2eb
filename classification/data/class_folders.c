#include "classification/data/class_folders.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/name_key.h"
#include "base/utf8.h"

enum { MOST_DEPTH = 16 };

static bool is_image(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && (!strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg") || !strcasecmp(dot, ".png"));
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static int compare_files(const void *a, const void *b) {
  const ClassFile *p = a, *q = b;
  return p->label != q->label ? compare_int(&p->label, &q->label) : strcmp(p->path, q->path);
}

// Asks for the file itself only where the folder does not say what it is: there may be a million files.
static bool is_folder(const struct dirent *e, const char *path) {
  return e->d_type == DT_DIR || ((e->d_type == DT_LNK || e->d_type == DT_UNKNOWN) && path_is_dir(path));
}

bool class_folders_in(const char *dir) {
  DIR *d = opendir(dir);
  bool found = false;
  for (struct dirent *e; d && !found && (e = readdir(d));) {
    char *path = xasprintf("%s/%s", dir, e->d_name);
    found = e->d_name[0] != '.' && is_folder(e, path);
    free(path);
  }
  if (d) closedir(d);
  return found;
}

static bool list_names(ClassFolders *f, const char *dir, Err *err) {
  DIR *d = opendir(dir);
  if (!d) return err_set(err, "cannot list folder %s: %s", dir, strerror(errno));
  size_t room = 0;
  bool ok = true;
  for (struct dirent *e; ok && (e = readdir(d));) {
    char *path = xasprintf("%s/%s", dir, e->d_name);
    if (e->d_name[0] != '.' && is_folder(e, path)) {
      ok = ok && (utf8_is(e->d_name) || err_set(err, "%s: the folder's name is not UTF-8; rename it", path));
      array_reserve((void **)&f->name, &room, (size_t)f->classes + 1, sizeof *f->name);
      f->name[f->classes++] = xstrdup(e->d_name);
    }
    free(path);
  }
  closedir(d);
  if (!ok) return false;
  if (f->classes == 0)
    return err_set(err, "%s: no folders in it; put the images of each class into a folder with the class's name", dir);
  qsort(f->name, (size_t)f->classes, sizeof *f->name, compare_names);
  return true;
}

// A class's folder: its name, and the device and inode that identify it.
typedef struct Known {
  char *key;
  int label;
  dev_t device;
  ino_t inode;
} Known;

static int compare_keys(const void *a, const void *b) {
  const Known *p = a, *q = b;
  const int order = strcmp(p->key, q->key);
  return order ? order : compare_int(&p->label, &q->label);
}

static int compare_inodes(const void *a, const void *b) {
  const Known *p = a, *q = b;
  if (p->device != q->device) return p->device < q->device ? -1 : 1;
  if (p->inode != q->inode) return p->inode < q->inode ? -1 : 1;
  return compare_int(&p->label, &q->label);
}

static bool tell_apart(const ClassFolders *f, const char *dir, Err *err) {
  Known *known = xcalloc((size_t)f->classes, sizeof *known);
  bool ok = true;
  for (int i = 0; i < f->classes; i++) {
    char *path = xasprintf("%s/%s", dir, f->name[i]);
    struct stat s = {0};
    stat(path, &s);
    known[i] = (Known){name_key(f->name[i], true), i, s.st_dev, s.st_ino};
    free(path);
  }
  qsort(known, (size_t)f->classes, sizeof *known, compare_keys);
  for (int i = 1; ok && i < f->classes; i++)
    if (!strcmp(known[i - 1].key, known[i].key))
      ok = err_set(
          err,
          "%s: the names of the folders %s and %s differ only in case or Unicode normalization; rename or merge them",
          dir, f->name[known[i - 1].label], f->name[known[i].label]);
  qsort(known, (size_t)f->classes, sizeof *known, compare_inodes);
  for (int i = 1; ok && i < f->classes; i++)
    if (known[i - 1].device == known[i].device && known[i - 1].inode == known[i].inode)
      ok = err_set(err, "%s: %s and %s are the same folder; remove the link", dir, f->name[known[i - 1].label],
                   f->name[known[i].label]);
  for (int i = 0; i < f->classes; i++) free(known[i].key);
  free(known);
  return ok;
}

typedef struct Listing {
  ClassFolders *f;
  const char *dir;
  size_t room;
} Listing;

// Lists everything below DIR/below; frees `below`.
static bool list_files(Listing *l, char *below, int label, int depth, Err *err) {
  ClassFolders *f = l->f;
  char *folder = xasprintf("%s/%s", l->dir, below);
  DIR *d = depth < MOST_DEPTH ? opendir(folder) : NULL;
  bool ok =
      d || (depth < MOST_DEPTH ? err_set(err, "cannot list folder %s: %s", folder, strerror(errno))
                               : err_set(err, "%s: folders are nested deeper than %d levels; does a link lead back up?",
                                         folder, MOST_DEPTH));
  for (struct dirent *e; ok && (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    char *path = xasprintf("%s/%s", below, e->d_name), *whole = xasprintf("%s/%s", folder, e->d_name);
    if (is_folder(e, whole)) {
      ok = list_files(l, path, label, depth + 1, err);
    } else if (!is_image(e->d_name)) {
      f->others++;
      free(path);
    } else {
      array_reserve((void **)&f->file, &l->room, (size_t)f->files + 1, sizeof *f->file);
      f->file[f->files++] = (ClassFile){path, label};
    }
    free(whole);
  }
  if (d) closedir(d);
  free(folder);
  free(below);
  return ok;
}

bool class_folders_list(ClassFolders *f, const char *dir, Err *err) {
  *f = (ClassFolders){0};
  Listing l = {f, dir, 0};
  bool ok = list_names(f, dir, err) && tell_apart(f, dir, err);
  for (int i = 0; ok && i < f->classes; i++) ok = list_files(&l, xstrdup(f->name[i]), i, 0, err);
  if (ok && f->files > 0) qsort(f->file, (size_t)f->files, sizeof *f->file, compare_files);
  if (!ok) class_folders_free(f);
  return ok;
}

void class_folders_free(ClassFolders *f) {
  for (int i = 0; i < f->classes; i++) free(f->name[i]);
  for (int i = 0; i < f->files; i++) free(f->file[i].path);
  free(f->name);
  free(f->file);
  *f = (ClassFolders){0};
}
