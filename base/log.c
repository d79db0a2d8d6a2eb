// The log of a run.
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log_kept.h"
#include "base/output.h"
#include "base/regular.h"

static const double TERMINAL_SECONDS = 0.1, PLAIN_SECONDS = 10, MEAN_SECONDS = 10, SHORTEST_SECONDS = 0.1;

static bool copy_to(FILE *f, int file, int64_t bytes) {
  char part[1 << 16];
  for (int64_t at = 0; at < bytes;) {
    const ssize_t n = pread(file, part, (size_t)MIN(bytes - at, (int64_t)sizeof part), at);
    if (n <= 0 || fwrite(part, 1, (size_t)n, f) != (size_t)n) return false;
    at += n;
  }
  return true;
}

// Further names of the log, such as those of a backup by hard links, keep what they have.
static bool leave_other_names(const char *path, Err *err) {
  struct stat st;
  if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_nlink == 1) return true;
  AtomicFile f;
  const int file = regular_open(path, O_RDONLY | O_NOFOLLOW, err);
  bool ok = file >= 0 && file_begin(&f, path, err);
  if (ok && !copy_to(f.f, file, st.st_size)) {
    ok = err_set(err, "cannot copy %s: %s", path, strerror(errno));
    file_abort(&f);
  }
  ok = ok && file_commit(&f, err);
  if (file >= 0) close(file);
  return ok;
}

bool log_open(Log *log, const char *dir, int64_t resume, Err *err) {
  *log = (Log){.people = stderr,
               .terminal = isatty(STDERR_FILENO),
               .opened = now_seconds(),
               .session = MAX(resume, 0),
               .evaluated = -1,
               .file = -1};
  if (!dir) return true;
  if (!dirs_make(dir, err)) return false;
  log->path = xasprintf("%s/log.jsonl", dir);
  if (!leave_other_names(log->path, err) || !log_keep(log->path, resume, &log->evaluated, err)) return false;
  log->file = regular_open(log->path, O_RDWR | O_CREAT, err);
  if (log->file < 0) return false;
  struct stat st;
  if (fstat(log->file, &st) != 0) return err_set(err, "cannot write %s: %s", log->path, strerror(errno));
  log->length = st.st_size;
  return true;
}

static bool folder_stands(const char *path) {
  char *folder = xasprintf("%.*s", (int)(strrchr(path, '/') - path), path);
  const bool stands = path_is_dir(folder);
  free(folder);
  return stands;
}

static void end_line(Log *log) {
  if (log->line_open) fputc('\n', log->people);
  log->line_open = false;
}

static void lines_add(Lines *to, const char *text, size_t bytes) {
  array_reserve((void **)&to->text, &to->cap, to->bytes + bytes, 1);
  memcpy(to->text + to->bytes, text, bytes);
  to->bytes += bytes;
}

static void lines_move(Lines *to, Lines *from) {
  if (from->bytes > 0) lines_add(to, from->text, from->bytes);
  from->bytes = 0;
}

// Another program (an editor, logrotate) has put another file in the log's place, or has moved the log away: the log is
// written there again, and the other file is kept under another name.
static bool restore(Log *log) {
  Err err;
  char *other = NULL;
  if (path_is_file(log->path) && !(other = file_set_aside(log->path))) return false;
  AtomicFile f;
  bool ok = file_begin(&f, log->path, &err) && copy_to(f.f, log->file, log->length);
  const int now = ok ? dup(fileno(f.f)) : -1;
  ok = ok && file_commit(&f, &err) && dup2(now, log->file) >= 0;
  const int reason = errno;
  if (f.f) file_abort(&f);
  if (now >= 0) close(now);
  if (ok && other)
    log_note(log, "%s was replaced by another program; the other file was moved to %s", log->path, other);
  if (ok && !other) log_note(log, "%s was moved or removed by another program; it was restored", log->path);
  free(other);
  errno = reason;
  return ok;
}

// Another program has cut the log short, or has added to it: what is there stays.
static bool go_on_behind(Log *log, int64_t size) {
  char last = '\n';
  if (size > 0 && pread(log->file, &last, 1, size - 1) != 1) return false;
  log_note(log, "%s was %s by another program; continuing after its last line", log->path,
           size < log->length ? "cut short" : "added to");
  log->length = size;
  if (last != '\n' && pwrite(log->file, "\n", 1, log->length) == 1) log->length++;
  return true;
}

// What other programs do to the log is noticed, and no record that was written is lost by it. If the whole folder was
// moved, the log went with it, and is still written.
static bool is_ours(Log *log) {
  struct stat ours, there;
  if (!log->path || fstat(log->file, &ours) != 0) return true;
  const bool stands = stat(log->path, &there) == 0;
  if (stands ? there.st_ino != ours.st_ino || there.st_dev != ours.st_dev : errno == ENOENT && folder_stands(log->path))
    return restore(log);
  return ours.st_size == log->length || log->is_torn || go_on_behind(log, ours.st_size);
}

// All or nothing: what a write that failed has left is cut off, and the next try begins at the same place.
static bool write_lines(Log *log) {
  const Lines *lines = &log->unwritten;
  if (lines->bytes && !is_ours(log)) return false;
  for (size_t done = 0; done < lines->bytes;) {
    ssize_t n = pwrite(log->file, lines->text + done, lines->bytes - done, log->length + (off_t)done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      int reason = n < 0 ? errno : ENOSPC;
      log->is_torn = ftruncate(log->file, log->length) != 0; // the next try writes over it
      errno = reason;
      return false;
    }
    done += (size_t)n;
  }
  log->length += (int64_t)lines->bytes;
  if (log->is_torn) log->is_torn = ftruncate(log->file, log->length) != 0;
  log->unwritten.bytes = 0;
  return true;
}

bool log_written(Log *log, Err *err) {
  if (log->file < 0 || write_lines(log)) return true;
  int reason = errno;
  err_set(err, "log.jsonl: could not be written completely: %s", strerror(reason));
  errno = reason;
  return false;
}

bool log_close(Log *log, Err *err) {
  end_line(log);
  record_free(&log->record);
  bool ok = true;
  if (log->file >= 0) {
    lines_move(&log->unwritten, &log->held);
    ok = log_written(log, err);
    if (close(log->file) != 0 && ok) ok = err_set(err, "log.jsonl: %s", strerror(errno));
    log->file = -1;
  }
  free(log->path);
  log->path = NULL;
  free(log->held.text);
  free(log->unwritten.text);
  log->held = log->unwritten = (Lines){0};
  return ok;
}

// ---- people ---------------------------------------------------------------------------------------------------------

// Running means whose memory fades within MEAN_SECONDS, however irregularly the reports come: results of several steps
// may come at once, and say nothing of how fast they were.
static void update_speeds(Log *log, const Progress *p, double now) {
  double seconds = now - log->last_seen;
  if (log->last_seen > 0 && seconds < SHORTEST_SECONDS) return;
  if (log->last_seen > 0) {
    bool first = log->steps_per_second == 0;
    double weight = first ? 1 : 1 - exp(-seconds / MEAN_SECONDS);
    log->images_per_second += weight * ((double)(p->images - log->images) / seconds - log->images_per_second);
    log->steps_per_second += weight * ((double)(p->step - log->step) / seconds - log->steps_per_second);
  }
  log->last_seen = now;
  log->images = p->images;
  log->step = p->step;
}

static void print_progress(const Log *log, const Progress *p) {
  const int digits = fabs(p->loss) < 1e4 ? 4 : 0; // a run that diverges keeps its line
  fprintf(log->people, "step %" PRId64 "/%" PRId64 "  loss %.*f  lr %.3g", p->step, p->steps, digits, p->loss,
          p->learning_rate);
  if (log->steps_per_second <= 0) return; // the first report: nothing to measure yet
  long left = lround((double)(p->steps - p->step) / log->steps_per_second);
  fprintf(log->people, "  %.1f img/s  ETA %ld:%02ld:%02ld", log->images_per_second, left / 3600, left / 60 % 60,
          left % 60);
}

void log_progress(Log *log, const Progress *p) {
  double now = now_seconds();
  update_speeds(log, p, now);
  double pause = log->terminal ? TERMINAL_SECONDS : PLAIN_SECONDS;
  if (log->last_shown > 0 && now - log->last_shown < pause && p->step < p->steps) return;
  log->last_shown = now;
  if (log->terminal) fputs("\r\033[K", log->people); // back to the left, erase the line
  print_progress(log, p);
  if (!log->terminal) fputc('\n', log->people);
  log->line_open = log->terminal;
  fflush(log->people);
}

void log_note(Log *log, const char *fmt, ...) {
  if (log->line_open) fputs("\r\033[K", log->people);
  log->line_open = false;
  va_list args;
  va_start(args, fmt);
  text_vprint(log->people, fmt, args);
  va_end(args);
  fputc('\n', log->people);
  fflush(log->people);
}

// ---- machines -------------------------------------------------------------------------------------------------------

Record *log_begin(Log *log, int64_t step, const char *type) {
  record_begin(&log->record);
  record_int(&log->record, "step", step); // first: log_open looks for it there
  record_str(&log->record, "kind", type);
  return &log->record;
}

void log_commit(Log *log) {
  const char *line = record_end(&log->record);
  if (log->file < 0) return;
  const bool waiting = log->unwritten.bytes > 0;
  Lines *to = log->holding ? &log->held : &log->unwritten;
  lines_add(to, line, strlen(line));
  lines_add(to, "\n", 1);
  if (log->holding) return;
  lines_move(&log->unwritten, &log->held);
  Err err; // a killed run loses nothing, and `tail -f` sees it
  if (!log_written(log, &err) && !waiting) log_note(log, "%s; retrying", err.msg);
}

void log_hold(Log *log) {
  enum { LINES = 1 << 20 }; // bytes, of some thousand steps
  array_reserve((void **)&log->held.text, &log->held.cap, LINES, 1);
  log->holding = true;
}

void log_release(Log *log) { log->holding = false; }
