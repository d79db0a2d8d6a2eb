#include "page/picture_folder.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/file.h"

// A file whose presence marks the folder as ours.
static const char mark[] = "doctor.txt";
static const char mark_text[] = "build/doctor --html wrote picture-*.jpg here, and replaces them when it runs again.\n";

char *picture_folder_of(const char *page) {
  const size_t n = strlen(page), end = sizeof ".html" - 1;
  return xasprintf("%.*s-pictures", (int)(n > end && !strcmp(page + n - end, ".html") ? n - end : n), page);
}

static char *address_of(const char *name) {
  char *text = xmalloc(3 * strlen(name) + 1), *to = text;
  for (; *name; name++)
    to += isalnum((unsigned char)*name) || strchr("-_.", *name) ? sprintf(to, "%c", *name)
                                                                : sprintf(to, "%%%02X", (unsigned char)*name);
  *to = '\0';
  return text;
}

static bool write_file(const PictureFolder *p, const char *name, const void *bytes, size_t size, Err *err) {
  DIR *folder = folder_open_own(p->path, err);
  if (!folder) return false;
  const bool ok = folder_write_file(folder, name, bytes, size) ||
                  err_set(err, "cannot write %s/%s: %s", p->path, name, strerror(errno));
  closedir(folder);
  return ok;
}

static bool is_empty(const char *path) {
  int entries = 0;
  DIR *dir = folder_open_own(path, NULL);
  for (struct dirent *e; dir && (e = readdir(dir));) entries += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
  if (dir) closedir(dir);
  return entries == 0;
}

// By its text: a user may have a file of that name.
static bool is_marked(const char *path) {
  size_t size = 0;
  char *marked = xasprintf("%s/%s", path, mark), *text = file_read_own(marked, &size, NULL);
  const bool is = text && size == sizeof mark_text - 1 && !memcmp(text, mark_text, size);
  free(marked);
  free(text);
  return is;
}

bool picture_folder_open(PictureFolder *p, const char *page, Err *err) {
  *p = (PictureFolder){.path = picture_folder_of(page)};
  const char *slash = strrchr(p->path, '/');
  p->address = address_of(slash ? slash + 1 : p->path);
  bool ok = is_marked(p->path) || is_empty(p->path) ||
            err_set(err, "%s has files that doctor did not write; give --html another name, or --single-file", p->path);
  ok = ok && dirs_make(p->path, err) && write_file(p, mark, mark_text, sizeof mark_text - 1, err);
  if (!ok) picture_folder_close(p);
  return ok;
}

bool picture_folder_add(PictureFolder *p, const Jpeg *picture, char **address, Err *err) {
  char *name = xasprintf("picture-%04d.jpg", ++p->count);
  const bool ok = write_file(p, name, picture->bytes, picture->size, err);
  *address = ok ? xasprintf("%s/%s", p->address, name) : NULL;
  free(name);
  return ok;
}

// The number in a picture's name; 0: not a picture of ours.
static int number_of(const char *name) {
  int number = 0, used = 0;
  const bool is_one = sscanf(name, "picture-%4d.jpg%n", &number, &used) == 1 && used == sizeof "picture-0000.jpg" - 1;
  return is_one && !name[used] ? number : 0;
}

void picture_folder_prune(const PictureFolder *p) {
  DIR *dir = folder_open_own(p->path, NULL);
  for (struct dirent *e; dir && (e = readdir(dir));)
    if (number_of(e->d_name) > p->count) unlinkat(dirfd(dir), e->d_name, 0);
  if (dir) closedir(dir);
}

void picture_folder_close(PictureFolder *p) {
  free(p->path);
  free(p->address);
  *p = (PictureFolder){0};
}
