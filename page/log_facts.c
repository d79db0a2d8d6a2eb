#include "page/log_facts.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/line_read.h"
#include "base/log_clock.h"
#include "base/regular.h"

// Points for several records each, and for one record each: at least RECENT of them, less than twice as many.
enum { POINTS = 1024, RECENT = 256, MOST_POINTS = POINTS + 3 * RECENT, EVALUATIONS = 2000, REMEMBERED = 64 };
enum { MOST_COLUMNS = 256 }; // a run has about thirty

typedef struct Column { // the values of one key; points are added as they come, those without the key are NaN
  char *key;
  double *mean, *least, *most;
  int *records; // per point: records that have the key
} Column;

typedef struct RecordText { // where a record stands in the log
  off_t at;
  size_t size;
} RecordText;

typedef struct Records {
  RecordText *item;
  int n;
  size_t cap;
} Records;

struct LogFacts {
  // What is read: bytes of which file, and the last of them, by which another one is known.
  off_t size;
  dev_t device;
  ino_t file;
  char last[REMEMBERED];
  int64_t records, thinned, unread;
  bool cut;
  double x[MOST_POINTS];
  int64_t held[MOST_POINTS]; // per point: its records
  int points, old, columns;  // old: points at the beginning that are for up to `thinned` records
  Column *column;
  size_t cap_columns;
  Records evaluations, amendments;
  RunClock clock;
};

// ---- reading --------------------------------------------------------------------------------------------------------

// NULL: there are too many.
static Column *column_of(LogFacts *l, const char *key, int likely) {
  if (likely < l->columns && !strcmp(l->column[likely].key, key)) return &l->column[likely];
  for (int i = 0; i < l->columns; i++)
    if (!strcmp(l->column[i].key, key)) return &l->column[i];
  if (l->columns == MOST_COLUMNS) return NULL;
  enum { N = MOST_POINTS };
  array_reserve((void **)&l->column, &l->cap_columns, (size_t)l->columns + 1, sizeof *l->column);
  Column *c = &l->column[l->columns++];
  *c = (Column){xstrdup(key), xcalloc(N, sizeof(double)), xcalloc(N, sizeof(double)), xcalloc(N, sizeof(double)),
                xcalloc(N, sizeof(int))};
  return c;
}

static void column_take(Column *c, int point, double value) {
  const bool first = c->records[point]++ == 0;
  c->mean[point] = first ? value : c->mean[point] + (value - c->mean[point]) / c->records[point];
  c->least[point] = first ? value : fmin(c->least[point], value);
  c->most[point] = first ? value : fmax(c->most[point], value);
}

// Adds point `from` of a column to the point `to` before it, which may be empty; `from` is empty then.
static void column_merge(Column *c, int to, int from) {
  const int n = c->records[to], m = c->records[from];
  if (m && from != to) {
    c->mean[to] = n ? c->mean[to] + (c->mean[from] - c->mean[to]) * m / (n + m) : c->mean[from];
    c->least[to] = n ? fmin(c->least[to], c->least[from]) : c->least[from];
    c->most[to] = n ? fmax(c->most[to], c->most[from]) : c->most[from];
    c->records[to] = n + m;
    c->records[from] = 0;
  }
}

static void points_merge(LogFacts *l, int to, int from) {
  if (from == to) return;
  l->x[to] = l->x[from];
  l->held[to] += l->held[from];
  l->held[from] = 0;
  for (int i = 0; i < l->columns; i++) column_merge(&l->column[i], to, from);
}

// Merges points in their order into points of up to `most` records, from point `first` to before `end`; returns where
// these end.
static int points_gather(LogFacts *l, int first, int end, int64_t most) {
  int to = first;
  for (int i = first; i < end; i++) {
    if (i > to && l->held[to] + l->held[i] > most) to++;
    points_merge(l, to, i);
  }
  return to + 1;
}

// The older half of the points for one record each joins those for several.
static void age(LogFacts *l) {
  const int n = l->old + RECENT;
  l->old = points_gather(l, MAX(l->old - 1, 0), n, l->thinned);
  while (l->old > POINTS) {
    l->thinned *= 2;
    l->old = points_gather(l, 0, l->old, l->thinned);
  }
  for (int i = n; i < l->points; i++) points_merge(l, l->old + i - n, i);
  l->points += l->old - n;
}

// The point of one more record.
static int point_add(LogFacts *l) {
  if (l->points - l->old == 2 * RECENT) age(l);
  l->held[l->points] = 1;
  return l->points++;
}

typedef enum RecordType { OF_STEP, OF_EVALUATION, OF_AMENDMENT, OF_NOTHING } RecordType;

static RecordType type_of(const char *text) {
  return !strcmp(text, "train")   ? OF_STEP
         : !strcmp(text, "eval")  ? OF_EVALUATION
         : !strcmp(text, "amend") ? OF_AMENDMENT
                                  : OF_NOTHING;
}

// First finds the record's type, then its numbers: a key may be anywhere.
static bool read_head(Json *j, ClockRecord *clock, RecordType *type) {
  const char *key;
  *type = OF_NOTHING;
  if (!json_begin_object(j)) return false;
  while ((key = json_key(j)))
    if (!strcmp(key, "kind") && json_peek(j) == JSON_STRING) {
      size_t n;
      *type = type_of(json_string(j, &n));
      clock->eval = *type == OF_EVALUATION;
    } else if (!clock_record_member(clock, j, key)) {
      json_skip(j);
    }
  return json_done(j);
}

// False if some are left out.
static bool read_numbers(Json *j, LogFacts *l, int point) {
  const char *key;
  bool all = true;
  if (json_begin_object(j))
    for (int i = 0; (key = json_key(j)); i++) {
      if (!strcmp(key, "step") || json_peek(j) != JSON_NUMBER) {
        json_skip(j);
        continue;
      }
      Column *c = column_of(l, key, i);
      const double value = json_number(j);
      if (c && !j->failed) column_take(c, point, value); // not for values such as 1e400
      all &= c != NULL;
    }
  return all;
}

static void records_add(Records *s, off_t at, size_t size) {
  array_reserve((void **)&s->item, &s->cap, (size_t)s->n + 1, sizeof *s->item);
  s->item[s->n++] = (RecordText){at, size};
}

static void take_step(LogFacts *l, Json *j, const ClockRecord *clock) {
  const int point = point_add(l);
  l->records++;
  column_take(column_of(l, "elapsed", 0), point, run_clock_now(&l->clock));
  l->unread += !read_numbers(j, l, point);
  l->x[point] = (double)clock->step;
}

// False for a last line that is incomplete.
static bool take_line(LogFacts *l, const char *path, const char *line, off_t at, size_t size, bool last) {
  Json j;
  ClockRecord clock = CLOCK_RECORD_NONE;
  RecordType type;
  json_open(&j, path, line, size);
  const bool ok = read_head(&j, &clock, &type);
  json_close(&j);
  if (!ok && last) return false;
  l->unread += !ok;
  if (!ok) return true;
  run_clock_take(&l->clock, &clock);
  if (type == OF_EVALUATION) records_add(&l->evaluations, at, size);
  if (type == OF_AMENDMENT) records_add(&l->amendments, at, size);
  if (type != OF_STEP) return true;
  json_open(&j, path, line, size);
  take_step(l, &j, &clock);
  json_close(&j);
  return true;
}

// Whether the file begins with what was read before. Takes no file that is new to it.
static bool goes_on(const LogFacts *l, FILE *log) {
  struct stat st;
  char last[REMEMBERED];
  const size_t n = (size_t)MIN(l->size, REMEMBERED);
  return fstat(fileno(log), &st) == 0 && st.st_dev == l->device && st.st_ino == l->file && st.st_size >= l->size &&
         fseeko(log, l->size - (off_t)n, SEEK_SET) == 0 && fread(last, 1, n, log) == n && !memcmp(last, l->last, n);
}

static void remember(LogFacts *l, FILE *log) {
  struct stat st = {0};
  const size_t n = (size_t)MIN(l->size, REMEMBERED);
  if (fstat(fileno(log), &st) != 0 || fseeko(log, l->size - (off_t)n, SEEK_SET) != 0) st.st_ino = 0;
  l->device = st.st_dev;
  l->file = st.st_ino;
  if (fread(l->last, 1, n, log) != n) l->file = 0;
}

// What was added, line by line: what is in memory at a time does not grow with the log. False with the reason in errno.
static bool read_log(LogFacts *l, const char *path, FILE *log) {
  char *line = NULL;
  size_t cap = 0;
  ssize_t n = 0;
  l->cut = false;
  if (fseeko(log, l->size, SEEK_SET) != 0) return false;
  while (!l->cut && (n = line_read(&line, &cap, log)) > 0) {
    const bool ended = line[n - 1] == '\n';
    l->cut = n > ended && !take_line(l, path, line, l->size, (size_t)n - ended, !ended);
    if (!l->cut) l->size += n;
  }
  free(line);
  const bool ok = (n >= 0 || feof(log)) && !ferror(log); // or there is no memory for a line
  const int reason = errno;
  clearerr(log);
  remember(l, log);
  errno = reason;
  return ok;
}

// ---- writing --------------------------------------------------------------------------------------------------------

static void write_values(FILE *f, const char *name, const Column *c, const double *value, int n, int digits) {
  fprintf(f, "\"%s\":[", name);
  for (int i = 0; i < n; i++)
    if (c->records[i] && isfinite(value[i]))
      fprintf(f, "%s%.*g", i ? "," : "", digits, value[i]);
    else
      fputs(i ? ",null" : "null", f);
  fputc(']', f);
}

// A log's key as a JSON string, without characters that a JSON string must not hold.
static void write_key(Document *d, const char *key) {
  fputc('"', d->f);
  for (; *key; key++)
    if ((unsigned char)*key >= ' ' && *key != '"' && *key != '\\') document_json(d, key, 1);
  fputs("\":", d->f);
}

static void write_records(Document *d, FILE *log, const char *name, const Records *s, int every) {
  fprintf(d->f, ",\n\"%s\":[", name);
  const char *comma = "\n";
  for (int i = 0; i < s->n; i++) {
    if ((s->n - 1 - i) % every) continue;
    char *text = xmalloc(s->item[i].size);
    if (fseeko(log, s->item[i].at, SEEK_SET) == 0 && fread(text, s->item[i].size, 1, log) == 1) {
      fputs(comma, d->f);
      document_json(d, text, s->item[i].size);
      comma = ",\n";
    }
    free(text);
  }
  fputc(']', d->f);
}

static void write_facts(Document *d, FILE *log, const LogFacts *l) {
  FILE *f = d->f;
  int several = l->thinned > 1 ? l->old : 0, every = 1; // points for several records
  while (l->evaluations.n / every > EVALUATIONS) every *= 2;
  fprintf(f, "{\"records\":%lld,\"thinned\":%lld,\"unread\":%lld,\"cut\":%s,\n\"x\":[", (long long)l->records,
          (long long)l->thinned, (long long)l->unread, l->cut ? "true" : "false");
  for (int i = 0; i < l->points; i++) fprintf(f, "%s%.0f", i ? "," : "", l->x[i]);
  fputs("],\n\"curves\":{", f);
  for (int i = 0; i < l->columns; i++) {
    const Column *c = &l->column[i];
    fputs(i ? ",\n" : "\n", f);
    write_key(d, c->key);
    fputc('{', f);
    write_values(f, "y", c, c->mean, l->points, 6);
    fputc(',', f);
    write_values(f, "lo", c, c->least, several, 4);
    fputc(',', f);
    write_values(f, "hi", c, c->most, several, 4);
    fputc('}', f);
  }
  fputs("}", f);
  write_records(d, log, "evaluations", &l->evaluations, every);
  write_records(d, log, "amendments", &l->amendments, 1);
  fputc('}', f);
}

void log_facts_free(LogFacts *l) {
  for (int i = 0; l && i < l->columns; i++) {
    free(l->column[i].key);
    free(l->column[i].mean);
    free(l->column[i].least);
    free(l->column[i].most);
    free(l->column[i].records);
  }
  if (!l) return;
  free(l->column);
  free(l->evaluations.item);
  free(l->amendments.item);
  free(l);
}

static LogFacts *facts_new(void) {
  LogFacts *l = xcalloc(1, sizeof *l);
  l->thinned = 1;
  return l;
}

bool log_facts_write(Document *d, const char *path, LogFacts **read, Err *err) {
  LogFacts *l = read ? *read : NULL;
  FILE *log = regular_read(path, err);
  if (!log) return false;
  if (l && !goes_on(l, log)) {
    log_facts_free(l);
    l = NULL;
  }
  if (!l) l = facts_new();
  const bool ok = read_log(l, path, log) || err_set(err, "cannot read %s: %s", path, strerror(errno));
  if (ok) write_facts(d, log, l);
  fclose(log);
  if (!read || !ok) log_facts_free(l);
  if (read) *read = ok ? l : NULL;
  return ok;
}
