#include "inference/sources.h"
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/command.h"
#include "base/file.h"

typedef struct Folder { // images of a folder; those from `next` on are not handed out yet
  char **file;          // [n]
  int n, next;
} Folder;

struct Sources {
  char **file; // [files] of arguments and folders, in order; NULL: the position of the list
  int files, next;
  const char **named; // [num_named] those that are not NULL
  int num_named;
  int list;   // file descriptor of the list; -1: no list
  bool ended; // the list has ended
  char end;   // terminator of a name: newline or NUL
  bool begun; // something was read, so that `end` is known
  char *line; // text that was read and is not handed out: [used] of [room]
  size_t used, room;
  Folder listed; // the folder that the list named last
};

// ---- folders ----------------------------------------------------------------------------------------------

static void add(Sources *s, char *path) {
  s->file = xrealloc(s->file, (size_t)(s->files + 1) * sizeof *s->file);
  s->file[s->files++] = path;
}

static int is_image(const struct dirent *entry) {
  static const char *const endings[] = {".jpg", ".jpeg", ".png"};
  const char *name = entry->d_name, *dot = strrchr(name, '.');
  for (int i = 0; dot && *name != '.' && i < COUNT(endings); i++)
    if (!strcasecmp(dot, endings[i])) return 1;
  return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

// The images of a folder, sorted by name. NULL, with a message, if there is none.
static char **images_of(const char *folder, int *n, Err *err) {
  struct dirent **entry;
  *n = scandir(folder, &entry, is_image, by_bytes);
  if (*n < 0) {
    err_set(err, "cannot read the folder %s: %s", folder, strerror(errno));
    return NULL;
  }
  const char *slash = folder[strlen(folder) - 1] == '/' ? "" : "/";
  char **file = *n ? xmalloc((size_t)*n * sizeof *file) : NULL;
  for (int i = 0; i < *n; i++) {
    file[i] = xasprintf("%s%s%s", folder, slash, entry[i]->d_name);
    free(entry[i]);
  }
  free(entry);
  if (!file)
    err_set(err,
            "%s: no .jpg, .jpeg or .png file in this folder; subfolders are not searched, so name them or pass a list: "
            "find %s -name '*.jpg' | %s … -",
            folder, folder, command_name("infer"));
  return file;
}

static bool add_folder(Sources *s, const char *folder, Err *err) {
  int n;
  char **file = images_of(folder, &n, err);
  for (int i = 0; file && i < n; i++) add(s, file[i]);
  free(file);
  return file;
}

static bool add_list(Sources *s, int list, Err *err) {
  if (s->list >= 0) return err_set(err, "- is given twice, but there is only one standard input");
  s->list = list;
  add(s, NULL);
  return true;
}

static bool add_name(Sources *s, const char *name, int list, Err *err) {
  if (!strcmp(name, "-")) return add_list(s, list, err);
  if (path_is_dir(name)) return add_folder(s, name, err);
  add(s, xstrdup(name));
  return true;
}

Sources *sources_open(const char *const *names, int n, int list, Err *err) {
  Sources *s = xcalloc(1, sizeof *s);
  s->list = -1;
  for (int i = 0; i < n; i++)
    if (!add_name(s, names[i], list, err)) {
      sources_close(s);
      return NULL;
    }
  s->named = xmalloc((size_t)s->files * sizeof *s->named);
  for (int i = 0; i < s->files; i++)
    if (s->file[i]) s->named[s->num_named++] = s->file[i];
  return s;
}

const char *const *sources_files(const Sources *s, int *n) {
  *n = s->num_named;
  return s->named;
}

bool sources_has_list(const Sources *s) { return s->list >= 0; }

void sources_close(Sources *s) {
  for (int i = 0; i < s->files; i++) free(s->file[i]);
  free(s->file);
  free(s->named);
  free(s->line);
  while (s->listed.next < s->listed.n) free(s->listed.file[s->listed.next++]);
  free(s->listed.file);
  free(s);
}

// ---- the list ---------------------------------------------------------------------------------------------------

// The first complete name in the buffer, or what is left if the list has ended; NULL: there is none.
static char *take_line(Sources *s) {
  const char *end = s->used ? memchr(s->line, s->end, s->used) : NULL;
  if (!end && (!s->ended || !s->used)) return NULL;
  size_t length = end ? (size_t)(end - s->line) : s->used;
  const size_t taken = MIN(length + 1, s->used);
  if (s->end == '\n' && length && s->line[length - 1] == '\r') length--; // a list written on Windows
  char *line = xmalloc(length + 1);
  memcpy(line, s->line, length);
  line[length] = '\0';
  memmove(s->line, s->line + taken, s->used - taken);
  s->used -= taken;
  return line;
}

// Checks the text that was read last. File names contain no NUL: if the list's first name ends in one, all do, and
// names may contain newlines.
static bool check_piece(Sources *s, const char *piece, size_t n, Err *err) {
  const bool nul = n && memchr(piece, '\0', n);
  if (!s->begun) s->end = nul ? '\0' : '\n';
  s->begun = true;
  return !nul || s->end == '\0' ||
         err_set(err, "the list on standard input mixes NUL and newline: end all names with newlines, or all with NUL "
                      "as find -print0 does");
}

// Reads more of the list, waiting at most `wait` seconds.
static SourceState read_list(Sources *s, double wait, Err *err) {
  enum { PIECE = 4096 };
  struct pollfd ready = {.fd = s->list, .events = POLLIN};
  const int events = poll(&ready, 1, (int)(1e3 * wait));
  if (events == 0 || (events < 0 && errno == EINTR)) return SOURCE_WAITS;
  array_reserve((void **)&s->line, &s->room, s->used + PIECE, 1);
  const ssize_t got = read(s->list, s->line + s->used, PIECE);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return SOURCE_WAITS;
  if (got < 0) {
    err_set(err, "cannot read the list on standard input: %s", strerror(errno));
    return SOURCE_FAILS;
  }
  if (!check_piece(s, s->line + s->used, (size_t)got, err)) return SOURCE_FAILS;
  s->used += (size_t)got;
  s->ended = got == 0;
  return SOURCE_IMAGE;
}

static char *take_listed(Sources *s) { return s->listed.next < s->listed.n ? s->listed.file[s->listed.next++] : NULL; }

// The first image of the folder that a line names; the others follow. A folder without images is returned by its own
// name, so that only that line fails, like a bad image.
static char *open_listed(Sources *s, char *folder) {
  free(s->listed.file);
  s->listed = (Folder){0};
  s->listed.file = images_of(folder, &s->listed.n, NULL);
  if (!s->listed.file) {
    s->listed.n = 0;
    return folder;
  }
  free(folder);
  return take_listed(s);
}

static SourceState next_line(Sources *s, double wait, char **path, Err *err) {
  for (;;) {
    if ((*path = take_listed(s))) return SOURCE_IMAGE;
    while ((*path = take_line(s))) {
      if (**path && path_is_dir(*path)) *path = open_listed(s, *path);
      if (**path) return SOURCE_IMAGE;
      free(*path); // an empty line
    }
    if (s->ended) return SOURCE_ENDS;
    const SourceState state = read_list(s, wait, err);
    if (state != SOURCE_IMAGE) return state;
  }
}

SourceState sources_next(Sources *s, double wait, char **path, Err *err) {
  while (s->next < s->files) {
    const char *file = s->file[s->next];
    if (file) {
      s->next++;
      *path = xstrdup(file);
      return SOURCE_IMAGE;
    }
    const SourceState state = next_line(s, wait, path, err);
    if (state != SOURCE_ENDS) return state;
    s->next++;
  }
  return SOURCE_ENDS;
}
