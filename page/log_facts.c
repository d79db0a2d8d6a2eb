#include "page/log_facts.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/json.h"
#include "base/log_clock.h"

enum {
  POINTS = 1024,
  RECENT = 256,
  EVALUATIONS = 2000
}; // points for several records each, and points for one record each

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

typedef struct LogFacts {
  int64_t lines; // lines in the file, at least `records`
  off_t size;    // bytes that they take: what a run adds meanwhile is not read
  int64_t records, thinned, unread;
  bool cut;
  double *x;
  int points, most_points, columns;
  Column *column;
  size_t cap_columns;
  Records evaluations, amendments;
  RunClock clock;
} LogFacts;

// ---- reading --------------------------------------------------------------------------------------------------------

static Column *column_of(LogFacts *l, const char *key, int likely) {
  if (likely < l->columns && !strcmp(l->column[likely].key, key)) return &l->column[likely];
  for (int i = 0; i < l->columns; i++)
    if (!strcmp(l->column[i].key, key)) return &l->column[i];
  const size_t n = (size_t)l->most_points;
  array_reserve((void **)&l->column, &l->cap_columns, (size_t)l->columns + 1, sizeof *l->column);
  Column *c = &l->column[l->columns++];
  *c = (Column){xstrdup(key), xcalloc(n, sizeof(double)), xcalloc(n, sizeof(double)), xcalloc(n, sizeof(double)),
                xcalloc(n, sizeof(int))};
  return c;
}

static void column_take(Column *c, int point, double value) {
  const bool first = c->records[point]++ == 0;
  c->mean[point] = first ? value : c->mean[point] + (value - c->mean[point]) / c->records[point];
  c->least[point] = first ? value : fmin(c->least[point], value);
  c->most[point] = first ? value : fmax(c->most[point], value);
}

// The point that a record belongs to: each of the last RECENT lines has its own.
static int point_of(const LogFacts *l, int64_t record) {
  const int64_t old = l->thinned > 1 ? (l->lines - RECENT) / l->thinned : 0; // points for several records
  return (int)(record < old * l->thinned ? record / l->thinned : old + record - old * l->thinned);
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

static void read_numbers(Json *j, LogFacts *l, int point) {
  const char *key;
  if (json_begin_object(j))
    for (int i = 0; (key = json_key(j)); i++) {
      if (!strcmp(key, "step") || json_peek(j) != JSON_NUMBER) {
        json_skip(j);
        continue;
      }
      Column *c = column_of(l, key, i);
      const double value = json_number(j);
      if (!j->failed) column_take(c, point, value); // not for values such as 1e400
    }
}

static void records_add(Records *s, off_t at, size_t size) {
  array_reserve((void **)&s->item, &s->cap, (size_t)s->n + 1, sizeof *s->item);
  s->item[s->n++] = (RecordText){at, size};
}

static void take_step(LogFacts *l, Json *j, const ClockRecord *clock) {
  const int point = point_of(l, l->records++);
  read_numbers(j, l, point);
  l->x[point] = (double)clock->step;
  l->points = point + 1;
  column_take(column_of(l, "elapsed", 0), point, run_clock_now(&l->clock));
}

static void take_line(LogFacts *l, const char *path, const char *line, off_t at, size_t size, bool last) {
  Json j;
  ClockRecord clock = CLOCK_RECORD_NONE;
  RecordType type;
  json_open(&j, path, line, size);
  const bool ok = read_head(&j, &clock, &type);
  json_close(&j);
  if (!ok) {
    l->cut |= last;
    l->unread += !last;
    return;
  }
  run_clock_take(&l->clock, &clock);
  if (type == OF_EVALUATION) records_add(&l->evaluations, at, size);
  if (type == OF_AMENDMENT) records_add(&l->amendments, at, size);
  if (type != OF_STEP) return;
  json_open(&j, path, line, size);
  take_step(l, &j, &clock);
  json_close(&j);
}

static void count_lines(LogFacts *l, FILE *log) {
  char block[1 << 16];
  for (size_t n; (n = fread(block, 1, sizeof block, log)) > 0; l->size += (off_t)n)
    for (size_t i = 0; i < n; i++) l->lines += block[i] == '\n';
  l->lines++; // an incomplete line
}

// Twice from the beginning, line by line: what is in memory at a time does not grow with the log. False with the reason
// in errno.
static bool read_log(LogFacts *l, const char *path, FILE *log) {
  count_lines(l, log);
  l->thinned = l->lines <= POINTS + RECENT ? 1 : (l->lines + POINTS - 1) / POINTS;
  l->most_points = POINTS + 2 * RECENT + (int)l->thinned;
  l->x = xcalloc((size_t)l->most_points, sizeof *l->x);
  char *line = NULL;
  size_t cap = 0;
  ssize_t n = 0;
  rewind(log);
  for (off_t at = 0; at < l->size && (n = getline(&line, &cap, log)) > 0; at += n) {
    const size_t bytes = (size_t)MIN(n, l->size - at);
    const bool ended = line[bytes - 1] == '\n';
    if (bytes > ended) take_line(l, path, line, at, bytes - ended, !ended);
  }
  free(line);
  return n >= 0 || feof(log); // there is no memory for a line
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
  int several = 0, every = 1; // points for several records
  while (l->thinned > 1 && several < l->points && several < (l->lines - RECENT) / l->thinned) several++;
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

static void facts_free(LogFacts *l) {
  for (int i = 0; i < l->columns; i++) {
    free(l->column[i].key);
    free(l->column[i].mean);
    free(l->column[i].least);
    free(l->column[i].most);
    free(l->column[i].records);
  }
  free(l->column);
  free(l->x);
  free(l->evaluations.item);
  free(l->amendments.item);
}

bool log_facts_write(Document *d, const char *path, Err *err) {
  LogFacts l = {0};
  FILE *log = fopen(path, "rb");
  if (!log) return err_set(err, "cannot open %s: %s", path, strerror(errno));
  const bool ok =
      (read_log(&l, path, log) && !ferror(log)) || err_set(err, "cannot read %s: %s", path, strerror(errno));
  if (ok) write_facts(d, log, &l);
  facts_free(&l);
  fclose(log);
  return ok;
}
