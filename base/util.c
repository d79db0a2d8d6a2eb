// Small things everyone needs: errors as one line, memory that cannot fail, time, paths.
#define _GNU_SOURCE // fopencookie
#include "base/util.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/guest.h"
#include "base/lock.h"

extern char *__progname; // the C library's record of argv[0]; glibc, musl, the BSDs and macOS all have it

char *text_clean(char *text) {
  for (char *p = text; *p; p++)
    if (iscntrl((unsigned char)*p) && *p != '\t') *p = '?';
  return text;
}

bool err_set(Err *err, const char *fmt, ...) {
  if (!err) return false;
  va_list args;
  va_start(args, fmt);
  vsnprintf(err->msg, sizeof err->msg, fmt, args);
  va_end(args);
  text_clean(err->msg);
  return false;
}

static const char no_memory[] = "out of memory: ";

int err_exit(const Err *err) { return strstr(err->msg, no_memory) ? EXIT_RUN : EXIT_USAGE; }

static char context[512];
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;

void die_context(const char *fmt, ...) {
  char text[sizeof context] = "";
  if (fmt) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
  }
  text_clean(text);
  pthread_mutex_lock(&context_lock);
  memcpy(context, text, sizeof context);
  pthread_mutex_unlock(&context_lock);
}

void die_about(char *text, size_t room) {
  pthread_mutex_lock(&context_lock);
  snprintf(text, room, "%s", context);
  pthread_mutex_unlock(&context_lock);
}

static void (*first)(void *);
static void *first_context;

void die_first(void (*settle)(void *context), void *its_context) {
  first = settle;
  first_context = its_context;
}

static DieTell *teller;
static void *teller_context;

void die_tells(DieTell *tell, void *its_context) {
  teller = tell;
  teller_context = its_context;
}

void die_print(const char *message) {
  char line[DIE_LINE + 64];
  snprintf(line, sizeof line, "%s: %s\n", __progname, message);
  fputs(line, stderr); // at once, so that lines of several processes stay whole
}

// Whether somebody else says the line. A teller that fails itself is not asked again.
static bool told(int *code, char *line) {
  static _Thread_local bool telling;
  if (!teller || telling) return false;
  telling = true;
  bool by_another = teller(teller_context, code, line, DIE_LINE);
  telling = false;
  return by_another;
}

static void format_line(char line[DIE_LINE], const char *about, const char *fmt, va_list args) {
  Err err;
  vsnprintf(err.msg, sizeof err.msg, fmt, args);
  snprintf(line, DIE_LINE, *about ? "%s (%s)" : "%s", text_clean(err.msg), about);
}

static NORETURN void end(int code, const char *about, const char *fmt, va_list args) {
  char line[DIE_LINE];
  if (guest_here()) {
    format_line(line, about, fmt, args);
    guest_leave(line);
  }
  void (*settle)(void *) = first;
  first = NULL;
  if (settle && code == EXIT_RUN) settle(first_context);
  fflush(stdout); // so that what was reported before stands before the reason for stopping
  format_line(line, about, fmt, args);
  if (!told(&code, line)) die_print(line);
  exit(code);
}

void die(int code, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  end(code, "", fmt, args);
}

void die_unforeseen(const char *fmt, ...) {
  char about[sizeof context];
  die_about(about, sizeof about);
  va_list args;
  va_start(args, fmt);
  end(EXIT_RUN, about, fmt, args);
}

void check_failed(const char *expr, const char *file, int line) {
  int code = EXIT_RUN;
  char text[DIE_LINE];
  snprintf(text, sizeof text, "%s:%d: check failed: %s (a bug in this program, please report it)", file, line, expr);
  guest_leave(text);
  fflush(stdout);
  if (!told(&code, text)) die_print(text);
  if (teller) _exit(code); // all processes end with one status
  abort();
}

// ---- memory -----------------------------------------------------------------------------------------------------

static _Thread_local const char *purpose, *shrinking;

void memory_for(const char *what, const char *options) {
  purpose = what;
  shrinking = options;
}

// "out of memory: 12.0 MB asked for the annotations (data/formats/coco.c:12); a smaller --limit shrinks it"
static void memory_message(char *text, size_t room, size_t bytes, const char *what, const char *where,
                           const char *options) {
  char size[32];
  bool large = bytes >= 100000;
  snprintf(size, sizeof size, large ? "%.1f MB" : "%.0f bytes", (double)bytes / (large ? 1e6 : 1));
  snprintf(text, room, "%s%s asked for%s%s%s%s%s%s%s%s", no_memory, size, what ? " " : "", what ? what : "",
           where ? " (" : "", where ? where : "", where ? ")" : "", options ? "; a smaller " : "",
           options ? options : "", options ? " shrinks it" : "");
}

bool err_memory(Err *err, size_t bytes, const char *what, const char *options) {
  char text[512];
  memory_message(text, sizeof text, bytes, what, NULL, options);
  return err_set(err, "%s", text);
}

void die_of_memory(size_t bytes, const char *where) {
  char text[512];
  memory_message(text, sizeof text, bytes, purpose, where, shrinking);
  die_unforeseen("%s", text);
}

// malloc(0) may return NULL, which would read as a failure; one byte never does.
void *xmalloc_at(size_t bytes, const char *where) { return xrealloc_at(NULL, bytes, where); }

void *xcalloc_at(size_t count, size_t size, const char *where) {
  void *p = calloc(MAX(count, 1), MAX(size, 1));
  if (!p) die_of_memory(size && count > SIZE_MAX / size ? SIZE_MAX : count * size, where);
  return p;
}

void *xrealloc_at(void *p, size_t bytes, const char *where) {
  p = realloc(p, MAX(bytes, 1));
  if (!p) die_of_memory(bytes, where);
  return p;
}

char *xstrdup_at(const char *s, const char *where) {
  size_t bytes = strlen(s) + 1;
  return memcpy(xmalloc_at(bytes, where), s, bytes);
}

char *xasprintf_at(const char *where, const char *fmt, ...) {
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, fmt, args);
  va_end(args);
  CHECK(length >= 0);
  char *s = xmalloc_at((size_t)length + 1, where);
  vsnprintf(s, (size_t)length + 1, fmt, again);
  va_end(again);
  return s;
}

// open_memstream drops what it finds no memory for and says nothing (glibc 2.36): neither ferror nor fclose.
typedef struct TextStream {
  char *bytes;
  size_t used, cap, lacked; // lacked: how many were refused; nothing is added after that
  char **text;              // where they go when the stream is closed
  size_t *size;
} TextStream;

static ssize_t text_write(void *stream, const char *from, size_t bytes) {
  TextStream *t = stream;
  const size_t need = t->used + bytes + 1;
  if (need > t->cap && !t->lacked) {
    const size_t grown = MAX(need, 2 * t->cap);
    char *larger = realloc(t->bytes, grown);
    if (larger) {
      t->bytes = larger;
      t->cap = grown;
    } else
      t->lacked = grown;
  }
  if (t->lacked) return 0;
  memcpy(t->bytes + t->used, from, bytes);
  t->used += bytes;
  t->bytes[t->used] = '\0';
  return (ssize_t)bytes;
}

static _Thread_local size_t text_lacked; // by the stream that this thread has closed last

static int text_end(void *stream) {
  TextStream *t = stream;
  *t->text = t->bytes;
  *t->size = t->used;
  text_lacked = t->lacked;
  free(t);
  return 0;
}

FILE *text_open_at(char **text, size_t *size, const char *where) {
  TextStream *t = xmalloc_at(sizeof *t, where);
  *t = (TextStream){xcalloc_at(1, 1, where), 0, 1, 0, text, size};
  FILE *f = fopencookie(t, "w", (cookie_io_functions_t){.write = text_write, .close = text_end});
  if (!f) die_of_memory(BUFSIZ, where);
  return f;
}

void text_close_at(FILE *f, const char *where) {
  fclose(f);
  if (text_lacked) die_of_memory(text_lacked, where);
}

void array_reserve_at(void **items, size_t *cap, size_t need, size_t size, const char *where) {
  if (need <= *cap) return;
  size_t grown = MAX(need, MAX(2 * *cap, 16));
  if (grown > SIZE_MAX / size) die_of_memory(SIZE_MAX, where);
  *items = xrealloc_at(*items, grown * size, where);
  *cap = grown;
}

double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *file_read(const char *path, size_t *size, Err *err) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    err_set(err, "cannot open %s: %s", path, strerror(errno));
    return NULL;
  }
  // The size is a hint only: a pipe says 0. Two bytes more let one read find both the end and room for the NUL.
  struct stat st;
  size_t hint = fstat(fileno(f), &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
  char *text = NULL;
  size_t cap = 0, used = 0, got;
  array_reserve((void **)&text, &cap, hint + 2, 1);
  while ((got = fread(text + used, 1, cap - used - 1, f)) > 0) {
    used += got;
    array_reserve((void **)&text, &cap, used + 2, 1);
  }
  if (ferror(f)) {
    err_set(err, "cannot read %s: %s", path, strerror(errno));
    free(text);
    text = NULL;
  } else {
    text[used] = '\0';
    *size = used;
  }
  fclose(f);
  return text;
}

bool path_is_dir(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool path_is_file(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// A name is durable only once the folder that holds it is on disk.
static bool sync_folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = slash ? xasprintf("%.*s", (int)MAX(slash - path, 1), path) : xstrdup(".");
  int fd = open(folder, O_RDONLY);
  free(folder);
  if (fd < 0) return false;
  // EINVAL: a file system that cannot sync folders, where nothing better can be had.
  bool ok = fsync(fd) == 0 || errno == EINVAL;
  int reason = errno;
  close(fd);
  errno = reason;
  return ok;
}

bool dirs_make(const char *path, Err *err) {
  if (!*path) return err_set(err, "the folder has no name: a variable of the shell that is not set?");
  char *partial = xstrdup(path);
  bool ok = true;
  for (char *end = partial; ok && *end;) {
    end += strspn(end, "/");
    end += strcspn(end, "/");
    char separator = *end;
    *end = '\0';
    if (mkdir(partial, 0777) == 0) {
      sync_folder_of(partial); // where that is not possible, the folder is there all the same
    } else {
      int reason = errno; // EEXIST is fine for a folder, so is EROFS or EACCES on one that stands already
      if (reason == EEXIST && !path_is_dir(partial))
        ok = err_set(err, "cannot create folder %s: there is a file of that name; give another one", partial);
      else if (!path_is_dir(partial))
        ok = err_set(err, "cannot create folder %s: %s", partial, strerror(reason));
    }
    *end = separator;
  }
  free(partial);
  return ok;
}

static const char temporary[] = ".tmp";

// What an AtomicFile at `path` replaces: a link stays one, its target is replaced. malloc'ed.
static char *target_of(const char *path) {
  char *real = realpath(path, NULL);
  if (!real && errno == ENOMEM) die_of_memory(strlen(path) + 1, HERE); // or a link would be replaced
  return real ? real : xstrdup(path);
}

// Beside its target: rename is atomic within a file system.
static char *temporary_of(const char *target, const char *ending) { return xasprintf("%s%s", target, ending); }

// Empty, and nobody else's. On a file system without locks others are trusted to keep away.
static FILE *open_temporary(const char *path) {
  int file = file_lock(path, false);
  if (file < 0 && errno != EWOULDBLOCK) file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file < 0) return NULL;
  FILE *f = ftruncate(file, 0) == 0 ? fdopen(file, "wb") : NULL;
  if (!f) close(file);
  return f;
}

bool file_begin_as(AtomicFile *a, const char *path, const char *ending, Err *err) {
  struct stat st;
  bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode); // a pipe or /dev/stdout: renaming would replace it
  *a = (AtomicFile){.path = special ? xstrdup(path) : target_of(path), .found = ending != temporary};
  if (!special) a->tmp = temporary_of(a->path, ending);
  a->f = special ? fopen(a->path, "wb") : open_temporary(a->tmp);
  if (a->f) return true;
  int reason = errno;
  err_set(err, "cannot write %s: %s", path,
          reason == EWOULDBLOCK ? "another program is writing it; wait until it ends, or give another name"
                                : strerror(reason));
  free(a->tmp);
  free(a->path);
  *a = (AtomicFile){0};
  errno = reason;
  return false;
}

bool file_begin(AtomicFile *a, const char *path, Err *err) { return file_begin_as(a, path, temporary, err); }

// Some file systems have no hard links, each has a limit of them, and none of them leads into another file system.
static bool has_no_links(int reason) {
  return reason == EPERM || reason == EOPNOTSUPP || reason == ENOSYS || reason == EMLINK || reason == EXDEV;
}

// As far as the reason in errno.
static bool copy_bytes(const char *path, const char *name) {
  static const size_t CHUNK = 1 << 20;
  char *bytes = malloc(CHUNK);
  FILE *from = fopen(path, "rb"), *to = fopen(name, "wb");
  bool ok = bytes && from && to;
  for (size_t n; ok && (n = fread(bytes, 1, CHUNK, from)) > 0;) ok = fwrite(bytes, 1, n, to) == n;
  ok = ok && !ferror(from) && fflush(to) == 0 && fsync(fileno(to)) == 0;
  int reason = errno;
  if (from) fclose(from);
  if (to) fclose(to);
  free(bytes);
  errno = reason;
  return ok;
}

bool file_link(const char *path, const char *name, Err *err) {
  char *tmp = temporary_of(name, temporary);
  unlink(tmp);
  // A symbolic link is no file of its own: its target is what gets the name, and keeps it.
  bool named =
      linkat(AT_FDCWD, path, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW) == 0 || (has_no_links(errno) && copy_bytes(path, tmp));
  bool ok = named && rename(tmp, name) == 0 && sync_folder_of(name);
  int reason = errno;
  unlink(tmp); // where both were names of one file already, rename has done nothing
  free(tmp);
  if (!ok) err_set(err, "cannot name %s %s: %s", path, name, strerror(reason));
  errno = reason;
  return ok;
}

static bool keep_previous(const AtomicFile *a) {
  return !a->previous || file_link(a->path, a->previous, NULL) || errno == ENOENT; // there may be nothing to keep
}

bool file_commit(AtomicFile *a, Err *err) {
  bool ok = !ferror(a->f) && fflush(a->f) == 0 &&
            (!a->tmp || (fsync(fileno(a->f)) == 0 && keep_previous(a) && rename(a->tmp, a->path) == 0));
  int reason = errno;
  if (ok && a->tmp) { // renamed while nobody else had it; what stands there from here on may be another program's
    free(a->tmp);
    a->tmp = NULL;
    ok = sync_folder_of(a->path);
    reason = errno;
  }
  if (fclose(a->f) != 0 && ok) {
    ok = false;
    reason = errno;
  }
  a->f = NULL;
  if (!ok) err_set(err, "cannot write %s: %s", a->path, strerror(reason));
  (a->found ? file_keep : file_abort)(a);
  errno = reason;
  return ok;
}

void file_abort(AtomicFile *a) {
  if (a->tmp) unlink(a->tmp);
  file_keep(a);
}

void file_keep(AtomicFile *a) {
  if (a->f) fclose(a->f);
  free(a->tmp);
  free(a->path);
  *a = (AtomicFile){0};
}

void file_clean(const char *path) {
  char *target = target_of(path), *tmp = temporary_of(target, temporary);
  unlink(tmp);
  free(tmp);
  free(target);
}

int compare_int(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}
