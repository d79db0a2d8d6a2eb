#include "data/survey/shared_files.h"
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/parallel.h"
#include "base/text_table.h"
#include "data/batches/file_key.h"
#include "data/coco/layout.h"

typedef struct SharedFile {
  int64_t bytes;
  int h, w;
  int set, image; // 0: of a, 1: of b; usable image
  bool read;      // the other set has a file of that length and size
  uint64_t key;
} SharedFile;

typedef struct SharedFiles {
  const Dataset *set[2];
  SharedFile *item;
  int n;
} SharedFiles;

static int compare_sizes(const SharedFile *p, const SharedFile *q) {
  if (p->bytes != q->bytes) return p->bytes < q->bytes ? -1 : 1;
  return p->h != q->h ? compare_int(&p->h, &q->h) : compare_int(&p->w, &q->w);
}

static int compare_files(const void *a, const void *b) {
  const SharedFile *p = a, *q = b;
  const int by_size = compare_sizes(p, q);
  if (by_size || p->key == q->key) return by_size;
  return p->key < q->key ? -1 : 1;
}

static void list_files(SharedFiles *f, int set) {
  const Dataset *d = f->set[set];
  for (int i = 0; i < d->num_images; i++) {
    const CocoImage *im = &d->coco.images[d->image[i]];
    const int64_t bytes = d->file_bytes[d->image[i]];
    if (bytes > 0) f->item[f->n++] = (SharedFile){.bytes = bytes, .h = im->h, .w = im->w, .set = set, .image = i};
  }
}

static void read_file(void *of, int i, int thread) {
  (void)thread;
  const SharedFiles *f = of;
  SharedFile *s = &f->item[i];
  if (!s->read) return;
  char *path = dataset_path(f->set[s->set], s->image);
  s->key = file_key_of(path);
  free(path);
}

// Calls `take` for each run of items that compare as equal.
static void each_run(SharedFiles *f, int (*compare)(const SharedFile *, const SharedFile *),
                     void (*take)(SharedFile *run, int n, bool *shared), bool *shared) {
  for (int i = 0, k; i < f->n; i = k) {
    for (k = i + 1; k < f->n && compare(&f->item[i], &f->item[k]) == 0;) k++;
    bool of[2] = {false, false};
    for (int m = i; m < k; m++) of[f->item[m].set] = true;
    if (of[0] && of[1]) take(&f->item[i], k - i, shared);
  }
}

static void mark_to_read(SharedFile *run, int n, bool *shared) {
  (void)shared;
  for (int i = 0; i < n; i++) run[i].read = true;
}

static void mark_shared(SharedFile *run, int n, bool *shared) {
  for (int i = 0; i < n; i++)
    if (run[i].set == 0 && run[i].key) shared[run[i].image] = true;
}

static int compare_keys(const SharedFile *p, const SharedFile *q) { return compare_files(p, q); }

void shared_files_find(const Dataset *a, const Dataset *b, bool *shared) {
  SharedFiles f = {.set = {a, b}};
  f.item = xmalloc(((size_t)a->num_images + (size_t)b->num_images) * sizeof *f.item);
  list_files(&f, 0);
  list_files(&f, 1);
  qsort(f.item, (size_t)f.n, sizeof *f.item, compare_files);
  each_run(&f, compare_sizes, mark_to_read, NULL);
  parallel_for(f.n, parallel_threads(f.n), read_file, &f);
  qsort(f.item, (size_t)f.n, sizeof *f.item, compare_files);
  each_run(&f, compare_keys, mark_shared, shared);
  free(f.item);
}

bool shared_files_are_named(const Dataset *a, const Dataset *b, Err *err) {
  TextTable of_b = {0};
  int n = 0, first = -1;
  if (!a->by_last || a->named || !strcmp(a->coco.path, b->coco.path)) return true;
  for (int i = 0; i < b->num_images; i++) {
    char *path = dataset_path(b, i);
    text_table_add(&of_b, path);
    free(path);
  }
  for (int i = a->num_images - 1; i >= 0; i--) {
    char *path = a->by_last[a->image[i]] ? dataset_path(a, i) : NULL;
    if (path && text_table_find(&of_b, path) >= 0) {
      n++;
      first = i;
    }
    free(path);
  }
  text_table_free(&of_b);
  if (n == 0) return true;
  char *path = dataset_path(a, first), *options = coco_layout_options("val", a->coco.path);
  err_set(err,
          "%s: images found only by the last part of their names, in files that are trained on: %d of %d; \"%.100s\" "
          "would be %s; name the folder of the images by %s",
          a->coco.path, n, a->num_images, a->coco.images[a->image[first]].file_name, path, options);
  free(path);
  free(options);
  return false;
}
