// The log of a run.
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double TERMINAL_SECONDS = 0.1, PLAIN_SECONDS = 10, MEAN_SECONDS = 10;

// Length of the part of the log to keep: whole lines up to the first record of a later step. *evaluated: the last step
// there with an "eval" record. -1 when it could not be read to its end: what is cut off must be known to be later.
static off_t kept_length(FILE *f, int64_t resume, int64_t *evaluated) {
  char *line = NULL;
  size_t cap = 0;
  ssize_t n;
  off_t kept = 0;
  bool later = false;
  while ((n = getline(&line, &cap, f)) > 0 && line[n - 1] == '\n') {
    int64_t step;
    char kind[8] = "";
    int found = sscanf(line, "{\"step\":%" SCNd64 ",\"kind\":\"%7[a-z]\"", &step, kind);
    later = found >= 1 && step > resume;
    if (later) break;
    if (strcmp(kind, "eval") == 0) *evaluated = step;
    kept += n;
  }
  free(line);
  return later || feof(f) ? kept : -1;
}

bool log_open(Log *log, const char *dir, int64_t resume, Err *err) {
  *log = (Log){.people = stderr, .terminal = isatty(STDERR_FILENO), .opened = now_seconds(), .evaluated = -1};
  if (!dir) return true;
  if (!dirs_make(dir, err)) return false;
  char *path = xasprintf("%s/log.jsonl", dir);
  FILE *f = fopen(path, "a+"); // appends wherever the reading below leaves the position
  off_t kept = f && resume >= 0 ? kept_length(f, resume, &log->evaluated) : 0;
  bool ok = f && kept >= 0 && !ferror(f) && ftruncate(fileno(f), kept) == 0 && fseeko(f, 0, SEEK_END) == 0;
  if (ok)
    log->records = f;
  else
    err_set(err, "cannot write %s: %s", path, strerror(errno));
  if (!ok && f) fclose(f);
  free(path);
  return ok;
}

static void end_line(Log *log) {
  if (log->line_open) fputc('\n', log->people);
  log->line_open = false;
}

static void write_held(Log *log) {
  if (log->held_bytes > 0) fwrite(log->held, 1, log->held_bytes, log->records);
  log->held_bytes = 0;
}

static bool report_written(bool written, Err *err) {
  return written || err_set(err, "log.jsonl: could not be written to its end; is the disk full?");
}

bool log_sync(Log *log, Err *err) {
  FILE *f = log->records;
  return report_written(!f || (!ferror(f) && fflush(f) == 0 && fsync(fileno(f)) == 0), err);
}

bool log_close(Log *log, Err *err) {
  end_line(log);
  record_free(&log->record);
  bool written = true;
  if (log->records) {
    write_held(log);
    written = !ferror(log->records);
    written = fclose(log->records) == 0 && written;
    log->records = NULL;
  }
  free(log->held);
  log->held = NULL;
  return report_written(written, err);
}

// ---- people ---------------------------------------------------------------------------------------------------------

// Running means whose memory fades within MEAN_SECONDS, however irregularly the reports come.
static void update_speeds(Log *log, const Progress *p, double now) {
  double seconds = now - log->last_seen;
  if (log->last_seen > 0 && seconds > 0) {
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
  fprintf(log->people, "step %" PRId64 "/%" PRId64 "  loss %.4f  lr %.3g", p->step, p->steps, p->loss,
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
  vfprintf(log->people, fmt, args);
  va_end(args);
  fputc('\n', log->people);
  fflush(log->people);
}

// ---- machines -------------------------------------------------------------------------------------------------------

Record *log_begin(Log *log, int64_t step, const char *kind) {
  record_begin(&log->record);
  record_int(&log->record, "step", step); // first: log_open looks for it there
  record_str(&log->record, "kind", kind);
  return &log->record;
}

static void hold_line(Log *log, const char *line) {
  size_t bytes = strlen(line);
  array_reserve((void **)&log->held, &log->held_cap, log->held_bytes + bytes + 1, 1);
  memcpy(log->held + log->held_bytes, line, bytes);
  log->held[log->held_bytes + bytes] = '\n';
  log->held_bytes += bytes + 1;
}

void log_commit(Log *log) {
  const char *line = record_end(&log->record);
  if (!log->records) return;
  if (log->holding) {
    hold_line(log, line);
    return;
  }
  fprintf(log->records, "%s\n", line);
  write_held(log);
  fflush(log->records); // a killed run loses nothing, and `tail -f` sees it
}

void log_hold(Log *log) { log->holding = true; }

void log_release(Log *log) { log->holding = false; }
