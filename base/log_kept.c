#include "base/log_kept.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/durable.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mapped.h"
#include "base/output.h"
#include "base/regular.h"

typedef enum LineType { LINE_KEPT, LINE_LATER, LINE_BROKEN } LineType;

// Lines of one type that follow each other: a long log has few of these, so that no memory grows with it.
typedef struct LineRun {
  const char *text;
  size_t bytes, lines;
  LineType type;
} LineRun;

typedef struct LogLines {
  LineRun *run;
  size_t n, cap, kept; // kept: the runs up to the last one that is kept
} LogLines;

// {"step":STEP,"kind":KIND, …}
static LineType type_of(const char *path, const char *text, size_t bytes, int64_t resume, int64_t *evaluated) {
  Json j;
  int64_t step = -1;
  bool is_eval = false;
  json_open(&j, path, text, bytes);
  const char *key = json_begin_object(&j) ? json_key(&j) : NULL;
  const bool begins = key && !strcmp(key, "step");
  if (begins) step = json_int(&j);
  while (key && (key = json_key(&j))) // nothing may be asked for behind the end of an object
    if (!strcmp(key, "kind") && json_peek(&j) == JSON_STRING)
      is_eval = !strcmp(json_string(&j, NULL), "eval");
    else
      json_skip(&j);
  const bool whole = json_done(&j) && begins;
  json_close(&j);
  if (!whole) return LINE_BROKEN;
  if (step > resume) return LINE_LATER;
  if (is_eval) *evaluated = step;
  return LINE_KEPT;
}

static void split(LogLines *l, const char *path, const char *text, size_t size, int64_t resume, int64_t *evaluated) {
  for (const char *at = text, *end; (end = memchr(at, '\n', (size_t)(text + size - at))); at = end + 1) {
    const LineType type = type_of(path, at, (size_t)(end - at), resume, evaluated);
    if (!l->n || l->run[l->n - 1].type != type) {
      array_reserve((void **)&l->run, &l->cap, l->n + 1, sizeof *l->run);
      l->run[l->n++] = (LineRun){.text = at, .type = type};
    }
    l->run[l->n - 1].bytes += (size_t)(end + 1 - at);
    l->run[l->n - 1].lines++;
    if (type == LINE_KEPT) l->kept = l->n;
  }
}

// Of lines that are not kept: what is not merely of later steps at the end.
static bool is_set_aside(const LogLines *l, size_t i) {
  return l->run[i].type == LINE_BROKEN || (l->run[i].type == LINE_LATER && i < l->kept);
}

// Cuts off what stands behind the first `left` bytes.
static bool cut(const char *path, size_t left, bool *supported, Err *err) {
  const int file = regular_open(path, O_WRONLY, NULL);
  const bool ok = file >= 0 && ftruncate(file, (off_t)left) == 0;
  const int reason = errno;
  if (file >= 0) close(file);
  *supported = ok || !durable_unsupported(FS_TRUNCATE, reason);
  return ok || err_set(err, "cannot write %s: %s", path, strerror(reason));
}

static bool write_kept(const LogLines *l, const char *path, Err *err) {
  AtomicFile f;
  if (!file_begin(&f, path, err)) return false;
  for (size_t i = 0; i < l->n; i++)
    if (l->run[i].type == LINE_KEPT) fwrite(l->run[i].text, 1, l->run[i].bytes, f.f);
  return file_commit(&f, err);
}

// Behind what was set aside before.
static bool set_aside(const LogLines *l, const char *path, Err *err) {
  AtomicFile f;
  size_t size = 0;
  char *before = path_is_file(path) ? file_read_own(path, &size, err) : NULL;
  bool ok = (before || !path_is_file(path)) && file_begin(&f, path, err);
  if (ok) {
    if (before) fwrite(before, 1, size, f.f);
    for (size_t i = 0; i < l->n; i++)
      if (is_set_aside(l, i)) fwrite(l->run[i].text, 1, l->run[i].bytes, f.f);
    ok = file_commit(&f, err);
  }
  free(before);
  return ok;
}

static char *beside(const char *path) {
  const char *slash = strrchr(path, '/');
  return xasprintf("%.*s%s", (int)(slash ? slash + 1 - path : 0), path, "log-set-aside.jsonl");
}

// Mapped, not read: the log of a long run would fill memory that the run does not need.
static void *map_log(const char *path, size_t size, Err *err) {
  const int file = regular_open(path, O_RDONLY, NULL);
  void *text = file >= 0 ? mapped_open(file, size, path) : NULL;
  if (!text) err_set(err, "cannot read %s: %s", path, strerror(errno));
  if (file >= 0) close(file);
  return text;
}

bool log_keep(const char *path, int64_t resume, int64_t *evaluated, Err *err) {
  LogLines l = {0};
  size_t left = 0, aside = 0;
  *evaluated = -1;
  const int64_t length = file_length(path);
  if (length <= 0) return true;
  const size_t size = (size_t)length;
  char *text = map_log(path, size, err);
  if (!text) return false;
  if (resume >= 0) split(&l, path, text, size, resume, evaluated);
  for (size_t i = 0; i < l.n; i++) {
    if (l.run[i].type == LINE_KEPT) left += l.run[i].bytes;
    if (is_set_aside(&l, i)) aside += l.run[i].lines;
  }
  char *other = beside(path);
  const bool moved = !aside || set_aside(&l, other, err);
  bool ok = moved;
  bool supported = !aside; // what is kept is the beginning
  if (ok && left != size && supported) ok = cut(path, left, &supported, err);
  if (moved && left != size && !supported) ok = write_kept(&l, path, err);
  if (ok && aside)
    line_print(stderr, "note: %s: %zu line%s damaged or had a step beyond the checkpoint; moved to %s", path, aside,
               aside == 1 ? " was" : "s were", other);
  free(other);
  free(l.run);
  mapped_close(text, size);
  return ok;
}
