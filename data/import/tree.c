#include "data/import/tree.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/file.h"
#include "base/name_key.h"
#include "base/output.h"

// ---- paths ----------------------------------------------------------------------------------------------------------

bool path_ends(const char *path, const char *ending) {
  const size_t n = strlen(path), m = strlen(ending);
  return n >= m && !strcasecmp(path + n - m, ending);
}

const char *path_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static char *copy(const char *text, size_t length) {
  char *own = xmalloc(length + 1);
  memcpy(own, text, length);
  own[length] = '\0';
  return own;
}

char *path_folder(const char *path) {
  const char *name = path_name(path);
  return copy(path, name > path ? (size_t)(name - path) - 1 : 0);
}

// Up to the last point of its last part, unless that begins with it.
static size_t without_ending(const char *path) {
  const char *name = path_name(path), *point = strrchr(name, '.');
  return point && point > name ? (size_t)(point - path) : strlen(path);
}

char *path_stem(const char *path) {
  const char *name = path_name(path);
  return copy(name, without_ending(name));
}

static bool is_picture(const char *path) {
  static const char *const endings[] = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".jpe", ".jfif", ".bmp", ".webp"};
  for (int i = 0; i < COUNT(endings); i++)
    if (path_ends(path, endings[i])) return true;
  return false;
}

// ---- listing --------------------------------------------------------------------------------------------------------

enum { DEEPEST = 32 };

typedef struct TreeListing {
  Tree *tree;
  const char *root;
  bool pictures; // only these
  struct {
    dev_t device;
    ino_t inode;
  } above[DEEPEST]; // the folders around, so that a link to one of them is not followed
} TreeListing;

void tree_add(Tree *t, const char *path, const char *full) {
  char *stem = path_stem(path);
  array_reserve((void **)&t->file, &t->cap, (size_t)t->n + 1, sizeof *t->file);
  t->file[t->n++] = (TreeFile){xstrdup(path), xstrdup(full), name_key(stem, true), is_picture(path), -1, 0};
  free(stem);
}

// Whether an import wrote this folder: its pictures are copies.
static bool is_written(const char *folder) {
  static const char *const splits[] = {"train", "val", "test"};
  bool is = false;
  for (int i = 0; !is && i < COUNT(splits); i++) {
    char start[sizeof IMPORT_MARK] = "", *path = xasprintf("%s/annotations/instances_%s.json", folder, splits[i]);
    FILE *f = fopen(path, "rb");
    is = f && fread(start, 1, sizeof start - 1, f) == sizeof start - 1 && !strcmp(start, IMPORT_MARK);
    if (f) fclose(f);
    free(path);
  }
  return is;
}

static void list(TreeListing *l, const char *folder, int depth) {
  char *here = xasprintf("%s/%s", l->root, folder);
  struct stat st;
  DIR *dir = depth < DEEPEST ? opendir(here) : NULL;
  if (!dir) line_print(stderr, "note: cannot list %s: %s", here, depth < DEEPEST ? strerror(errno) : "too deep");
  bool around = !dir || fstat(dirfd(dir), &st) != 0 || (depth > 0 && is_written(here));
  for (int i = 0; !around && i < depth; i++) around = l->above[i].device == st.st_dev && l->above[i].inode == st.st_ino;
  if (!around) {
    l->above[depth].device = st.st_dev;
    l->above[depth].inode = st.st_ino;
  }
  for (struct dirent *entry; !around && (entry = readdir(dir));) {
    if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "__MACOSX")) continue;
    char *path = xasprintf("%s%s%s", folder, *folder ? "/" : "", entry->d_name);
    char *full = xasprintf("%s/%s", l->root, path);
    if (stat(full, &st) == 0) {
      if (S_ISREG(st.st_mode) && (!l->pictures || is_picture(path))) tree_add(l->tree, path, full);
      if (S_ISDIR(st.st_mode)) list(l, path, depth + 1);
    }
    free(full);
    free(path);
  }
  if (dir) closedir(dir);
  free(here);
}

static int by_path(const void *a, const void *b) {
  return strcmp(((const TreeFile *)a)->path, ((const TreeFile *)b)->path);
}

typedef struct KeyedFile {
  const char *key;
  int file;
} KeyedFile;

static int by_key(const void *a, const void *b) {
  const KeyedFile *p = a, *q = b;
  const int order = strcmp(p->key, q->key);
  return order ? order : (p->file > q->file) - (p->file < q->file);
}

void tree_sort(Tree *t, int first) {
  qsort(t->file + first, (size_t)(t->n - first), sizeof *t->file, by_path);
  KeyedFile *keyed = xmalloc((size_t)t->n * sizeof *keyed);
  for (int i = 0; i < t->n; i++) keyed[i] = (KeyedFile){t->file[i].key, i};
  qsort(keyed, (size_t)t->n, sizeof *keyed, by_key);
  t->by_key = xrealloc(t->by_key, (size_t)t->n * sizeof *t->by_key);
  for (int i = 0; i < t->n; i++) t->by_key[i] = keyed[i].file;
  free(keyed);
}

bool tree_open(Tree *t, const char *dir, const char *pictures, Err *err) {
  *t = (Tree){0};
  if (path_is_dir(dir)) {
    t->root = xstrdup(dir);
  } else if (path_is_file(dir)) {
    t->root = strchr(dir, '/') ? path_folder(dir) : xstrdup(".");
    t->only = path_name(dir);
  } else {
    return err_set(err, "%s: no such folder or file", dir);
  }
  if (pictures && !path_is_dir(pictures)) return err_set(err, "--images %s: no such folder", pictures);
  for (char *end = t->root + strlen(t->root) - 1; end > t->root && *end == '/'; end--) *end = '\0';
  TreeListing l = {.tree = t, .root = t->root};
  list(&l, "", 0);
  if (t->n == 0) return err_set(err, "%s: there are no files in this folder", dir);
  tree_sort(t, 0);
  if (!pictures) return true;
  const int own = t->n;
  l = (TreeListing){.tree = t, .root = pictures, .pictures = true};
  list(&l, "", 0);
  tree_sort(t, own);
  return true;
}

void tree_free(Tree *t) {
  for (int i = 0; i < t->n; i++) {
    free(t->file[i].path);
    free(t->file[i].full);
    free(t->file[i].key);
  }
  free(t->file);
  free(t->by_key);
  free(t->root);
  *t = (Tree){0};
}

// ---- splits ---------------------------------------------------------------------------------------------------------

static const struct {
  const char *word, *split;
} split_words[] = {{"train", "train"},    {"training", "train"}, {"val", "val"},     {"valid", "val"},
                   {"validation", "val"}, {"test", "test"},      {"testing", "test"}};

// Words that stand beside a split's name in those of folders and files: stage1_train, train_images, via_region_train.
static bool is_filler(const char *word) {
  static const char *const fillers[] = {"stage", "images",     "image",       "img",  "imgs",      "labels", "label",
                                        "masks", "mask",       "annotations", "ann",  "instances", "via",    "region",
                                        "data",  "annotation", "set",         "part", "job",       "task"};
  for (int i = 0; i < COUNT(fillers); i++)
    if (!strcmp(word, fillers[i])) return true;
  return false;
}

// Of one part of a path.
static const char *split_of_part(const char *part, size_t length) {
  const char *split = NULL;
  char word[32];
  for (size_t at = 0; at < length;) {
    size_t n = 0;
    while (at + n < length && isalpha((unsigned char)part[at + n])) n++;
    if (n >= sizeof word) return NULL;
    for (size_t i = 0; i < n; i++) word[i] = (char)tolower((unsigned char)part[at + i]);
    word[n] = '\0';
    const char *found = NULL;
    for (int i = 0; n > 0 && !found && i < COUNT(split_words); i++)
      if (!strcmp(word, split_words[i].word)) found = split_words[i].split;
    if (n > 0 && !found && !is_filler(word)) return NULL; // crash-test-dummies
    if (found && split && strcmp(found, split)) return NULL;
    if (found) split = found;
    at += n > 0 ? n : 1;
  }
  return split;
}

const char *split_of(const char *path, bool name) {
  const char *split = NULL;
  for (const char *p = path; *p;) {
    const size_t n = strcspn(p, "/");
    const bool last = !p[n];
    const char *found = last && !name ? NULL : split_of_part(p, last ? without_ending(p) : n);
    if (found) split = found;
    p += n + !last;
  }
  return split;
}

// Of a folder.
static const char *split_in(const char *folder) {
  char *path = xasprintf("%s/x", folder);
  const char *split = split_of(path, false);
  free(path);
  return split;
}

const char *split_named(const char *word) {
  const char *known = split_of_part(word, strlen(word));
  if (known || !*word || !strcasecmp(word, "default") || !strcasecmp(word, "annotations") || strlen(word) > 64)
    return known;
  for (const char *p = word; *p; p++)
    if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-') return NULL;
  return word;
}

// ---- finding --------------------------------------------------------------------------------------------------------

// Where files with this key begin in by_key.
static int first_with(const Tree *t, const char *key) {
  int low = 0, high = t->n;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (strcmp(t->file[t->by_key[middle]].key, key) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool has_key(const Tree *t, int i, const char *key) {
  return i < t->n && !strcmp(t->file[t->by_key[i]].key, key);
}

int tree_find(const Tree *t, const char *path) {
  char *stem = path_stem(path), *key = name_key(stem, true);
  int found = -1;
  for (int i = first_with(t, key); found < 0 && has_key(t, i, key); i++)
    if (!strcmp(t->file[t->by_key[i]].path, path)) found = t->by_key[i];
  free(stem);
  free(key);
  return found;
}

int tree_with_stem(const Tree *t, const char *stem, int *first) {
  char *key = name_key(stem, true);
  int n = 0;
  *first = first_with(t, key);
  while (has_key(t, *first + n, key)) n++;
  free(key);
  return n;
}

int tree_only(const Tree *t, int picture, const char *ending) {
  const char *key = t->file[picture].key;
  int found = -1, n = 0;
  for (int i = first_with(t, key); has_key(t, i, key); i++) {
    const TreeFile *f = &t->file[t->by_key[i]];
    if (f->picture && t->by_key[i] != picture) return -1;
    if (!path_ends(f->path, ending)) continue;
    found = t->by_key[i];
    n++;
  }
  return n == 1 ? found : -1;
}

int tree_named(const Tree *t, const char *name) {
  for (int i = 0; i < t->n; i++)
    if (!strcmp(path_name(t->file[i].path), name)) return i;
  return -1;
}

// How many parts at the end of two paths are equal, the last one counted; its ending only if `endings`.
static int common_parts(const char *a, const char *b, bool endings) {
  size_t n = endings ? strlen(a) : without_ending(a), m = endings ? strlen(b) : strlen(b);
  int parts = 0;
  for (;;) {
    const size_t n_end = n, m_end = m;
    while (n > 0 && a[n - 1] != '/') n--;
    while (m > 0 && b[m - 1] != '/') m--;
    char *x = copy(a + n, n_end - n), *y = copy(b + m, m_end - m);
    char *p = name_key(x, true), *q = name_key(y, true);
    const bool same = *p && !strcmp(p, q);
    free(x);
    free(y);
    free(p);
    free(q);
    if (!same) return parts;
    parts++;
    if (n == 0 || m == 0) return parts;
    n--;
    m--;
  }
}

// How many bytes of whole folders two paths begin with in common.
static int common_folders(const char *path, const char *folder) {
  int n = 0;
  for (int i = 0;; i++) {
    const bool ends = !folder[i] || folder[i] == '/';
    if (ends && path[i] == '/') n = i + 1;
    if (!folder[i] || folder[i] != path[i]) return n;
  }
}

// FOLDER/NAME without "." and ".."; malloc'ed.
static char *join(const char *folder, const char *name) {
  char *path = xasprintf("%s/%s", folder, *name == '/' ? name + 1 : name), *to = path;
  for (const char *from = path; *from;) {
    const size_t n = strcspn(from, "/");
    if (n == 2 && from[0] == '.' && from[1] == '.') {
      while (to > path && *--to != '/') {
      }
    } else if (n > 0 && !(n == 1 && *from == '.')) {
      if (to > path) *to++ = '/';
      memmove(to, from, n);
      to += n;
    }
    from += n + (from[n] == '/');
  }
  *to = '\0';
  return path;
}

// The best of the pictures that `name` may mean.
static TreeMatch best(const Tree *t, const char *name, bool endings, const char *folder, int *file) {
  char *stem = endings ? path_stem(name) : xstrdup(path_name(name)), *key = name_key(stem, true);
  char *exact = join(folder, name);
  int most = 0, nearest = -1;
  TreeMatch match = TREE_MISSING;
  const char *split = split_in(folder);
  for (int low = first_with(t, key); match != TREE_EXACT && has_key(t, low, key); low++) {
    const TreeFile *f = &t->file[t->by_key[low]];
    if (!f->picture) continue;
    const int parts = common_parts(f->path, name, endings),
              near = 2 * common_folders(f->path, folder) + (split && split_of(f->path, false) == split);
    if (parts == 0) continue;
    const size_t n = endings ? strlen(f->path) : without_ending(f->path);
    const bool is = strlen(exact) == n && !memcmp(f->path, exact, n);
    if (!is && (parts < most || (parts == most && near < nearest))) continue;
    const bool same = match && parts == most && near == nearest;
    match = is ? TREE_EXACT : same ? TREE_SEVERAL : TREE_NAME;
    if (!same || is) *file = t->by_key[low];
    most = parts;
    nearest = near;
  }
  free(stem);
  free(key);
  free(exact);
  return match;
}

static void decode_percent(char *text) {
  char *to = text;
  for (const char *p = text; *p; p++) {
    if (*p == '%' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2])) {
      const char digits[] = {p[1], p[2], '\0'};
      *to++ = (char)strtol(digits, NULL, 16);
      p += 2;
    } else {
      *to++ = *p;
    }
  }
  *to = '\0';
}

TreeMatch tree_picture(const Tree *t, const char *name, const char *folder, int *file) {
  char *path = xstrdup(name);
  for (char *p = path; *p; p++)
    if (*p == '\\') *p = '/';
  TreeMatch match = best(t, path, true, folder, file);
  if (!match) { // an URL: "…/local-files/?d=a/b.png", "https://…/b%20c.png?token=…"
    char *query = strchr(path, '?'), *d = query ? strstr(query, "d=") : NULL;
    char *url = d && (d[-1] == '?' || d[-1] == '&') ? copy(d + 2, strcspn(d + 2, "&"))
                                                    : copy(path, query ? (size_t)(query - path) : strlen(path));
    decode_percent(url);
    match = best(t, url, true, folder, file);
    if (match == TREE_EXACT) match = TREE_NAME;
    free(url);
  }
  free(path);
  return match;
}

TreeMatch tree_stem(const Tree *t, const char *stem, const char *folder, int *file) {
  return best(t, stem, false, folder, file);
}
