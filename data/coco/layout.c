#include "data/coco/layout.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/alloc.h"
#include "base/basics.h"
#include "base/cli.h"
#include "base/command.h"
#include "base/file.h"
#include "data/coco/elsewhere.h"

// ---- the table ------------------------------------------------------------------------------------------------------

// An arrangement: where the annotations of a split are, relative to the data set. '%' stands for the split's name, '*'
// in the last part for anything; case is ignored, an exact name is preferred.
typedef struct LayoutRow {
  const char *name, *annotations;
  bool single; // there is one file, which is the training split
} LayoutRow;

static const LayoutRow rows[] = {
    {"COCO", "annotations/instances_%*.json", false},
    {"CVAT", "annotations/%_instances_*.json", false},
    {"COCO", "annotations/%*.json", false},
    {"LVIS", "annotations/lvis_v1_%.json", false},
    {"LVIS", "lvis_v1_%.json", false},
    {"Roboflow", "%/_annotations.coco.json", false},
    {"COCO, a folder per split", "%/annotations.json", false},
    {"COCO, a folder per split", "%/instances*.json", false},
    {"Label Studio, a folder per split", "%/result.json", false},
    {"COCO", "instances_%*.json", false},
    {"COCO", "%.json", false},
    {"COCO", "%_annotations*.json", false},
    {"COCO", "annotations_%.json", false},
    {"CVAT", "annotations/instances_default.json", true},
    {"Roboflow", "_annotations.coco.json", true},
    {"Label Studio", "result.json", true},
    {"COCO", "annotations.json", true},
    {"COCO", "annotations/annotations.json", true},
};

// Folders of images, relative to the data set; '#' stands for the annotation file's name without "instances_" and
// ".json", '@' for the file's own folder.
static const char *const image_folders[] = {
    "#",      "images/#",       "%/images", "%",        "%*", "images/%",   "images/%*",
    "images", "images/default", "default",  "@/images", "@",  "JPEGImages", "."};
enum { OWN_FOLDERS = 7 }; // of them, the first ones have the split's name

// Other names of the usual splits.
static const char *const aliases[][3] = {{"train", "training", NULL}, {"val", "valid", "validation"}};

// ---- matching -------------------------------------------------------------------------------------------------------

typedef struct Matches { // paths, malloc'ed
  char *path[LAYOUT_FOLDERS];
  int n;
  bool exact; // the only one, because its name is exact
} Matches;

static void matches_free(Matches *m) {
  for (int i = 0; i < m->n; i++) free(m->path[i]);
  *m = (Matches){0};
}

// Adds the entries of `folder` that a part of a pattern, up to `length` bytes, matches: files, or folders if `dirs`.
static bool match_part(const char *folder, const char *part, size_t length, bool dirs, Matches *m, Err *err) {
  const char *star = memchr(part, '*', length);
  const size_t before = star ? (size_t)(star - part) : length, after = star ? length - before - 1 : 0;
  DIR *dir = opendir(folder);
  if (!dir && errno == ENOMEM) die(EXIT_RUN, "out of memory: cannot list %s", folder); // the file may exist
  if (!dir && errno != ENOENT && errno != ENOTDIR)
    return err_set(err, "cannot list folder %s: %s", folder, strerror(errno));
  for (struct dirent *entry; dir && (entry = readdir(dir)) && !m->exact;) {
    const char *name = entry->d_name;
    const size_t size = strlen(name);
    if (name[0] == '.' || size < before + after || (!star && size != length)) continue;
    if (strncasecmp(name, part, before) || strcasecmp(name + size - after, star ? star + 1 : "")) continue;
    char *path = xasprintf("%s/%s", folder, name);
    if (!(dirs ? path_is_dir(path) : path_is_file(path))) {
      free(path);
      continue;
    }
    const bool exact =
        size == before + after && !memcmp(name, part, before) && !memcmp(name + before, star ? star + 1 : "", after);
    if (exact) matches_free(m);
    m->exact = exact;
    if (m->n < LAYOUT_FOLDERS)
      m->path[m->n++] = path;
    else
      free(path);
  }
  if (dir) closedir(dir);
  return true;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// All paths below `dir` that a pattern of up to two parts matches, sorted.
static bool match(const char *dir, const char *pattern, bool dirs, Matches *m, Err *err) {
  const char *slash = strchr(pattern, '/');
  *m = (Matches){0};
  if (!slash) {
    if (!match_part(dir, pattern, strlen(pattern), dirs, m, err)) return false;
  } else {
    Matches folders = {0};
    bool ok = match_part(dir, pattern, (size_t)(slash - pattern), true, &folders, err);
    for (int i = 0; ok && i < folders.n; i++)
      ok = match_part(folders.path[i], slash + 1, strlen(slash + 1), dirs, m, err);
    matches_free(&folders);
    if (!ok) {
      matches_free(m);
      return false;
    }
  }
  qsort(m->path, (size_t)m->n, sizeof *m->path, by_name);
  return true;
}

// A pattern with `value` in place of `sign`. Caller frees.
static char *substitute(const char *pattern, char sign, const char *value) {
  const char *at = strchr(pattern, sign);
  return at ? xasprintf("%.*s%s%s", (int)(at - pattern), pattern, value, at + 1) : xstrdup(pattern);
}

// The names of a split, itself first. Returns how many.
static int names_of(const char *split, const char *names[3]) {
  names[0] = split;
  for (int i = 0; i < COUNT(aliases); i++) {
    if (strcmp(split, aliases[i][0])) continue;
    int n = 0;
    while (n < 3 && aliases[i][n]) n++;
    memcpy(names, aliases[i], sizeof aliases[i]);
    return n;
  }
  return 1;
}

// "train" for the split to train on, else "val": the options that name a split's files.
static const char *option_of(const char *split) { return !strncmp(split, "train", 5) ? "train" : "val"; }

// The message for a split's name that begins those of several files.
static void several_match(const LayoutRow *row, const char *split, const Matches *m, Err *err) {
  const char *sign = strstr(row->annotations, "%*"), *name = strrchr(m->path[0], '/') + 1, *option = option_of(split);
  if (!sign) {
    err_set(err, "both %s and %s match; give the one you mean as --%s-json FILE --%s-images DIR", m->path[0],
            m->path[1], option, option);
    return;
  }
  const char *slash = strchr(row->annotations, '/');
  const size_t before = (size_t)(sign - (slash ? slash + 1 : row->annotations));
  char *full = xasprintf("%.*s", (int)(strlen(name) - before - strlen(sign + 2)), name + before),
       *word = cli_word(full);
  err_set(err, "both %s and %s match; give the split's full name: --%s-split %s (infer: --split %s)", m->path[0],
          m->path[1], option, word, word);
  free(full);
  free(word);
}

// The annotation file of a row; *found is NULL if there is none. False if several files match, or on an error.
static bool find_row(const LayoutRow *row, const char *dir, const char *split, char **found, Err *err) {
  const char *names[3];
  const int n = names_of(split, names);
  *found = NULL;
  if (row->single && strcmp(split, "train")) return true;
  for (int i = 0; !*found && i < (row->single ? 1 : n); i++) {
    Matches m;
    char *pattern = substitute(row->annotations, '%', names[i]);
    const bool ok = match(dir, pattern, false, &m, err);
    free(pattern);
    if (!ok) return false;
    if (m.n > 1) several_match(row, split, &m, err);
    if (m.n == 1) *found = xstrdup(m.path[0]);
    const bool unique = m.n <= 1;
    matches_free(&m);
    if (!unique) return false;
  }
  return true;
}

// ---- folders of images ----------------------------------------------------------------------------------------------

static void add_folder(CocoLayout *l, const char *path) {
  for (int i = 0; i < l->folders; i++)
    if (!strcmp(l->folder[i], path)) return;
  if (l->folders < LAYOUT_FOLDERS) l->folder[l->folders++] = xstrdup(path);
}

static char *folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? xasprintf("%.*s", slash == path ? 1 : (int)(slash - path), path) : xstrdup(".");
}

static void find_folders(CocoLayout *l, const char *dir, const char *split) {
  const char *names[3], *file = strrchr(l->annotations, '/') + 1;
  const int n = names_of(split, names);
  if (!strncmp(file, "instances_", 10)) file += 10;
  char *stem = xasprintf("%.*s", (int)(strlen(file) - strlen(".json")), file), *own = folder_of(l->annotations);
  Err ignored;
  for (int k = 0; k < COUNT(image_folders); k++)
    for (int i = 0; i < (strchr(image_folders[k], '%') ? n : 1); i++) {
      if (image_folders[k][0] == '@' || image_folders[k][0] == '.') {
        char *path = image_folders[k][0] == '.'   ? xstrdup(dir)
                     : image_folders[k][1] == '/' ? xasprintf("%s%s", own, image_folders[k] + 1)
                                                  : xstrdup(own);
        if (path_is_dir(path)) add_folder(l, path);
        free(path);
        continue;
      }
      char *with_stem = substitute(image_folders[k], '#', stem), *pattern = substitute(with_stem, '%', names[i]);
      Matches m;
      if (match(dir, pattern, true, &m, &ignored))
        for (int f = 0; f < m.n; f++) add_folder(l, m.path[f]);
      matches_free(&m);
      free(with_stem);
      free(pattern);
      if (k < OWN_FOLDERS) l->own = l->folders;
    }
  free(stem);
  free(own);
}

// ---- what is not read -----------------------------------------------------------------------------------------------

// "--val-json FILE --val-images FOLDER", as a shell takes it. Caller frees.
static char *options_of(const char *option, const char *json, const char *folder) {
  char *file = cli_word(json), *images = folder ? cli_word(folder) : xstrdup("DIR");
  char *text = xasprintf("--%s-json %s --%s-images %s", option, file, option, images);
  free(file);
  free(images);
  return text;
}

char *coco_layout_options(const char *split, const char *json) { return options_of(option_of(split), json, NULL); }

// "if you mean FILE, give --val-json FILE --val-images DIR"; for a whole export in a subfolder, --data. Caller frees.
static char *option_for(const char *dir, const char *json, const char *option) {
  char *own = folder_of(json), *above = folder_of(own), *top = folder_of(above), *images = xasprintf("%s/images", dir);
  const char *last = strrchr(own, '/');
  const bool in_subfolder = !strcmp(above, dir) && last && strcasecmp(last + 1, "annotations") &&
                            strcasecmp(last + 1, "labels") &&
                            !coco_is_training(last + 1); // else the images are elsewhere, too
  char *data = cli_word(above);
  const char *folder = in_subfolder ? own : path_is_dir(images) ? images : dir;
  char *options = strcmp(top, dir) ? options_of(option, json, folder) : xasprintf("--data %s", data);
  char *text = xasprintf("if you mean %s, give %s", json, options);
  free(own);
  free(above);
  free(top);
  free(images);
  free(data);
  free(options);
  return text;
}

// Names of pictures in a folder and below; *any: whether there is any entry.
static int count_pictures(const char *folder, int depth, bool *any) {
  static const char *const endings[] = {".jpg", ".jpeg", ".png"};
  DIR *dir = depth < 16 ? opendir(folder) : NULL;
  int n = 0;
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    if (entry->d_name[0] == '.') continue;
    *any = true;
    const char *point = strrchr(entry->d_name, '.');
    bool picture = false;
    for (int i = 0; point && i < COUNT(endings); i++) picture |= !strcasecmp(point, endings[i]);
    char *path = picture ? NULL : xasprintf("%s/%s", folder, entry->d_name);
    n += picture ? 1 : path_is_dir(path) ? count_pictures(path, depth + 1, any) : 0;
    free(path);
  }
  if (dir) closedir(dir);
  return n;
}

// No file, here or elsewhere, is like annotations.
static bool no_annotations(const char *dir, const char *split, Err *err) {
  bool any = false;
  const int images = count_pictures(dir, 0, &any);
  if (!any) return err_set(err, "--data %s: the folder is empty", dir);
  return err_set(err,
                 "%s contains %d image%s but no annotations in COCO format, such as %s/annotations/instances_%s.json",
                 dir, images, images == 1 ? "" : "s", dir, split);
}

static bool nothing_found(const char *dir, const char *split, Err *err) {
  const char *option = option_of(split);
  char *one = NULL;
  Err ignored;
  for (int i = 0; !one && strcmp(split, "train") && i < COUNT(rows); i++)
    if (!find_row(&rows[i], dir, "train", &one, &ignored)) one = NULL;
  char *other = one ? coco_in_subfolder(dir) : coco_elsewhere(dir),
       *give = other ? option_for(dir, other, option) : NULL;
  if (one && other)
    err_set(err, "%s has no annotations of a split %s; %s", dir, split, give);
  else if (one)
    err_set(err, "%s has no annotations of a split %s, only %s; give --%s-json FILE --%s-images DIR for it", dir, split,
            one, option, option);
  else if (other && coco_is_list(other))
    err_set(err,
            "%s is not in COCO format, but a list, as Label Studio's own JSON is; %s %s --to OUT turns it into COCO",
            other, command_name("import"), dir);
  else if (other)
    err_set(err, "%s: no annotations of a split %s where COCO, Roboflow, CVAT, Label Studio or LVIS put them; %s", dir,
            split, give);
  else
    no_annotations(dir, split, err);
  free(one);
  free(other);
  free(give);
  return false;
}

// ---- finding --------------------------------------------------------------------------------------------------------

static bool take_given(CocoLayout *l, const char *json, const char *images, Err *err) {
  l->name = "as given";
  l->root = images ? xstrdup(images) : folder_of(json);
  l->annotations = xstrdup(json);
  add_folder(l, l->root);
  if (!path_is_file(json)) return err_set(err, "%s: no such file", json);
  return path_is_dir(l->root) || err_set(err, "%s: no such folder", l->root);
}

// False if there are none or, with a message, if several match.
static bool find_annotations(CocoLayout *l, const char *dir, const char *split, Err *err) {
  for (int i = 0; i < COUNT(rows) && !l->other; i++) {
    char *found;
    Err why;
    if (!find_row(&rows[i], dir, split, &found, &why)) {
      if (l->annotations) continue;
      return err_set(err, "%s", why.msg);
    }
    if (!found) continue;
    if (!l->annotations) {
      l->annotations = found;
      l->name = rows[i].name;
    } else if (strcmp(found, l->annotations)) {
      l->other = found;
      l->other_name = rows[i].name;
    } else {
      free(found);
    }
  }
  return l->annotations != NULL;
}

static bool search(CocoLayout *l, const char *dir, const char *split, Err *err) {
  err->msg[0] = '\0';
  l->root = xstrdup(dir);
  if (path_is_file(dir)) {
    const char *option = option_of(split);
    return err_set(err, "--data %s: expected a folder; for one annotation file give --%s-json FILE --%s-images DIR",
                   dir, option, option);
  }
  if (!path_is_dir(dir)) return err_set(err, "--data %s: no such folder", dir);
  if (!find_annotations(l, dir, split, err)) return !*err->msg && nothing_found(dir, split, err);
  find_folders(l, dir, split);
  return true;
}

bool coco_layout_find(CocoLayout *l, const char *dir, const char *split, const char *json, const char *images,
                      Err *err) {
  *l = (CocoLayout){0};
  if (json ? take_given(l, json, images, err) : search(l, dir, split, err)) return true;
  coco_layout_free(l);
  return false;
}

char *coco_layout_note(const CocoLayout *l, const char *split) {
  if (!l->other) return NULL;
  char *options = coco_layout_options(split, l->other);
  char *note = xasprintf("%s: read %s (%s), not %s (%s); %s would read that", split, l->annotations, l->name, l->other,
                         l->other_name, options);
  free(options);
  return note;
}

bool coco_layout_is_another(const CocoLayout *l, const char *name) {
  size_t length = strlen(name);
  while (length > 0 && isdigit((unsigned char)name[length - 1])) length--;
  char *names[] = {xstrdup(name), xasprintf("%.*s", (int)length, name)};
  bool is = false;
  for (int i = 0; i < COUNT(names); i++) {
    CocoLayout other = {0};
    Err ignored;
    is |=
        *names[i] && find_annotations(&other, l->root, names[i], &ignored) && strcmp(other.annotations, l->annotations);
    coco_layout_free(&other);
    free(names[i]);
  }
  return is;
}

void coco_layout_free(CocoLayout *l) {
  for (int i = 0; i < l->folders; i++) free(l->folder[i]);
  free(l->annotations);
  free(l->root);
  free(l->other);
  *l = (CocoLayout){0};
}
