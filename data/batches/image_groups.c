#include "data/batches/image_groups.h"
#include <regex.h>
#include <stdlib.h>
#include "base/alloc.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/text_table.h"
#include "data/batches/file_key.h"

// ---- files ----------------------------------------------------------------------------------------------------------

typedef struct Reading {
  ImageList *l;
  const bool *marked;
} Reading;

static void read_key(void *of, int i, int thread) {
  (void)thread;
  const Reading *r = of;
  if (r->marked[i] && r->l->key[i] == 0) r->l->key[i] = file_key_of(r->l->path[i]);
}

void image_list_read(ImageList *l, const bool *marked) {
  Reading r = {l, marked};
  if (l->path) parallel_for(l->n, parallel_threads(l->n), read_key, &r);
}

typedef struct KeyedImage {
  uint64_t key;
  int image;
} KeyedImage;

static int compare_keyed(const void *a, const void *b) {
  const KeyedImage *p = a, *q = b;
  if (p->key != q->key) return p->key < q->key ? -1 : 1;
  return p->image - q->image;
}

// The images with a key other than 0, sorted by it; their number. Caller frees.
static KeyedImage *sorted(const uint64_t *key, int images, int *n) {
  KeyedImage *item = xmalloc((size_t)images * sizeof *item);
  *n = 0;
  for (int i = 0; i < images; i++)
    if (key[i]) item[(*n)++] = (KeyedImage){key[i], i};
  if (*n > 0) qsort(item, (size_t)*n, sizeof *item, compare_keyed);
  return item;
}

// Marks the images whose key another has, too.
static void mark_equal(const uint64_t *key, int images, bool *marked) {
  int n;
  KeyedImage *item = sorted(key, images, &n);
  for (int i = 0; i < images; i++) marked[i] = false;
  for (int i = 1; i < n; i++)
    if (item[i].key == item[i - 1].key) marked[item[i].image] = marked[item[i - 1].image] = true;
  free(item);
}

typedef struct Beginnings {
  const ImageList *l;
  const bool *marked;
  uint64_t *key; // of the length and the first bytes
} Beginnings;

static void read_beginning(void *of, int i, int thread) {
  enum { FIRST = 4096 };
  (void)thread;
  const Beginnings *b = of;
  char bytes[FIRST];
  FILE *f = b->marked[i] && path_is_file(b->l->path[i]) ? fopen(b->l->path[i], "rb") : NULL;
  if (!f) return;
  b->key[i] = digest_bytes((uint64_t)b->l->bytes[i], bytes, fread(bytes, 1, sizeof bytes, f));
  fclose(f);
}

// Reads the files that have the length and the first bytes of another.
static void read_alike(ImageList *l) {
  bool *marked = xmalloc((size_t)l->n * sizeof *marked);
  uint64_t *key = xmalloc((size_t)l->n * sizeof *key);
  for (int i = 0; i < l->n; i++) key[i] = (uint64_t)l->bytes[i];
  mark_equal(key, l->n, marked);
  for (int i = 0; i < l->n; i++) key[i] = 0;
  parallel_for(l->n, parallel_threads(l->n), read_beginning, &(Beginnings){l, marked, key});
  mark_equal(key, l->n, marked);
  image_list_read(l, marked);
  free(key);
  free(marked);
}

// ---- groups ---------------------------------------------------------------------------------------------------------

// The first image of the group, as it is known so far: `of` leads to an earlier image of it, or to itself.
static int first_of(int *of, int image) {
  while (of[image] != image) image = of[image] = of[of[image]];
  return image;
}

static void join(int *of, int a, int b) {
  a = first_of(of, a);
  b = first_of(of, b);
  of[a > b ? a : b] = a > b ? b : a;
}

static void join_files(ImageGroups *g, ImageList *l) {
  int n;
  if (l->path) read_alike(l);
  KeyedImage *item = sorted(l->key, l->n, &n);
  for (int i = 1; i < n; i++) {
    if (item[i].key != item[i - 1].key) continue;
    join(g->of, item[i].image, item[i - 1].image);
    g->copies++;
  }
  free(item);
}

bool image_groups_check(const char *regex, Err *err) {
  regex_t r;
  char why[256];
  const int code = regcomp(&r, regex, REG_EXTENDED);
  if (code) {
    regerror(code, &r, why, sizeof why);
    return err_set(err, "--group %.200s is not a regular expression: %s", regex, why);
  }
  regfree(&r);
  return true;
}

static void join_names(ImageGroups *g, const ImageList *l, const char *regex) {
  regex_t r;
  TextTable keys = {0};
  int *first = xmalloc((size_t)l->n * sizeof *first); // image with each key
  CHECK(regcomp(&r, regex, REG_EXTENDED) == 0);       // image_groups_check
  for (int i = 0; i < l->n; i++) {
    regmatch_t match[2] = {{-1, -1}, {-1, -1}};
    const bool found = regexec(&r, l->name[i], 2, match, 0) == 0;
    const regmatch_t *m = &match[r.re_nsub > 0];
    if (!found || m->rm_so < 0 || m->rm_so == m->rm_eo) {
      g->unmatched++;
      continue;
    }
    char *text = xasprintf("%.*s", (int)(m->rm_eo - m->rm_so), l->name[i] + m->rm_so);
    const int known = keys.n, key = text_table_add(&keys, text);
    if (key == known) first[key] = i;
    join(g->of, i, first[key]);
    free(text);
  }
  text_table_free(&keys);
  free(first);
  regfree(&r);
}

void image_groups_find(ImageGroups *g, ImageList *l, const char *regex) {
  *g = (ImageGroups){.of = xmalloc((size_t)l->n * sizeof *g->of)};
  for (int i = 0; i < l->n; i++) g->of[i] = i;
  join_files(g, l);
  if (regex) join_names(g, l, regex);
  for (int i = 0; i < l->n; i++) g->of[i] = first_of(g->of, i); // an image before it, or itself
  for (int i = 0; i < l->n; i++) g->of[i] = g->of[i] == i ? g->n++ : g->of[g->of[i]];
}

void image_groups_free(ImageGroups *g) {
  free(g->of);
  *g = (ImageGroups){0};
}
