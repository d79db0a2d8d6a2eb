#include "base/file_set.h"
#include <stdlib.h>
#include <sys/stat.h>
#include "base/alloc.h"

typedef struct FileId {
  dev_t device;
  ino_t inode;
} FileId;

static bool id_of(const char *path, FileId *id) {
  struct stat st;
  if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
  *id = (FileId){st.st_dev, st.st_ino};
  return true;
}

static int compare(const void *a, const void *b) {
  const FileId *p = a, *q = b;
  return p->device != q->device ? (p->device > q->device ? 1 : -1) : (p->inode > q->inode) - (p->inode < q->inode);
}

void file_set_add(FileSet *s, const char *path) {
  FileId id;
  if (!id_of(path, &id)) return;
  array_reserve((void **)&s->ids, &s->cap, s->n + 1, sizeof id);
  s->ids[s->n++] = id;
  s->sorted = false;
}

bool file_set_spares(FileSet *s, const char *path, Err *err) {
  FileId id;
  if (s->n == 0 || !id_of(path, &id)) return true;
  if (!s->sorted) qsort(s->ids, s->n, sizeof id, compare);
  s->sorted = true;
  if (!bsearch(&id, s->ids, s->n, sizeof id, compare)) return true;
  return err_set(err, "%s is an input of this run and would be overwritten; choose another output file or folder",
                 path);
}

void file_set_free(FileSet *s) {
  free(s->ids);
  *s = (FileSet){0};
}
