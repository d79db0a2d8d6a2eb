#include "page/run_facts.h"
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/record.h"
#include "base/regular.h"
#include "base/run_folder.h"
#include "page/data_uri.h"

typedef struct Faults {
  char **text;
  int n;
} Faults;

static void fault_add(Faults *f, const char *text) {
  f->text = xrealloc(f->text, ((size_t)f->n + 1) * sizeof *f->text);
  f->text[f->n++] = xstrdup(text);
}

// ---- files ----------------------------------------------------------------------------------------------------------

// The text of a file if it is complete JSON; NULL if there is no such file, or it is faulty. Caller frees.
static char *read_json(const char *path, size_t *size, Faults *faults) {
  Err err;
  Json j;
  if (access(path, F_OK)) return NULL;
  char *text = file_read_own(path, size, &err);
  if (!text) {
    fault_add(faults, err.msg);
    return NULL;
  }
  json_open(&j, path, text, *size);
  json_skip(&j);
  if (!json_done(&j)) {
    fault_add(faults, j.err.msg);
    free(text);
    text = NULL;
  }
  json_close(&j);
  return text;
}

static void write_member(Document *d, const char *key, const char *json, size_t size) {
  fprintf(d->f, ",\n\"%s\":", key);
  if (json)
    document_json(d, json, size);
  else
    fputs("null", d->f);
}

static void write_string(Document *d, const char *key, const char *text) {
  Record r = {0};
  record_begin(&r);
  record_str(&r, key, text);
  record_end(&r);
  document_json(d, r.text + 1, r.len - 2); // without the braces
  record_free(&r);
}

static void write_strings(Document *d, const char *key, char *const *text, int n) {
  Record r = {0};
  record_begin(&r);
  record_strings(&r, key, (const char *const *)text, n);
  record_end(&r);
  fputs(",\n", d->f);
  document_json(d, r.text + 1, r.len - 2);
  record_free(&r);
}

static bool ends_in(const char *text, const char *end) {
  const size_t n = strlen(text), m = strlen(end);
  return n > m && !strcmp(text + n - m, end);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void write_weights(Document *d, const char *folder) {
  char **name = NULL;
  size_t cap = 0;
  int n = 0;
  DIR *dir = folder ? opendir(folder) : NULL;
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    if (ends_in(entry->d_name, ".safetensors")) {
      array_reserve((void **)&name, &cap, (size_t)n + 1, sizeof *name);
      name[n++] = xstrdup(entry->d_name);
    }
  if (dir) closedir(dir);
  if (n) qsort(name, (size_t)n, sizeof *name, by_name);
  write_strings(d, "weights", name, n);
  for (int i = 0; i < n; i++) free(name[i]);
  free(name);
}

// ---- pictures -------------------------------------------------------------------------------------------------------

// The folder, with links resolved, of a path that may not exist yet; malloc'ed.
static char *real_folder(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? xasprintf("%.*s", (int)MAX(slash - path, 1), path) : xstrdup(".");
  char *real = realpath(folder, NULL);
  if (!real) return folder;
  free(folder);
  return real;
}

// The relative path from the page's folder to `to`: "", "../run/"; malloc'ed. Both exist.
static char *relative_path(const char *to, const char *page) {
  char *from = real_folder(page), *real = realpath(to, NULL), *path = xstrdup("");
  const char *a = from, *b = real ? real : to;
  size_t same = 0; // length of the common part, ending in a slash
  for (size_t i = 0;; i++) {
    if ((!a[i] || a[i] == '/') && (!b[i] || b[i] == '/')) same = i;
    if (!a[i] || a[i] != b[i]) break;
  }
  for (const char *p = a + same; *p; p++)
    if (*p == '/' && p[1]) {
      char *longer = xasprintf("%s../", path);
      free(path);
      path = longer;
    }
  b += same;
  while (*b == '/') b++;
  char *whole = xasprintf(*b ? "%s%s/" : "%s%s", path, b);
  free(path);
  free(from);
  free(real);
  return whole;
}

// Pictures are files that this program made: no link, which may have come with the folder and lead anywhere.
static void embed_picture(Document *d, const char *folder, const char *name, const char **comma) {
  struct stat st;
  size_t size;
  char *path = xasprintf("%s/%s", folder, name), *bytes = NULL;
  if (lstat(path, &st) == 0 && S_ISREG(st.st_mode)) bytes = file_read_own(path, &size, NULL);
  free(path);
  if (!bytes) return; // the page says that it is missing
  char *address = data_uri((const uint8_t *)bytes, size);
  fputs(*comma, d->f);
  write_string(d, name, address);
  *comma = ",\n";
  free(address);
  free(bytes);
}

// Every string in a list "pictures" that names a file below the folder's pictures/. Caller frees.
static char **pictures_of(const char *evaluation, size_t size, int *n) {
  static const char below[] = RUN_PICTURES "/";
  char **name = NULL;
  size_t cap = 0;
  const char *key;
  Json j;
  json_open(&j, "", evaluation, size);
  if (json_begin_object(&j))
    while ((key = json_key(&j))) {
      if (strcmp(key, "pictures") || json_peek(&j) != JSON_ARRAY) {
        json_skip(&j);
        continue;
      }
      for (json_begin_array(&j); json_next(&j);)
        for (bool list = json_begin_array(&j); list && json_next(&j);) {
          size_t length;
          if (json_peek(&j) != JSON_STRING) {
            json_skip(&j);
            continue;
          }
          const char *text = json_string(&j, &length);
          if (strncmp(text, below, sizeof below - 1) || strchr(text + sizeof below - 1, '/')) continue;
          array_reserve((void **)&name, &cap, (size_t)*n + 1, sizeof *name);
          name[(*n)++] = xstrdup(text);
        }
    }
  json_close(&j);
  return name;
}

// Each once, however often the evaluation names it: so the page has no more of them than the folder.
static void embed_pictures(Document *d, const char *folder, const char *evaluation, size_t size) {
  const char *comma = "\n";
  char *pictures = xasprintf("%s/" RUN_PICTURES, folder);
  const bool may = !path_is_others_link(pictures);
  free(pictures);
  int n = 0;
  char **name = pictures_of(evaluation, size, &n);
  if (n) qsort(name, (size_t)n, sizeof *name, by_name);
  fputs(",\n\"embedded\":{", d->f);
  for (int i = 0; may && i < n; i++)
    if (i == 0 || strcmp(name[i], name[i - 1])) embed_picture(d, folder, name[i], &comma);
  fputs("}", d->f);
  for (int i = 0; i < n; i++) free(name[i]);
  free(name);
}

static void write_pictures(Document *d, const char *folder, const char *page, const char *evaluation, size_t size,
                           bool single_file) {
  char *relative = relative_path(folder, page);
  fputs(",\n", d->f);
  write_string(d, "pictures", relative);
  free(relative);
  if (single_file && evaluation) embed_pictures(d, folder, evaluation, size);
}

// ---- all ------------------------------------------------------------------------------------------------------------

static void write_file(Document *d, const char *key, const char *path, Faults *faults) {
  size_t size = 0;
  char *text = read_json(path, &size, faults);
  write_member(d, key, text, size);
  free(text);
}

static void write_evaluation(Document *d, const char *folder, char *path, const char *page, bool single_file,
                             Faults *faults) {
  size_t size = 0;
  char *text = read_json(path, &size, faults);
  write_member(d, "evaluation", text, size);
  write_pictures(d, folder, page, text, size, single_file);
  free(text);
  free(path);
}

static void write_log(Document *d, const char *path, LogFacts **read, Faults *faults) {
  Err err;
  fputs(",\n\"log\":", d->f);
  if (path_is_file(path) && log_facts_write(d, path, read, &err)) return;
  if (path_is_file(path)) fault_add(faults, err.msg);
  fputs("null", d->f);
}

// The last part of a path, with or without a slash at its end. Owned.
static char *last_part(const char *folder) {
  char *real = !strcmp(folder, ".") || !strcmp(folder, "..") ? realpath(folder, NULL) : NULL;
  if (real) folder = real;
  size_t end = strlen(folder);
  while (end > 1 && folder[end - 1] == '/') end--;
  size_t begin = end;
  while (begin > 0 && folder[begin - 1] != '/') begin--;
  char *part = xasprintf("%.*s", (int)(end - begin), folder + begin);
  free(real);
  return part;
}

static void write_name(Document *d, const char *given, const char *path) {
  char *name = given ? xstrdup(given) : last_part(path);
  fputc('{', d->f);
  write_string(d, "name", name);
  fputc(',', d->f);
  write_string(d, "folder", path);
  char *real = realpath(path, NULL);
  if (real) fputc(',', d->f);
  if (real) write_string(d, "path", real);
  free(real);
  free(name);
}

static void write_faults(Document *d, Faults *f) {
  write_strings(d, "faults", f->text, f->n);
  fputs("}", d->f);
  for (int i = 0; i < f->n; i++) free(f->text[i]);
  free(f->text);
}

static void write_folder(Document *d, const char *folder, const char *page, bool single_file, Faults *faults) {
  char *record = xasprintf("%s/" RUN_RECORD, folder), *best = xasprintf("%s/best.json", folder);
  write_file(d, "run", record, faults);
  write_file(d, "best", best, faults);
  write_evaluation(d, folder, xasprintf("%s/" RUN_EVALUATION, folder), page, single_file, faults);
  write_weights(d, folder);
  fprintf(d->f, ",\n\"locked\":%s", folder_is_locked(folder) ? "true" : "false");
  free(record);
  free(best);
}

void run_facts_write(Document *d, const PageRun *run, const char *page, bool single_file) {
  Faults faults = {0};
  char *log = run->log ? xstrdup(run->log) : xasprintf("%s/" RUN_LOG, run->folder);
  write_name(d, run->name, run->folder ? run->folder : run->log);
  if (run->folder) write_folder(d, run->folder, page, single_file, &faults);
  write_log(d, log, run->read, &faults);
  write_faults(d, &faults);
  free(log);
}

void score_facts_write(Document *d, const char *folder, const char *page) {
  Faults faults = {0};
  write_name(d, NULL, folder);
  write_evaluation(d, folder, xasprintf("%s/" SCORES, folder), page, false, &faults);
  write_faults(d, &faults);
}

bool run_has_facts(const char *folder) {
  static const char *const names[] = {RUN_LOG, RUN_RECORD, RUN_EVALUATION};
  bool any = false;
  for (int i = 0; i < COUNT(names); i++) {
    char *path = xasprintf("%s/%s", folder, names[i]);
    any |= path_is_file(path);
    free(path);
  }
  return any;
}

// Their run.json, which only classifiers had, held the results; a newer version may have resumed the run.
bool run_is_older(const char *folder) {
  static const char begins[] = "{\"state\":";
  char *path = xasprintf("%s/" RUN_RECORD, folder), *older = xasprintf("%s/" OLDER_RECORD, folder);
  char first[sizeof begins] = "";
  FILE *f = regular_read(path, NULL);
  const bool is_newer = f && fgets(first, sizeof first, f) && !strcmp(first, begins),
             is = !is_newer && path_is_file(older);
  if (f) fclose(f);
  free(path);
  free(older);
  return is;
}
