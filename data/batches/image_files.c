#include "data/batches/image_files.h"
#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/name_key.h"
#include "base/parallel.h"
#include "base/text_table.h"

// ---- names ----------------------------------------------------------------------------------------------------------

static int hex_digit(char c) { return isdigit((unsigned char)c) ? c - '0' : (c | 32) - 'a' + 10; }

// The name with %XX decoded, of an address without its query; NUL stays encoded. Caller frees.
static char *decoded_name(const char *name) {
  char *out = xstrdup(name), *to = out;
  const char *end = strstr(name, "://") ? name + strcspn(name, "?") : name + strlen(name);
  for (const char *at = name; at < end; at++) {
    const bool encoded = *at == '%' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2]);
    const int code = encoded ? 16 * hex_digit(at[1]) + hex_digit(at[2]) : 0;
    *to++ = code ? (char)code : *at;
    if (code) at += 2;
  }
  *to = '\0';
  return out;
}

static char *turned_name(const char *name) {
  char *out = xstrdup(name);
  for (char *at = out; *at; at++)
    if (*at == '\\') *at = '/';
  return out;
}

static const char *last_part(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash ? slash + 1 : name;
}

// The part behind a prefix as in 3f2a91bc-photo.png; NULL: it has none.
static const char *uploaded_name(const char *last) {
  return strspn(last, "0123456789abcdef") == 8 && last[8] == '-' && last[9] ? last + 9 : NULL;
}

// The name as it is compared with files: decoded, with slashes. Caller frees.
static char *plain_name(const char *name) {
  char *decoded = decoded_name(name), *turned = turned_name(decoded);
  free(decoded);
  return turned;
}

// ---- the folder -----------------------------------------------------------------------------------------------------

static bool is_in(const char *folder, const char *name) {
  char *path = xasprintf("%s/%s", folder, name);
  const bool there = path_is_file(path);
  free(path);
  return there;
}

enum { SAMPLE = 200 }; // images

// The folder that has most of a sample of images under their names, as they are or plain; NULL: none has any.
static const char *best_folder(const Coco *c, const CocoLayout *l) {
  const int step = (c->num_images + SAMPLE - 1) / SAMPLE;
  int best = 0, most = -1;
  for (int f = 0; f < l->folders; f++) {
    int found = 0, all = 0;
    for (int i = 0; i < c->num_images; i += step) {
      if (!c->images[i].file_name) continue;
      char *plain = plain_name(c->images[i].file_name);
      found += is_in(l->folder[f], c->images[i].file_name) || is_in(l->folder[f], plain);
      all++;
      free(plain);
    }
    if (found > most) {
      most = found;
      best = f;
    }
    if (found == all) break;
  }
  return most > 0 ? l->folder[best] : NULL;
}

// ---- files ----------------------------------------------------------------------------------------------------------

// The files below a folder.
typedef struct FileList {
  char **path;
  bool *another; // whether the file is in a folder of another split
  int n;
  size_t cap, cap_another;
} FileList;

enum { DEEPEST = 8, MOST_FILES = 5000000 };

// With a layout, files in folders of other splits are marked.
static void list_files(FileList *l, const char *folder, int depth, const CocoLayout *layout, bool another) {
  enum { SPLITS = 2 }; // depth of folders of splits: images/train
  DIR *dir = opendir(folder);
  for (struct dirent *entry; dir && l->n < MOST_FILES && (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    char *path = xasprintf("%s/%s", folder, entry->d_name);
    const bool is_dir = entry->d_type == DT_DIR || (entry->d_type != DT_REG && path_is_dir(path));
    if (is_dir || (entry->d_type != DT_REG && !path_is_file(path))) {
      if (is_dir && depth < DEEPEST)
        list_files(l, path, depth + 1, layout,
                   another || (layout && depth < SPLITS && coco_layout_is_another(layout, entry->d_name)));
      free(path);
    } else {
      array_reserve((void **)&l->path, &l->cap, (size_t)l->n + 1, sizeof *l->path);
      array_reserve((void **)&l->another, &l->cap_another, (size_t)l->n + 1, sizeof *l->another);
      l->another[l->n] = another;
      l->path[l->n++] = path;
    }
  }
  if (dir) closedir(dir);
}

// Files by a key of their names; a key that two files have finds neither.
typedef struct FileIndex {
  TextTable keys;
  int *file; // [keys.n] index into a FileList; -1: several
  size_t cap;
} FileIndex;

static void index_add(FileIndex *x, char *key, int file) {
  const int known = x->keys.n, k = text_table_add(&x->keys, key);
  array_reserve((void **)&x->file, &x->cap, (size_t)x->keys.n, sizeof *x->file);
  x->file[k] = k == known || x->file[k] == file ? file : -1;
  free(key);
}

static int index_find(const FileIndex *x, char *key) {
  const int k = text_table_find(&x->keys, key);
  free(key);
  return k < 0 ? -1 : x->file[k];
}

static void index_free(FileIndex *x) {
  text_table_free(&x->keys);
  free(x->file);
}

// The part of a path below a folder; NULL: it is not below it.
static const char *below(const char *path, const char *folder) {
  const size_t n = strlen(folder);
  return !strncmp(path, folder, n) && path[n] == '/' ? path + n + 1 : NULL;
}

// LVIS's images of one split are COCO's of both; elsewhere, equal names in two splits are different images.
static bool is_of_lvis(const CocoLayout *l) { return !strcmp(l->name, "LVIS"); }

typedef struct FileSearch {
  Dataset *d;
  const char *root; // where files are looked for: the folder, or one that contains it
  FileList files;
  FileIndex whole, last; // by name below the folder or the root; by the last part of the name
  TextTable names;       // last parts of the images' names, …
  int *times;            // [names.n] … and how many images have each
  int count[FILE_NAMINGS], first[FILE_NAMINGS];
} FileSearch;

// Whether names in this folder may be another split's: it is not the split's own folder, although there is one.
static bool may_be_another(const CocoLayout *l, const char *folder) {
  bool own = l->own == 0 || is_of_lvis(l);
  for (int i = 0; i < l->own; i++) own |= !strcmp(l->folder[i], folder);
  return !own;
}

static void search_open(FileSearch *s, Dataset *d, const CocoLayout *l, const char *root) {
  *s = (FileSearch){.d = d, .root = root};
  const Coco *c = &d->coco;
  list_files(&s->files, s->root, 0, may_be_another(l, d->folder) ? l : NULL, false);
  for (int i = 0; i < s->files.n; i++) {
    const char *path = s->files.path[i], *in_folder = below(path, s->d->folder), *in_root = below(path, s->root);
    if (in_folder) index_add(&s->whole, name_key(in_folder, true), i);
    if (in_root && in_root != in_folder) index_add(&s->whole, name_key(in_root, true), i);
    index_add(&s->last, name_key(last_part(path), true), i);
  }
  s->times = xcalloc((size_t)c->num_images, sizeof *s->times);
  for (int i = 0; i < c->num_images; i++) {
    if (!c->images[i].file_name) continue;
    char *plain = plain_name(c->images[i].file_name), *key = name_key(last_part(plain), true);
    s->times[text_table_add(&s->names, key)]++;
    free(key);
    free(plain);
  }
}

static void search_close(FileSearch *s) {
  for (int i = 0; i < s->files.n; i++) free(s->files.path[i]);
  free(s->files.path);
  free(s->files.another);
  index_free(&s->whole);
  index_free(&s->last);
  text_table_free(&s->names);
  free(s->times);
}

// Whether two names differ in the composition of letters, not only in case.
static bool differs_in_marks(const char *name, const char *file) {
  char *a = name_key(name, false), *b = name_key(file, false);
  const bool composed = !strcmp(a, b); // they are equal but for that
  free(a);
  free(b);
  if (composed) return true;
  size_t marks[2] = {0};
  const char *const text[] = {name, file};
  for (int k = 0; k < 2; k++)
    for (const char *at = text[k]; *at; at++) marks[k] += (*at & 0xc0) != 0x80; // characters
  return marks[0] != marks[1];
}

// By the last part of the name, or what is behind its prefix; -1: there is none, or it is not certain.
static int find_last(const FileSearch *s, const char *last, FileNaming *how) {
  const char *uploaded = uploaded_name(last);
  char *key = name_key(last, true), *behind = uploaded ? name_key(uploaded, true) : NULL;
  int file = s->times[text_table_find(&s->names, key)] == 1 ? index_find(&s->last, xstrdup(key)) : -1;
  *how = NAMED_LAST;
  if (file < 0 && behind && text_table_find(&s->names, behind) < 0) {
    file = index_find(&s->last, xstrdup(behind));
    *how = NAMED_UPLOAD;
  }
  if (file >= 0 && s->files.another[file]) {
    if (!s->d->another) s->d->another = xstrdup(s->files.path[file]);
    file = -1;
  }
  free(key);
  free(behind);
  return file;
}

// The path of an image's file where its name is not exact; NULL: it is missing or not certain.
static char *find_other(const FileSearch *s, const char *name, FileNaming *how) {
  char *decoded = decoded_name(name), *plain = turned_name(decoded), *found = NULL;
  if (is_in(s->d->folder, decoded)) {
    *how = NAMED_ENCODED;
    found = xasprintf("%s/%s", s->d->folder, decoded);
  } else if (is_in(s->d->folder, plain)) {
    *how = NAMED_SLASHES;
    found = xasprintf("%s/%s", s->d->folder, plain);
  }
  int file = found ? -1 : index_find(&s->whole, name_key(plain, true));
  if (file >= 0) {
    const char *path = s->files.path[file];
    const char *relative = below(path, s->d->folder);
    const size_t tail = strlen(path) - strlen(relative ? relative : below(path, s->root));
    *how = !strcmp(path + tail, plain)            ? NAMED_SLASHES
           : differs_in_marks(plain, path + tail) ? NAMED_COMPOSED
                                                  : NAMED_CASE;
  } else if (!found) {
    file = find_last(s, last_part(plain), how);
  }
  if (file >= 0) found = xstrdup(s->files.path[file]);
  free(decoded);
  free(plain);
  return found;
}

static void look_for_file(void *of, int i, int thread) {
  (void)thread;
  Dataset *d = of;
  if (!d->coco.images[i].file_name) return;
  char *path = xasprintf("%s/%s", d->folder, d->coco.images[i].file_name);
  const int64_t length = file_length(path);
  d->absent[i] = length < 0;
  d->file_bytes[i] = MAX(length, 0);
  free(path);
}

static void note_names(FileSearch *s) {
  static const char *const what[FILE_NAMINGS] = {[NAMED_ENCODED] = "percent-encoded",
                                                 [NAMED_SLASHES] = "with other slashes or folders",
                                                 [NAMED_CASE] = "differing in case",
                                                 [NAMED_COMPOSED] = "differing in how letters are composed",
                                                 [NAMED_LAST] = "found by the last part of the name",
                                                 [NAMED_UPLOAD] = "found without the prefix of an upload"};
  char text[512];
  int first = -1, used = 0;
  for (int k = NAMED_ENCODED; k < FILE_NAMINGS; k++) {
    if (!s->count[k]) continue;
    used += snprintf(text + used, sizeof text - (size_t)used, "%s %s: %d", used ? "," : "", what[k], s->count[k]);
    if (first < 0) first = s->first[k];
  }
  if (first >= 0)
    notes_add(&s->d->notes, "image files with other names than in %s:%s; first: \"%.120s\" is %.200s", s->d->coco.path,
              text, s->d->coco.images[first].file_name, s->d->file[first]);
}

// Finds files under other names, unless two images would get the same file.
static void find_others(Dataset *d, const CocoLayout *l, const char *root) {
  const Coco *c = &d->coco;
  FileSearch s;
  TextTable taken = {0};
  int *by = xcalloc((size_t)c->num_images + 1, sizeof *by); // [taken.n] how many images take a file
  FileNaming *how = xcalloc((size_t)c->num_images, sizeof *how);
  d->file = xcalloc((size_t)c->num_images, sizeof *d->file);
  d->by_last = xcalloc((size_t)c->num_images, sizeof *d->by_last);
  search_open(&s, d, l, root);
  for (int i = 0; i < c->num_images; i++) {
    if (!c->images[i].file_name) continue;
    if (d->absent[i]) d->file[i] = find_other(&s, c->images[i].file_name, &how[i]);
    if (d->absent[i] && !d->file[i]) continue;
    char *path = d->file[i] ? xstrdup(d->file[i]) : xasprintf("%s/%s", d->folder, c->images[i].file_name);
    by[text_table_add(&taken, path)]++;
    free(path);
  }
  for (int i = 0; i < c->num_images; i++) {
    if (!d->file[i]) continue;
    if (by[text_table_find(&taken, d->file[i])] > 1) {
      free(d->file[i]);
      d->file[i] = NULL;
      continue;
    }
    d->file_bytes[i] = MAX(file_length(d->file[i]), 0);
    d->absent[i] = false;
    d->by_last[i] = how[i] == NAMED_LAST || how[i] == NAMED_UPLOAD;
    if (s.count[how[i]]++ == 0) s.first[how[i]] = i;
  }
  note_names(&s);
  text_table_free(&taken);
  search_close(&s);
  free(how);
  free(by);
}

static bool leads_to_folder(const char *folder, const char *name) {
  char *path = xasprintf("%s/%s", folder, name);
  *strrchr(path, '/') = '\0';
  const bool leads = path_is_dir(path);
  free(path);
  return leads;
}

// If no image has its name in any folder, the one where most of a sample are found under other names.
static void choose_by_other_names(Dataset *d, const CocoLayout *l) {
  const Coco *c = &d->coco;
  const int step = (c->num_images + SAMPLE - 1) / SAMPLE;
  int best = 0, most = 0;
  for (int f = 0; f < l->folders; f++) {
    FileSearch s;
    int found = 0;
    d->folder = l->folder[f];
    search_open(&s, d, l, d->folder);
    for (int i = 0; i < c->num_images; i += step) {
      FileNaming how;
      char *path = c->images[i].file_name ? find_other(&s, c->images[i].file_name, &how) : NULL;
      found += path != NULL;
      free(path);
    }
    search_close(&s);
    if (found > most) best = f;
    most = MAX(most, found);
  }
  // Without any file, a message names the folder that the names lead to.
  for (int f = l->folders - 1; most == 0 && f >= 0; f--)
    if (c->num_images && c->images[0].file_name && leads_to_folder(l->folder[f], c->images[0].file_name)) best = f;
  d->folder = xstrdup(l->folder[best]);
}

void image_files_find(Dataset *d, const CocoLayout *layout) {
  const Coco *c = &d->coco;
  const char *folder = best_folder(c, layout);
  if (folder)
    d->folder = xstrdup(folder);
  else
    choose_by_other_names(d, layout);
  d->absent = xcalloc((size_t)c->num_images, sizeof *d->absent);
  d->file_bytes = xcalloc((size_t)c->num_images, sizeof *d->file_bytes);
  parallel_for(c->num_images, parallel_threads(c->num_images), look_for_file, d);
  int absent = 0;
  for (int i = 0; i < c->num_images; i++) absent += d->absent[i];
  if (absent) find_others(d, layout, is_of_lvis(layout) ? layout->root : d->folder);
}
